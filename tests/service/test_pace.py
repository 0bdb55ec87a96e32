import pytest

from forecaster_service.pace import FRESH, KINDS, Pace


def test_nobody_knows_what_was_never_measured() -> None:
    pace = Pace()
    assert pace.cost("a", 100, 16) == 0
    assert not pace.fresh("a")


def test_a_batch_and_each_series_of_it_have_their_costs() -> None:
    pace = Pace()
    for size in (1, 16, 4, 16, 1):
        pace.note("a", size, 0.5 + 0.25 * size)
    assert pace.cost("a", 8, 16) == pytest.approx(2.5)
    assert pace.cost("a", 40, 16) == pytest.approx(2 * 4.5 + 2.5)
    assert pace.cost("a", 0, 16) == 0


def test_what_was_seen_in_one_size_alone_is_taken_in_proportion() -> None:
    pace = Pace()
    for _ in range(3):
        pace.note("a", 2, 1.0)
    assert pace.cost("a", 16, 16) == pytest.approx(8)
    assert pace.cost("a", 32, 16) == pytest.approx(16)


def test_a_larger_batch_that_was_faster_makes_no_cost_negative() -> None:
    pace = Pace()
    pace.note("a", 1, 4.0)
    pace.note("a", 16, 1.0)
    assert 1 < pace.cost("a", 1, 16) == pace.cost("a", 16, 16) < 4


@pytest.mark.parametrize(("before", "now"), [(1.0, 5.0), (5.0, 1.0)])
def test_it_follows_a_device_that_becomes_another(before: float, now: float) -> None:
    pace = Pace()
    for _ in range(100):
        pace.note("a", 4, before)
    for _ in range(20):
        pace.note("a", 4, now)
    assert pace.cost("a", 4, 4) == pytest.approx(now, rel=0.2)


def test_a_kind_begins_like_another_until_it_is_measured() -> None:
    pace = Pace()
    pace.begin("b", like="a")
    assert pace.cost("b", 1, 4) == 0
    pace.note("a", 2, 6.0)
    pace.begin("b", like="a")
    assert pace.cost("b", 1, 4) == 3
    pace.note("a", 2, 60.0)
    pace.begin("b", like="a")
    assert pace.cost("b", 1, 4) == 3


def test_what_was_measured_is_believed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr("forecaster_service.pace.monotonic", lambda: clock)
    pace = Pace()
    pace.note("a", 1, 1.0)
    assert pace.fresh("a")
    clock += FRESH
    assert not pace.fresh("a")


def test_old_kinds_are_forgotten() -> None:
    pace = Pace()
    for kind in range(KINDS + 1):
        pace.note(kind, 1, 1.0)
        pace.note(0, 1, 1.0)
    assert (pace.cost(0, 1, 1), pace.cost(1, 1, 1), pace.cost(2, 1, 1)) == (1, 0, 1)
