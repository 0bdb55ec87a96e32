from dataclasses import replace

import numpy as np

from forecaster.forecast.intervals import (
    Conditions,
    Intervals,
)

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)


def made(offsets, nominal=LEVELS[2:7:2], windows=50):
    """Intervals of one step and one column."""
    return Intervals(nominal, np.array(offsets, dtype=float)[None, None], np.ones((1, 1)), windows)


class TestIntervals:
    def test_levels_that_too_few_windows_back_are_left_out(self):
        own = made([-np.inf, 0.5, 3])
        assert own.levels == (0.5, 0.9)

    def test_another_scaler_changes_nothing_in_units(self):
        told = Conditions(24, (), np.array([3.0]), np.ones((1, 1)))
        own = replace(made([-1, 0, 2]), conditions=told).rescaled(np.array([0.5]))
        assert own.offsets.tolist() == [[[-0.5, 0, 1]]]
        assert (own.scale.tolist(), own.conditions.usual.tolist()) == ([[0.5]], [1.5])
        panel = made([-1, 0, 2]).rescaled(np.array([[0.5], [2], [9]]))
        assert panel.offsets.tolist() == [[[-2, 0, 4]]]
