from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.datasets.calendar import calendar_features, phase_weights
from forecaster.forecast.intervals import (
    LEAST,
    Conditions,
    Intervals,
    deviation,
)

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)


ONE = np.ones((1, 1, 1))


def made(offsets, nominal=LEVELS[2:7:2], windows=50):
    """Intervals of one step and one column."""
    return Intervals(nominal, np.array(offsets, dtype=float)[None, None], np.ones((1, 1)), windows)


class TestIntervals:
    def test_levels_that_too_few_windows_back_are_left_out(self):
        own = made([-np.inf, 0.5, 3])
        assert own.levels == (0.5, 0.9)
        point = np.full((4, 1, 1), 10.0)
        np.testing.assert_array_equal(own.quantiles(point, (0.9, 0.5), ONE)[0, 0], [[13, 10]])

    @settings(max_examples=200, deadline=None)
    @given(
        own=st.sets(st.integers(1, 99), min_size=1, max_size=6),
        asked=st.lists(st.floats(0, 1), max_size=5),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_they_contain_the_forecast_and_rise_whatever_was_calibrated(self, own, asked, seed):
        """Also if all errors of the calibrating windows had one sign, and between levels."""
        nominal = tuple(sorted(level / 100 for level in own))
        random = np.random.default_rng(seed)
        offsets = random.normal(random.normal(scale=3), size=(2, 3, len(nominal)))
        intervals = Intervals(nominal, offsets, np.ones((2, 3)), 50)
        point = random.normal(size=(4, 2, 3))
        levels = np.sort(np.clip([*asked, *nominal], nominal[0], nominal[-1]))
        got = intervals.quantiles(point, levels, random.exponential(size=(4, 2, 3)))
        point = point[..., None]
        assert (got[..., levels < 0.5] <= point).all()
        assert (got[..., levels == 0.5] == point).all()
        assert (got[..., levels > 0.5] >= point).all()
        assert (np.diff(got, axis=-1) >= -1e-12).all()

    def test_another_scaler_changes_nothing_in_units(self):
        told = Conditions(24, (), np.array([3.0]), np.ones((1, 1)))
        own = replace(made([-1, 0, 2]), conditions=told).rescaled(np.array([0.5]))
        assert own.offsets.tolist() == [[[-0.5, 0, 1]]]
        assert (own.scale.tolist(), own.conditions.usual.tolist()) == ([[0.5]], [1.5])
        panel = made([-1, 0, 2]).rescaled(np.array([[0.5], [2], [9]]))
        assert panel.offsets.tolist() == [[[-2, 0, 4]]]


def slow_deviation(values, season):
    """The definition, for one column of one window, nan where missing."""
    length = season if len(values) >= 2 * season else 1
    cycles = values[len(values) % length :].reshape(-1, length)
    count = np.maximum((~np.isnan(cycles)).sum(axis=0), 1)
    off = (cycles - np.nansum(cycles, axis=0) / count).ravel()
    return np.sqrt(np.nanmean(np.square(off[-max(season, len(values) // 4) :])))


class TestConditions:
    @pytest.mark.parametrize(("steps", "season"), [(10, 4), (7, 4), (40, 1), (40, 6)])
    def test_deviation_is_that_of_the_newest_values_from_the_mean_cycle(self, steps, season):
        random = np.random.default_rng(0)
        past, seen = random.normal(size=(3, steps, 2)), random.random((3, steps, 2)) >= 0.3
        for there in (np.ones_like(seen), seen):
            values = np.where(there, past, np.nan)
            wanted = [[slow_deviation(one, season) for one in window.T] for window in values]
            given = np.where(there, past, 9.0), season, None if there.all() else there
            np.testing.assert_allclose(deviation(*given), wanted)
        assert np.isnan(deviation(past, season, np.zeros(past.shape, dtype=bool))).all()

    def test_widths_follow_a_power_of_it_and_the_hour(self):
        phases = np.ones((24, 1))
        phases[23], phases[1] = 2, 0.5
        told = Conditions(24, phase_weights("h", 24), np.array([1.0]), phases)
        times = pd.date_range("2026-01-01 22:00", periods=4, freq="h")
        known = np.tile(calendar_features(times, "h"), (3, 1, 1))
        wave = np.sin(np.arange(48))[:, None] + np.repeat([[1.0], [-1.0]], 24, axis=0)
        past = np.stack([wave, 4 * wave, 0 * wave])
        one, four, none = told.widths(past, known)[..., 0]
        np.testing.assert_allclose(one / one[0], [1, 2, 1, 0.5])
        np.testing.assert_allclose(four, 4**0.75 * one)
        np.testing.assert_allclose(none, LEAST**0.75 * np.array([1, 2, 1, 0.5]))

    def test_a_history_that_says_nothing_has_the_usual_width(self):
        told = Conditions(1, (), np.array([1.0, 0.0]), np.ones((1, 2)))
        past = np.random.default_rng(0).normal(size=(1, 8, 2))
        seen = np.zeros((1, 8, 2), dtype=bool)
        np.testing.assert_array_equal(told.widths(past, np.zeros((1, 3, 0)), seen), 1)
        assert (told.widths(past, np.zeros((1, 3, 0)))[..., 1] == 1).all()
