from forecaster_service.pace import FRESH, Pace


def test_batches_of_each_size_have_their_costs():
    pace = Pace()
    assert pace.cost("a", 100, 16) == 0, "nobody knows"
    for size in (1, 16, 4, 16, 1):
        pace.note("a", size, 0.5 + 0.25 * size)
    assert pace.cost("a", 3, 16) == 1.5, "as four"
    assert pace.cost("a", 40, 16) == 2 * 4.5 + 3, "two of sixteen, and eight as twice four"
    assert pace.cost("a", 0, 16) == 0
    assert pace.last == 0.75
    pace.note("b", 2, 1.0)
    assert [pace.cost("b", count, 16) for count in (1, 16, 32)] == [1, 8, 16], "in proportion"


def test_what_was_measured_is_believed_for_a_while(monkeypatch):
    clock = 1000.0
    monkeypatch.setattr("forecaster_service.pace.monotonic", lambda: clock)
    pace = Pace()
    assert not pace.fresh("a", 1)
    pace.note("a", 1, 1.0)
    assert pace.fresh("a", 1)
    assert not pace.fresh("a", 2), "another size"
    clock += FRESH
    assert not pace.fresh("a", 1)
