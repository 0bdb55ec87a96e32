import pytest

from forecaster.evaluate.headline import cycle


@pytest.mark.parametrize(
    ("freq", "steps", "words"),
    [
        ("D", 7, "week"), ("h", 24, "day"), ("30min", 48, "day"), ("h", 168, "week"),
        ("MS", 12, "year"), ("QS-JAN", 4, "year"), ("W-MON", 52, "year"), ("B", 5, "week"),
        ("D", 365, "year"), ("D", 30, "30 steps"), ("2MS", 12, "12 steps"), ("15min", 4, "hour"),
    ],
)  # fmt: skip
def test_a_cycle_has_the_name_that_people_use(freq, steps, words):
    assert cycle(freq, steps) == words
