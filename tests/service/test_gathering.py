"""The metrics of several processes, combined into those of one."""

import json

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from forecaster_service.gathering import Figures, Gathered, counted, gathered, told


def process(count: int, waiting: int, ready: int, model: str) -> Figures:
    """The metrics of one process, as they arrive at another."""
    registry = CollectorRegistry()
    requests = Counter("forecaster_requests", "Help.", ("route",), registry=registry)
    requests.labels("/predict").inc(count)
    requests.labels(f"/{model}").inc()
    seconds = Histogram("forecaster_seconds", "Help.", buckets=(1, 2), registry=registry)
    seconds.observe(1.5)
    Gauge("forecaster_waiting", "Help.", registry=registry).set(waiting)
    Gauge("forecaster_ready", "Help.", registry=registry).set(ready)
    Gauge("forecaster_expected_wait_seconds", "Help.", registry=registry).set(waiting)
    Info("forecaster_model", "Help.", registry=registry).info({"name": model})
    figures: Figures = json.loads(json.dumps(told(registry.collect())))
    return figures


def lines(*parts: Figures) -> list[str]:
    """The lines that Prometheus reads."""
    return generate_latest(Gathered(gathered(parts))).decode().splitlines()


def test_counts_and_gauges_are_added_up() -> None:
    text = lines(process(3, 5, 1, "a"), process(4, 6, 1, "a"))
    assert 'forecaster_requests_total{route="/predict"} 7.0' in text
    assert 'forecaster_requests_total{route="/a"} 2.0' in text
    assert 'forecaster_seconds_bucket{le="1.0"} 0.0' in text
    assert 'forecaster_seconds_bucket{le="+Inf"} 2.0' in text
    assert "forecaster_seconds_sum 3.0" in text
    assert "forecaster_waiting 11.0" in text
    assert "forecaster_expected_wait_seconds 6.0" in text
    assert text.count("# TYPE forecaster_requests_total counter") == 1


def test_ready_are_all_or_none_and_each_model_is_told_once() -> None:
    assert "forecaster_ready 1.0" in lines(process(1, 0, 1, "a"), process(1, 0, 1, "a"))
    text = lines(process(1, 0, 1, "a"), process(1, 0, 0, "b"))
    assert "forecaster_ready 0.0" in text
    assert [line for line in text if line.startswith("forecaster_model_info")] == [
        'forecaster_model_info{name="a"} 1.0', 'forecaster_model_info{name="b"} 1.0',
    ]  # fmt: skip


def test_of_one_that_is_gone_the_counts_stay() -> None:
    text = lines(counted(process(3, 5, 0, "a")), process(4, 6, 1, "b"))
    assert 'forecaster_requests_total{route="/predict"} 7.0' in text
    assert "forecaster_seconds_count 2.0" in text
    assert "forecaster_waiting 6.0" in text
    assert "forecaster_ready 1.0" in text
    assert 'forecaster_model_info{name="a"} 1.0' not in text


def test_one_process_is_told_as_it_is() -> None:
    registry = CollectorRegistry()
    Counter("forecaster_requests", "Help.", ("route",), registry=registry).labels("/").inc()
    Histogram("forecaster_seconds", "Help.", registry=registry).observe(0.1)
    own = generate_latest(registry)
    assert generate_latest(Gathered(gathered([told(registry.collect())]))) == own
