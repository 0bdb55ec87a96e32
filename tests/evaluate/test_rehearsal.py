"""The rehearsal: what it may know, and that its intervals hold what they promise."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.config.run_config import load
from forecaster.evaluate import rehearsal
from forecaster.evaluate.intervals import Coverage
from forecaster.evaluate.metrics import score
from forecaster.parts import Blend, fit_forms, weigh
from forecaster.plan.data import take_frame
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits


def splits(frame, *sets):
    loaded = load("own", ["data.name=frame.csv", "window.horizon=12", *sets])
    return make_splits(make_plan(*take_frame(loaded, frame, print)))


def measured(splits, model, intervals):
    coverage = Coverage(model, intervals, splits.schema.target_scaler)
    score(lambda batch: coverage.take(batch, model(*batch.asked)), splits.test("cpu"))
    return coverage.record(splits.schema.targets)


def months(series, seed, rows=96):
    """Wandering series with a season: what comes is as uncertain as what came."""
    r, k = np.random.default_rng(seed), np.arange(rows)
    frames = []
    for number in range(series):
        y = 100 + 10 * np.sin(2 * np.pi * k / 12) + r.normal(0, 2, rows).cumsum()
        when = pd.date_range("2016-01-01", periods=rows, freq="MS")
        frames.append(pd.DataFrame({"shop": f"s{number}", "when": when, "y": y}))
    return pd.concat(frames).drop(columns=["shop"] if series == 1 else [])


def blend_of(own):
    """The closed forms alone, weighed as a run weighs them."""
    fold = own.fold("cpu")
    forms = [part for part in fit_forms(fold)[0] if part.weighed]
    return Blend.weighed(forms, weigh(forms, fold.choose)).eval()


@pytest.mark.parametrize("series", [1, 8])
def test_nothing_of_the_test_split_calibrates(series):
    own = splits(months(series, 0))
    assert own.plan.uncalibrated
    found, words = rehearsal.rehearse(own, blend_of(own), "cpu")
    assert words.startswith(f"from a rehearsal on {found.windows:,} windows")
    values = own.plan.series.values.copy()
    values.reshape(series, 96, -1)[:, own.plan.borders.validation :] += 1e6
    plan = replace(own.plan, series=replace(own.plan.series, values=values))
    other = Splits(plan, own.schema)
    again, _ = rehearsal.rehearse(other, blend_of(own), "cpu")
    np.testing.assert_array_equal(again.offsets, found.offsets)


def test_a_block_is_forecast_from_the_rows_before_it():
    own = splits(months(1, 1))
    model = blend_of(own)
    blocks = rehearsal._blocks(own, model.members, "cpu")
    firsts = [windows.first for _, windows in blocks]
    assert firsts == sorted(set(firsts))
    assert len(blocks) == rehearsal.BLOCKS
    own.plan.series.values[firsts[-1] :] += 50.0  # the scaler is that of the rows before
    again = rehearsal._blocks(own, model.members, "cpu")
    for part, same in zip(blocks[-1][0], again[-1][0], strict=True):
        kept, found = part.state_dict(), same.state_dict()
        assert all(torch.equal(kept[name], found[name]) for name in kept)
    model.members = []
    assert rehearsal.rehearse(own, model, "cpu") is None, "without closed forms"


def test_the_intervals_of_short_series_hold_what_they_promise():
    """On average over series whose future is like their past."""
    covered = []
    for seed in range(12):
        own = splits(months(8, seed, rows=72))
        model = blend_of(own)
        found, _ = rehearsal.rehearse(own, model, "cpu")
        covered.append(measured(own, model, found).band("80")["coverage"])
    assert 0.72 < np.mean(covered) < 0.88
