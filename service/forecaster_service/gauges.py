"""The current state of the service for GET /metrics. `Metrics` counts what happens."""

from asyncio import sleep
from collections.abc import Callable, Mapping
from time import time
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from forecaster.base.version import __version__
from forecaster_service.logs import LINES
from forecaster_service.metrics import MODEL, labels
from forecaster_service.protocol import Connections
from forecaster_service.store import Store

Rule: TypeAlias = Literal["livesum", "livemin", "livemax", "sum"]
"""What the figure of several processes is; only `sum` counts those that are gone."""
STATE: Mapping[str, tuple[str, Rule, Callable[[Store, Connections], float]]] = {
    "ready": ("1 when /readyz answers 200.", "livemin", lambda s, _: s.is_ready),
    "queue_series": (
        "Series that wait for the device, and requests that wait to be read.", "livesum",
        lambda s, _: s.waiting,
    ),
    "queue_limit_series": ("The most that may wait.", "livesum", lambda s, _: s.settings.max_queue),
    "expected_wait_seconds": (
        "Until all present work is done.", "livemax", lambda s, _: s.ahead(),
    ),
    "deadline_seconds": (
        "Time limit for an answer.", "livemax", lambda s, _: s.settings.deadline_seconds,
    ),
    "body_bytes": ("Bytes of large bodies held.", "livesum", lambda s, _: s.bodies.held),
    "body_limit_bytes": ("The most of them.", "livesum", lambda s, _: s.bodies.limit),
    "connections": ("Connections of clients.", "livesum", lambda _, c: len(c.all)),
    "connections_limit": ("The most connections.", "livesum", lambda _, c: c.most),
    "device_busy": ("1 while a batch runs.", "livesum", lambda s, _: s.batcher.busy),
    "workers": ("Processes that answer.", "livesum", lambda s, _: s.status == "ready"),
    "workers_wanted": ("How many should.", "livemax", lambda s, _: s.process.number),
    "worker_deaths_total": ("Those that ended.", "livemax", lambda s, _: s.process.deaths()),
    "ledger_rows_lost_total": (
        "Rows of forecasts that could not be kept.", "sum", lambda s, _: s.keeper.lost,
    ),
    "log_lines_lost_total": (
        "Lines that stderr did not take.", "sum", lambda _, __: LINES.lost,
    ),
}  # fmt: skip
OF_PROCESS: Mapping[str, Rule] = {
    "process_start_time_seconds": "livemin", "process_cpu_seconds_total": "sum",
}  # fmt: skip
"""The rules of the figures of a process; livesum for the others."""


class Gauges:
    """The state of a store, its connections and its process, as of the last `update`."""

    def __init__(self, store: Store, connections: Connections, registry: CollectorRegistry) -> None:
        def gauge(name: str, words: str, rule: Rule, *names: str) -> Gauge:
            return Gauge(name, words, names, registry=registry, multiprocess_mode=rule)

        self.store, self.connections = store, connections
        self.state = {
            name: gauge(f"forecaster_{name}", words, rule)
            for name, (words, rule, _) in STATE.items()
            if store.process.number > 1 or not name.startswith("worker")
        }
        gauge("forecaster_build_info", "The release.", "livemax", "version").labels(
            __version__
        ).set(1)
        self.info = gauge(
            "forecaster_model_info", "The models that answer; 0 for earlier ones.", "livemax",
            "source", *MODEL, "device",
        )  # fmt: skip
        self.loaded = gauge(
            "forecaster_model_loaded_timestamp_seconds",
            "When the model was last loaded; 0 for never.", "livemax", "source",
        )  # fmt: skip
        self.looked = gauge(
            "forecaster_model_looked_timestamp_seconds",
            "When the name of the model was last resolved; 0 for never.", "livemax", "source",
        )  # fmt: skip
        self._shown: dict[str, tuple[str, ...]] = {}
        self._collector = ProcessCollector(registry=None)
        self.process = {
            sample.name: gauge(
                sample.name, metric.documentation, OF_PROCESS.get(sample.name, "livesum")
            )
            for metric in self._collector.collect()
            for sample in metric.samples
        }

    async def watch(self) -> None:
        """Update once a second, for another process that is asked, until cancelled."""
        while True:
            self.update()
            await sleep(1)

    def update(self) -> None:
        """Set all gauges to the present state."""
        for name, gauge in self.state.items():
            gauge.set(float(STATE[name][2](self.store, self.connections)))
        for metric in self._collector.collect():
            for sample in metric.samples:
                self.process[sample.name].set(sample.value)
        for slot in self.store.slots:
            for counter in (self.store.metrics.loads, self.store.metrics.failures):
                counter.labels(slot.label)  # 0 until there is one
            if served := slot.served:
                shown = (slot.label, *labels(served.identity), served.forecaster.device)
                if (before := self._shown.get(slot.source)) not in (None, shown):
                    self.info.labels(*before or ()).set(0)
                self.info.labels(*shown).set(1)
                self._shown[slot.source] = shown
            self.loaded.labels(slot.label).set(slot.loaded)
            # a fixed version or run, or polling is off: the name always means the loaded model
            known = slot.served and (slot.fixed or not self.store.settings.poll_seconds)
            self.looked.labels(slot.label).set(time() if known else slot.looked)
