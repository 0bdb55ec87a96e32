"""The current state of the service for GET /metrics, read at each request and not stored."""

from collections.abc import Iterator
from threading import active_count
from time import time

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from forecaster.version import __version__
from forecaster_service.metrics import MODEL, labels
from forecaster_service.protocol import Connections
from forecaster_service.store import Store


class Gauges(Collector):
    """The state of a store and its connections. `Metrics` counts what happens."""

    def __init__(self, store: Store, connections: Connections) -> None:
        self.store, self.connections = store, connections

    def collect(self) -> Iterator[Metric]:
        store, settings, batcher = self.store, self.store.settings, self.store.batcher
        values = {
            "ready": ("1 when /readyz answers 200.", store.is_ready),
            "queue_series": (
                "Series that wait for the device, and requests that wait to be read.",
                store.waiting,
            ),
            "queue_limit_series": ("The most series that may wait.", settings.max_queue),
            "expected_wait_seconds": ("Until all present work is done.", store.ahead()),
            "deadline_seconds": ("Time limit for an answer.", settings.deadline_seconds),
            "connections": ("Connections of clients.", len(self.connections.all)),
            "connections_limit": ("The most connections.", self.connections.most),
            "device_threads": ("Threads that run batches.", batcher.threads),
            "device_threads_busy": ("Threads that run a batch now.", batcher.busy),
            "threads": ("Threads of the interpreter.", active_count()),
        }
        for name, (words, value) in values.items():
            yield GaugeMetricFamily(f"forecaster_{name}", words, float(value))
        build = GaugeMetricFamily("forecaster_build_info", "The release.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield from self._models()

    def _models(self) -> Iterator[Metric]:
        """The state of each model of the settings."""
        info = GaugeMetricFamily(
            "forecaster_model_info", "The models that answer.", labels=["source", *MODEL, "device"]
        )
        loads = CounterMetricFamily(
            "forecaster_model_loads", "Times that a model was loaded.", labels=["source"]
        )
        failures = CounterMetricFamily(
            "forecaster_model_load_failures", "Times that a model could not be loaded or looked "
            "up.", labels=["source"],
        )  # fmt: skip
        loaded = GaugeMetricFamily(
            "forecaster_model_loaded_timestamp_seconds", "When the model was last loaded; 0 for "
            "never.", labels=["source"],
        )  # fmt: skip
        looked = GaugeMetricFamily(
            "forecaster_model_looked_timestamp_seconds", "When the name of the model was last "
            "resolved; 0 for never.", labels=["source"],
        )  # fmt: skip
        for slot in self.store.slots:
            if served := slot.served:
                device = served.forecaster.device
                info.add_metric([slot.label, *labels(served.identity), device], 1)
            loads.add_metric([slot.label], slot.loads)
            failures.add_metric([slot.label], slot.failed_loads)
            loaded.add_metric([slot.label], slot.loaded)
            # a fixed version or run, or polling is off: the name always means the loaded model
            known = slot.served and (slot.fixed or not self.store.settings.poll_seconds)
            looked.add_metric([slot.label], time() if known else slot.looked)
        yield from (info, loads, failures, loaded, looked)
