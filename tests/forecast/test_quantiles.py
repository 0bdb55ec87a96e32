"""Quantiles on tensors equal their slow definition, window by window."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.datasets.calendar import calendar_features, phase_weights
from forecaster.forecast.intervals import Conditions, Intervals
from forecaster.forecast.quantiles import LEAST, Quantiles, between, deviation

LEVELS = (0.1, 0.5, 0.9)


def about(intervals, point, past, known, seen=None, *, levels=None, item=None):
    """`Quantiles`, with arrays."""
    seen, levels, item = (
        None if array is None else torch.from_numpy(np.array(array))
        for array in (seen, levels, item)
    )
    inputs = map(torch.from_numpy, (point, past, known))
    return Quantiles(intervals)(*inputs, seen, levels, item).numpy()


def slow_deviation(values, season):
    """The definition, for one column of one window, nan where missing."""
    length = season if len(values) >= 2 * season else 1
    cycles = values[len(values) % length :].reshape(-1, length)
    count = np.maximum((~np.isnan(cycles)).sum(axis=0), 1)
    off = (cycles - np.nansum(cycles, axis=0) / count).ravel()
    return np.sqrt(np.nanmean(np.square(off[-max(season, len(values) // 4) :])))


def slow(intervals, point, past, known, levels):
    """The definition, for windows without missing values: numbers, one after the other."""
    told, quantiles = intervals.conditions, np.empty((*point.shape, len(levels)))
    places = [q for q, level in enumerate(intervals.nominal) if level in intervals.levels]
    for b, t, k in np.ndindex(point.shape):
        ratio = slow_deviation(past[b, :, k], told.season) / told.usual[k] if told.usual[k] else 1
        phase = int((known[b, t, : len(told.weights)] + 0.5) @ np.array(told.weights) + 0.01)
        part = phase % told.season * len(told.phases) // told.season
        width = max(ratio, LEAST) ** 0.75 * told.phases[part, k]
        ends = sorted(point[b, t, k] + width * intervals.offsets[t, k, q] for q in places)
        sides = [np.sign(level - 0.5) for level in intervals.levels]
        about = zip(sides, np.array(ends) - point[b, t, k], strict=True)
        held = [max(side * offset, 0) * side for side, offset in about]
        for place, level in enumerate(levels):
            end = point[b, t, k] + np.interp(level, intervals.levels, held)
            bound = max if level > 0.5 else min
            quantiles[b, t, k, place] = (
                point[b, t, k] if level == 0.5 else bound(end, point[b, t, k])
            )
    return quantiles


class TestQuantiles:
    @pytest.mark.parametrize("weights", [(), (24.0,)])
    @pytest.mark.parametrize("steps", [12, 5])
    def test_they_are_those_of_the_definition(self, steps, weights):
        random = np.random.default_rng(0)
        usual, phases = np.array([0.7, 0.0]), 1 + random.random((3, 2))
        conditions = Conditions(4, weights, usual, phases)
        offsets = random.normal(size=(6, 2, 3))
        intervals = Intervals(LEVELS, offsets, np.ones((6, 2)), 9, conditions)
        point, past = random.normal(size=(5, 6, 2)), random.normal(size=(5, steps, 2))
        known = random.random((5, 6, 2)) - 0.5
        for levels in ((0.1, 0.3, 0.5, 0.85, 0.9), LEVELS):
            wanted = slow(intervals, point, past, known, levels)
            np.testing.assert_allclose(about(intervals, point, past, known, levels=levels), wanted)
        np.testing.assert_allclose(about(intervals, point, past, known), wanted)

    def test_levels_between_those_of_others(self):
        quantiles, point = np.array([[1.0, 2.0, 4.0]]), np.array([2.0])
        found = between(quantiles, LEVELS, (0.1, 0.3, 0.5, 0.6, 0.9), point)
        np.testing.assert_allclose(found, [[1, 1.5, 2, 2.5, 4]])

    def test_of_a_single_level_and_of_those_that_are_backed(self):
        offsets = np.array([[[-np.inf, 0.5, np.inf]]])
        intervals = Intervals(LEVELS, offsets, np.ones((1, 1)), 9)
        ones = np.ones((2, 1, 1))
        assert about(intervals, ones, ones, ones, levels=[0.5]).tolist() == [[[[1.0]]]] * 2

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
        conditions = Conditions(1, (), np.ones(3), np.ones((1, 3)))
        intervals = Intervals(nominal, offsets, np.ones((2, 3)), 50, conditions)
        point = random.normal(size=(4, 2, 3))
        levels = np.sort(np.clip([*asked, *nominal], nominal[0], nominal[-1]))
        past, known = random.normal(size=(4, 8, 3)), np.zeros((4, 2, 0))
        got = about(intervals, point, past, known, levels=levels)
        point = point[..., None]
        assert (got[..., levels < 0.5] <= point).all()
        assert (got[..., levels == 0.5] == point).all()
        assert (got[..., levels > 0.5] >= point).all()
        assert (np.diff(got, axis=-1) >= -1e-12).all()

    def test_a_batch_changes_nothing(self):
        random = np.random.default_rng(0)
        conditions = Conditions(4, (), np.ones(2), np.ones((1, 2)))
        intervals = Intervals(LEVELS, random.normal(size=(6, 2, 3)), np.ones((6, 2)), 9, conditions)
        given = (
            random.normal(size=(50, 6, 2)),
            random.normal(size=(50, 13, 2)),
            np.zeros((50, 6, 0)),
        )
        found = about(intervals, *given, levels=(0.2, 0.7))
        for place in range(50):
            one = about(intervals, *(each[place : place + 1] for each in given), levels=(0.2, 0.7))
            np.testing.assert_array_equal(one, found[place : place + 1])


class TestConditions:
    @pytest.mark.parametrize(("steps", "season"), [(10, 4), (7, 4), (40, 1), (40, 6)])
    def test_deviation_is_that_of_the_newest_values_from_the_mean_cycle(self, steps, season):
        random = np.random.default_rng(0)
        past, seen = random.normal(size=(3, steps, 2)), random.random((3, steps, 2)) >= 0.3
        for there in (np.ones_like(seen), seen):
            values = np.where(there, past, np.nan)
            wanted = [[slow_deviation(one, season) for one in window.T] for window in values]
            observed = None if there.all() else torch.from_numpy(there)
            found = deviation(torch.from_numpy(np.where(there, past, 9.0)), season, observed)
            np.testing.assert_allclose(found, wanted)
        nothing = torch.zeros(past.shape, dtype=torch.bool)
        assert deviation(torch.from_numpy(past), season, nothing).isnan().all()

    def widths(self, conditions, past, known, observed=None):
        offsets = np.ones((known.shape[1], past.shape[2], 1))
        intervals = Intervals((0.9,), offsets, offsets[..., 0], 9, conditions)
        past, known = torch.from_numpy(past), torch.from_numpy(known)
        return Quantiles(intervals).widths(past, known, observed, None).numpy()

    def test_widths_follow_a_power_of_it_and_the_hour(self):
        phases = np.ones((24, 1))
        phases[23], phases[1] = 2, 0.5
        conditions = Conditions(24, phase_weights("h", 24), np.array([1.0]), phases)
        times = pd.date_range("2026-01-01 22:00", periods=4, freq="h")
        known = np.tile(calendar_features(times, "h"), (3, 1, 1))
        wave = np.sin(np.arange(48))[:, None] + np.repeat([[1.0], [-1.0]], 24, axis=0)
        past = np.stack([wave, 4 * wave, 0 * wave])
        one, four, none = self.widths(conditions, past, known)[..., 0]
        np.testing.assert_allclose(one / one[0], [1, 2, 1, 0.5])
        np.testing.assert_allclose(four, 4**0.75 * one)
        np.testing.assert_allclose(none, LEAST**0.75 * np.array([1, 2, 1, 0.5]))

    def test_a_history_that_says_nothing_has_the_usual_width(self):
        conditions = Conditions(1, (), np.array([1.0, 0.0]), np.ones((1, 2)))
        past, known = np.random.default_rng(0).normal(size=(1, 8, 2)), np.zeros((1, 3, 0))
        nothing = torch.zeros((1, 8, 2), dtype=torch.bool)
        np.testing.assert_array_equal(self.widths(conditions, past, known, nothing), 1)
        assert (self.widths(conditions, past, known)[..., 1] == 1).all()
