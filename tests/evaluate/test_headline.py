from forecaster.evaluate.headline import cycle


def test_a_cycle_has_the_name_that_people_use():
    for freq, steps, words in (
        ("h", 24, "day"), ("h", 168, "week"), ("QS-JAN", 4, "year"), ("W-MON", 52, "year"),
        ("B", 5, "week"), ("D", 30, "30 steps"), ("2MS", 12, "12 steps"), ("15min", 4, "hour"),
    ):  # fmt: skip
        assert cycle(freq, steps) == words
