import pytest

from forecaster_service import buckets as module
from forecaster_service.buckets import CLIENTS, Buckets


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the buckets use, which a test can set."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_as_many_as_there_are_and_then_by_the_minute(clock: list[float]) -> None:
    buckets = Buckets(6)
    assert [buckets.take("a") for _ in range(7)] == [0] * 6 + [10]
    assert buckets.take("b") == 0
    clock[0] += 4
    assert buckets.take("a") == pytest.approx(6)
    clock[0] += 6
    assert [buckets.take("a"), buckets.take("a")] == [0, pytest.approx(10)]
    clock[0] += 3600
    assert [buckets.take("a") for _ in range(7)] == [0] * 6 + [pytest.approx(10)]


def test_less_than_one_a_minute(clock: list[float]) -> None:
    buckets = Buckets(0.5)
    assert [buckets.take("a"), buckets.take("a")] == [0, 120]


def test_memory_is_bounded(clock: list[float]) -> None:
    buckets = Buckets(1)
    for number in range(3 * CLIENTS):
        assert buckets.take(str(number)) == 0
    assert len(buckets._buckets) == CLIENTS
    assert buckets.take(str(3 * CLIENTS - 1)) > 0
    assert buckets.take("0") == 0, "forgotten"


def test_what_costs_more_than_there_is_is_owed(clock: list[float]) -> None:
    buckets = Buckets(60)
    assert buckets.take("a", 100) == 0
    assert buckets.take("a") == 41, "40 are owed"
    assert buckets.take("a", 9, owe=True) == 0
    clock[0] += 49
    assert buckets.take("a") == 1
    clock[0] += 1
    assert [buckets.take("a"), buckets.take("a")] == [0, 1]
