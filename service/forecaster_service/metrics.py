"""Counters and histograms of GET /metrics, for Prometheus."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from forecaster_service.response import ModelIdentity

MODEL = ("model", "version", "digest", "attention")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = tuple(2**power for power in range(11))


class Metrics:
    """The metrics of one service; label values are routes, statuses and models that were served,
    never text from a client."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        counter = partial(Counter, namespace="forecaster", registry=self.registry)
        histogram = partial(
            Histogram, namespace="forecaster", registry=self.registry, buckets=SECONDS
        )
        self.requests = counter(
            "requests", "Requests by route, status and the model that was asked.",
            ("route", "status", *MODEL),
        )  # fmt: skip
        self.seconds = histogram(
            "request_seconds", "From a request's head to the end of its answer.", ("route", *MODEL)
        )
        self.queue = histogram(
            "queue_seconds", "The time that a request waited for the device.", MODEL
        )
        self.inference = histogram(
            "inference_seconds", "The time that a batch took on the device.", MODEL
        )
        self.batch = histogram("batch_series", "Series that ran together.", MODEL, buckets=SIZES)
        self.closed = counter(
            "connections_closed", "Connections closed before a request was complete or an answer "
            "was read, by cause: a status, unread, or too many.", ("reason",),
        )  # fmt: skip
        self.in_flight = Gauge(
            "forecaster_requests_in_flight", "Requests that are not answered yet, including the "
            "one for this text.", registry=self.registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self.refusals = counter(
            "refusals", "Requests that were refused though they were valid, by reason.", ("reason",)
        )
        self.forecasts = counter("forecasts", "Series that were forecast.", MODEL)
        self.notices = counter(
            "notices", "Series that were forecast with a notice, by its code.", ("code", *MODEL)
        )
        self.loads = counter("model_loads", "Times that a model was loaded.", ("source",))
        self.failures = counter(
            "model_reload_failures", "Times that it could not be loaded or looked up.", ("source",)
        )

    def refused(self, reason: str) -> None:
        """Count a refusal, unless its reason is empty."""
        if reason:
            self.refusals.labels(reason).inc()


def labels(model: ModelIdentity | None) -> tuple[str, ...]:
    """The values of the labels MODEL; empty strings for none."""
    if model is None:
        return ("",) * len(MODEL)
    return model.name, model.version or "", model.digest, model.attn
