import math

import numpy as np
import pytest

from forecaster.record.challenge import DEVIATIONS, Entry, decide, stretches, tags_of

TASK = {"data.digest": "sha256:1", "borders": "[1, 2, 3]", "windows": "9 of steps 2 to 3"}


def entry(version, errors, **task):
    return Entry.of(version, {**tags_of(errors, {**TASK, **task}), "others": "x"})


@pytest.mark.parametrize(
    ("windows", "horizon", "count"),
    [(100, 10, 10), (97, 4, 24), (100, 60, 4), (3, 9, 3), (1, 5, 1)],
)
def test_as_many_stretches_as_there_are_horizons_within_bounds(windows, horizon, count):
    each = np.arange(float(windows))
    expected = [part.mean() for part in np.array_split(each, count)]
    assert stretches(each, horizon) == pytest.approx(expected, rel=1e-5)


def test_stretches_are_in_the_order_of_time_and_of_windows_with_values():
    steps = np.tile(np.arange(8), 3)
    assert stretches(steps * 1.0, 2, steps) == [0.5, 2.5, 4.5, 6.5]
    assert stretches(np.array([1.0, math.nan, 2.0, 3.0, 4.0]), 1) == [1, 2, 3, 4]
    assert stretches(np.full(3, math.nan), 1) == []


class TestDecide:
    def test_the_first_with_an_error_becomes_the_champion(self):
        assert decide(entry("1", [1.0]), None).wins
        for errors in ([], [1.0, math.nan], [math.inf]):
            found = decide(entry("1", errors), None)
            assert (found.wins, found.open) == (False, False)

    def test_only_by_hand_on_other_data_or_few_windows_or_against_one_that_is_not_of_ours(self):
        own, before = entry("2", [0.1] * 4), [9.0] * 4
        others = {f"other data ({key})": entry("1", before, **{key: "other"}) for key in TASK}
        for reason, other in others.items():
            assert reason in decide(own, other).reason
        for tags in ({}, {**TASK, "calibrating_errors": "nonsense"}, {"calibrating_errors": "1"}):
            others[str(tags)] = Entry.of("1", tags)
        for other in others.values():
            found = decide(own, other)
            assert (found.wins, found.open) == (False, True)
        found = decide(entry("2", [0.1] * 3), entry("1", [0.5] * 3))
        assert (found.wins, found.open) == (False, True)
        assert "3 windows are too few to measure it" in found.reason

    def test_neither_the_same_nor_a_worse_one(self):
        champion = entry("1", [1.0, 2.0, 3.0, 4.0])
        for errors in ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.1], [0.0, 2.0, 3.0, 5.0]):
            found = decide(entry("2", errors), champion)
            assert (found.wins, found.open) == (False, False)

    @pytest.mark.parametrize(("far", "wins"), [(0.99, False), (1.01, True)])
    def test_the_mean_difference_lies_two_standard_errors_below(self, far, wins):
        noise = np.random.default_rng(0).normal(size=12)
        noise -= noise.mean()
        margin = DEVIATIONS * np.sqrt(np.sum(noise**2) / 11 / 12)
        base = np.linspace(5, 9, 12)
        found = decide(entry("2", base + noise - far * margin), entry("1", base))
        assert (found.wins, found.open) == (wins, True)
        assert ("; the difference is not measurable" in found.reason) is not wins

    @pytest.mark.parametrize("drift", [0.0, -0.02])
    def test_chance_wins_seldom_and_what_is_better_often(self, drift):
        random = np.random.default_rng(1)
        wins = 0
        for _ in range(400):
            base = random.uniform(0.5, 1.5, 12)
            own = base * (1 + random.normal(drift, 0.02, 12))
            wins += decide(entry("2", own), entry("1", base)).wins
        assert wins < 32 if drift == 0 else wins > 320
