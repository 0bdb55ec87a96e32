"""Whole windows of calibrating errors: what is held, of which windows, and whether totals hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.datasets.dataset import Items
from forecaster.datasets.windows import Windows
from forecaster.evaluate import joint
from forecaster.evaluate.intervals import Calibration
from forecaster.evaluate.joint import covered, spread_of, with_errors
from tests.evaluate.test_intervals import HORIZON, LEVELS, PAST, Last, windows

ITEMS = Items(tuple("abcde"), np.arange(0, 2001, 400), np.array([0, 0, 0, 0, 50]))


def panel(first=100, last=340):
    values = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    return Windows(values, torch.zeros(450, 1), PAST, HORIZON, first, last, (2, 0), ITEMS)


def calibrated(chosen):
    return Calibration(Last().eval(), chosen, LEVELS).complete()


def errors_at(own, done, origin, item=0):
    """The errors (T, K) of the held window from an origin, as they were."""
    whole = replace(done.windows, every=1)
    numbers = torch.arange(len(whole))
    of, _, step = whole.locate(numbers)
    (number,) = numbers[(of == item) & (step == origin)].tolist()
    alone = Calibration(done.model, whole, LEVELS, chosen=torch.tensor([number])).complete()
    return alone.errors[0], spread_of(alone, own, np.zeros(1, int))[0]


@pytest.mark.parametrize(
    ("chosen", "shape"),
    [(windows(100, 160), (58, 1, 3, 2)), (panel(), (238, 5, 3, 2)),
     (panel().spaced(200), (21, 5, 3, 2))],
)  # fmt: skip
def test_held_windows_give_back_the_errors(chosen, shape):
    """Times the widths and the scale they are the errors, also of windows that did not calibrate;
    all series of a panel from the same origin."""
    done = calibrated(chosen)
    own = with_errors(done.intervals(), [done])
    assert own.errors.shape == shape
    assert own.errors.dtype == np.float16
    begins = np.arange(96, 96 + (58 if chosen.items is None else 238))
    assert own.apart == (len(begins) + HORIZON - 1) / HORIZON
    origins = begins[joint.middles(shape[0], len(begins))]
    for place in (0, 7, -1):
        for item in range(shape[1]):
            error, spread = errors_at(own, done, origins[place], item)
            np.testing.assert_allclose(
                own.errors[place, item] * spread, error, rtol=2e-3, atol=1e-3
            )


def test_windows_that_are_not_known_have_the_errors_of_those_before():
    chosen = panel(100, 120)
    values = chosen.values.clone()
    values[400 + 105 : 400 + 112, 2] = torch.nan
    values[1600:] = torch.nan  # the last series: the errors of another one
    done = calibrated(replace(chosen, values=values))
    held = with_errors(done.intervals(), [done]).errors.astype(float)
    assert np.isfinite(held).all()
    assert (held[:, 4] == held[:, 3]).all()
    assert held[9, 1, 0, 0] == held[4, 1, 0, 0] != held[3, 1, 0, 0], "step 105 has the error of 104"


def test_they_take_little_room(monkeypatch):
    """One of a block of neighbours stands for all where FEWEST windows are too many."""
    done = calibrated(panel())
    for room, shape in ((600, (20, 5, 3, 2)), (300, (30, 5, 1, 2)), (100, (20, 5, 1, 1))):
        monkeypatch.setattr(joint, "BYTES", 2 * room)
        own = with_errors(done.intervals(), [done])
        assert own.errors.shape == shape
    monkeypatch.setattr(joint, "SERIES", 2)
    assert with_errors(done.intervals(), [done]).errors.shape[1] == 2


def test_errors_of_a_rehearsal_are_held_beside_those_of_the_test_split():
    early, late = calibrated(windows(100, 160)), calibrated(windows(200, 230))
    first = with_errors(early.intervals(), [early])
    both = with_errors(late.intervals(), [late], first)
    assert len(both.errors) == 58 + 28
    assert both.apart == first.apart + 10
    assert (both.errors[:58] == first.errors).all()


def test_the_coverage_of_totals_is_that_of_their_bands():
    done, test = calibrated(windows(100, 500)), calibrated(windows(500, 900))
    own = with_errors(done.intervals(), [done])
    share = covered(own, test)
    assert 0.74 < share < 0.86
    assert covered(own, replace_errors(test, 3.0)) < 0.5
    assert covered(replace(own, errors=own.errors[:3]), test) is None, "4 windows support 80 %"


def replace_errors(calibration, factor):
    calibration.errors = calibration.errors * factor
    return calibration
