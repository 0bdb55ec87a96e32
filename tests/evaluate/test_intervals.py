import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from forecaster.datasets.calendar import calendar_features, phase_weights
from forecaster.datasets.dataset import Items
from forecaster.datasets.scaling import Scaler
from forecaster.datasets.windows import Windows
from forecaster.evaluate import intervals as module
from forecaster.evaluate.intervals import Calibration, Coverage, fitted, seen_by, verdict
from forecaster.evaluate.metrics import score
from forecaster.forecast.intervals import Conditions, Intervals
from forecaster.forecast.quantiles import LEAST, Quantiles, deviation
from forecaster.model import ForecastModel, Task
from forecaster.record import BandScores

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
PAST, HORIZON, SCALER = 4, 3, Scaler((1.0, -2.0), (10.0, 0.5))
NOISE = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
TOLD = Conditions(1, (), np.ones(1), np.ones((1, 1)))


class Last(ForecastModel):
    """Forecasts the last value of the two targets, columns 2 and 0."""

    def __init__(self):
        super().__init__(Task(3, (2, 0), PAST, 1, HORIZON, 1, 2))
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, past, past_known, future_known, observed=None, item=None):
        return past[:, -1:, [2, 0]].expand(-1, HORIZON, -1)


def windows(first, last, values=NOISE):
    return Windows(values, torch.zeros(len(values), 1), PAST, HORIZON, first, last, (2, 0))


def calibrate(model, chosen, levels):
    return Calibration(model, chosen, levels).complete().intervals()


def counted(model, intervals, test, scaler=SCALER):
    coverage = Coverage(model.eval(), intervals, scaler)
    scored = score(lambda batch: coverage.take(batch, model(*batch.asked)), test)
    return scored, coverage.record(("OT", "load")).to_dict()


def test_offsets_about_a_point_by_hand():
    """Without a season in the calendar they follow step, column and recent deviation."""
    model, chosen = Last().eval(), windows(100, 160)
    own = calibrate(model, chosen, LEVELS)
    assert (own.windows, own.levels) == (58, LEVELS)
    batch = chosen.batch(torch.arange(58))
    past, known, *_ = seen_by(batch, model.task)
    recent = deviation(past, 2).numpy()
    np.testing.assert_allclose(own.conditions.usual, np.sqrt((recent**2).mean(axis=0)))
    factor = np.maximum(recent / own.conditions.usual, LEAST) ** 0.75
    widths = Quantiles(own).widths(past, known, None, None)
    np.testing.assert_allclose(widths, np.repeat(factor[:, None], 3, axis=1))
    with torch.no_grad():
        errors = (batch.target - model(*batch.inputs)).numpy() / factor[:, None]
    scale = np.sqrt((errors**2).mean(axis=0))
    np.testing.assert_allclose(own.scale, scale, rtol=1e-6)
    sizes = np.sort(np.abs(errors / scale).reshape(-1, 2), axis=0)
    student = stats.t(2 * 60 / HORIZON).ppf(0.9) / stats.norm.ppf(0.9)  # 60 rows
    wanted = sizes[139] * scale * student  # ceil(0.8 * 175) = 140
    np.testing.assert_allclose(own.offsets[..., 5], wanted, rtol=1e-5)
    np.testing.assert_allclose(own.offsets[..., 1], -own.offsets[..., 5], rtol=1e-12)
    assert (own.offsets[..., 3] == 0).all()


class Zero(ForecastModel):
    """Forecasts zero, for a day of hours."""

    def __init__(self):
        super().__init__(Task(1, (0,), 48, 24, 24, 4, 24, phase_weights("h", 24)))

    def forward(self, past, past_known, future_known, observed=None, item=None):
        return past.new_zeros(len(past), 24, 1)


def test_hours_that_are_harder_have_wider_intervals():
    values = torch.randn(9000, 1, generator=torch.Generator().manual_seed(0))
    hour = np.arange(9000) % 24
    noon = (hour >= 9) & (hour < 15)
    values[noon] *= 5
    times = pd.date_range("2026-01-01", periods=9000, freq="h")
    calendar = torch.from_numpy(calendar_features(times, "h"))
    chosen, test = (
        Windows(values, calendar, 48, 24, *rows, (0,)) for rows in ((48, 3000), (3000, 9000))
    )
    own = calibrate(Zero().eval(), chosen, LEVELS)
    batch = test.batch(torch.arange(len(test)))
    past, known, *_ = seen_by(batch, Zero().task)
    quantiles = Quantiles(own)(torch.zeros(batch.target.shape), past, known)
    ends = quantiles[:, :, 0, [LEVELS.index(0.1), LEVELS.index(0.9)]].numpy()
    truth, width = batch.target[..., 0].numpy(), ends[..., 1] - ends[..., 0]
    inside = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
    at = noon[3000 + np.arange(len(test))[:, None] + np.arange(24)]
    assert width[at].mean() / width[~at].mean() == pytest.approx(5, rel=0.25)
    for which in (at, ~at):
        assert inside[which].mean() == pytest.approx(0.8, abs=0.04)


def test_few_horizons_widen_the_intervals_and_no_errors_give_them_no_width():
    """The same errors, from one horizon or from a thousand: Student's t with two degrees."""
    errors, recent = np.random.default_rng(0).normal(size=(60, 24, 1)), np.ones((60, 1))
    parts = np.zeros((60, 24), dtype=int)
    few, many = (fitted(errors, recent, parts, TOLD, blocks, LEVELS) for blocks in (1, 1000))
    ratio = stats.t(2).ppf([0.9, 0.975]) / stats.t(2000).ppf([0.9, 0.975])
    np.testing.assert_allclose(few.offsets[..., 5:], many.offsets[..., 5:] * ratio)
    exact = fitted(0 * errors, 0 * recent, parts, TOLD, 20, LEVELS)
    assert (exact.levels, exact.offsets.any()) == (LEVELS, False)


def test_the_crps_of_normal_quantiles():
    """Quantiles of N(0, 1) against N(0, 1): the CRPS is 1 / sqrt(pi)."""
    levels = tuple(np.linspace(0.01, 0.99, 99).round(2).tolist())
    normal = stats.norm.ppf(levels)
    intervals = Intervals(levels, np.tile(normal, (1, 1, 1)), np.ones((1, 1)), 99)
    coverage = Coverage(Zero(), intervals, SCALER)
    truth = np.random.default_rng(0).normal(size=(20_000, 1, 1))
    quantiles = np.tile(normal, (20_000, 1, 1, 1))
    coverage.add(quantiles, 0 * truth, truth, truth < np.inf, np.ones(1))
    assert coverage.record(("x",))["crps"] == pytest.approx(np.pi**-0.5, rel=0.02)


def test_intervals_that_too_few_windows_back_are_not_reported():
    for last, levels in ((114, LEVELS[1:-1]), (105, LEVELS[2:-2])):  # 12 windows, and 3
        own = calibrate(Last().eval(), windows(100, last), LEVELS)
        _, got = counted(Last(), own, windows(600, 700))
        assert tuple(got["levels"]) == own.levels == levels
        assert (got["95"], got["80"] is None) == (None, last == 105)
    assert got["verdict"] == "Too few calibrating windows for 80 % intervals."


def test_a_coverage_that_is_off_is_said_in_words():
    def said(values=1000, **given):
        return verdict(BandScores.read({"by_step": {}, **given}), values)

    columns = {"a": {"coverage": 0.993}, "b": {"coverage": 0.54}, "c": {"coverage": 0.8}}
    for coverage, words in (
        (0.769, "TOO NARROW"), (0.771, "values;"), (0.829, "values;"), (0.831, "WIDER than"),
    ):  # fmt: skip
        found = said(coverage=coverage, columns=columns)
        assert found.startswith(f"The 80 % intervals cover {coverage:.1%} of the test values")
        assert words in found
        assert found.endswith("; by column from 54% (b) to 99% (a).")
        assert not re.search("NARROW|WIDER", said(12, coverage=coverage, columns=columns))
    assert "TOO NARROW" in said(12, coverage=0.56, columns=columns)
    flat = said(coverage=1.0, width=0.0, columns={"a": {"coverage": 1.0}})
    assert flat == "The 80 % intervals cover 100.0% of the test values.", "nothing is narrower"


def holed(panel):
    values = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    values[torch.rand(values.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = torch.nan
    values[300:, 2] = torch.nan  # nothing of the first target at the end
    items = Items(("a", "b"), np.array([0, 150, 400]), np.array([0, 30])) if panel else None
    grid = 280 if panel else 400
    return Windows(values, torch.zeros(grid, 1), PAST, HORIZON, 40, grid, (2, 0), items)


@pytest.mark.parametrize("test", [windows(600, 900), holed(False), holed(True)])
def test_figures_are_plain_means(test):
    """Over what is observed, and in units by the deviation of each series."""
    std = np.array([[10.0, 0.5], [2.0, 3.0]]) if test.items else np.array([10.0, 0.5])
    model = Last().eval()
    own = calibrate(model, windows(100, 600), LEVELS)
    scored, got = counted(model, own, test, scaler=Scaler(np.zeros_like(std), std))
    reference = score(lambda batch: model(*batch.inputs), test)
    np.testing.assert_array_equal(scored.by_window, reference.by_window)
    batch = test.batch(torch.arange(len(test)))
    with torch.no_grad():
        point = model(*batch.inputs).double()
    past, known, seen, item = seen_by(batch, model.task)
    quantiles = Quantiles(own)(point, past, known, seen, item=item).numpy()
    if batch.target_observed is not None:
        quantiles[~batch.target_observed] = np.nan
    error = batch.target.double().numpy()[..., None] - quantiles
    below, above, width = error[..., 1], error[..., 5], quantiles[..., 5] - quantiles[..., 1]
    inside = np.where(np.isnan(width), np.nan, (below >= 0) & (above <= 0))
    outside = np.maximum(-below, above).clip(0)
    by_step, columns = got["80"]["by_step"], got["80"]["columns"]
    assert got["80"]["coverage"] == pytest.approx(np.nanmean(inside))
    assert got["80"]["width"] == pytest.approx(np.nanmean(width))
    assert got["80"]["interval_score"] == pytest.approx(np.nanmean(width + 10 * outside))
    assert by_step["coverage"] == pytest.approx(np.nanmean(inside, axis=(0, 2)).tolist())
    assert by_step["width"] == pytest.approx(np.nanmean(width, axis=(0, 2)).tolist())
    units = width * (std[batch.item] if test.items else std)[..., None, :]
    for column, name in enumerate(("OT", "load")):
        assert columns[name]["coverage"] == pytest.approx(np.nanmean(inside[..., column]))
        assert columns[name]["width_units"] == pytest.approx(np.nanmean(units[..., column]))
    levels = np.array(LEVELS)
    losses = np.nanmean(np.maximum(levels * error, (levels - 1) * error), axis=(0, 1, 2))
    assert list(got["pinball"].values()) == pytest.approx(losses.tolist())
    assert got["80"]["coverage"] == pytest.approx(0.8, abs=0.06), "the same noise"
    assert got["95"]["coverage"] == pytest.approx(0.95, abs=0.03)
    assert got["calibration_windows"] == 498


@pytest.mark.parametrize("panel", [False, True])
def test_offsets_about_a_point_are_of_what_is_observed(panel):
    """The placeholder of a missing value, here 1000, makes no difference."""
    model, chosen = Last().eval(), holed(panel)
    own = calibrate(model, chosen, LEVELS)
    batch = chosen.batch(torch.arange(len(chosen)))
    past, *rest = seen_by(batch, model.task)
    widths = Quantiles(own).widths(past, *rest).numpy()
    other = torch.where(rest[1], past, 1000.0)
    np.testing.assert_array_equal(Quantiles(own).widths(other, *rest), widths)
    assert (own.of_series is None) is not panel
    with torch.no_grad():
        errors = (batch.target - model(*batch.inputs)).numpy() / widths
    errors[~batch.target_observed] = np.nan
    np.testing.assert_allclose(own.scale, np.sqrt(np.nanmean(errors**2, axis=0)), rtol=1e-6)
    inside = np.abs(errors) <= own.offsets[..., 5]
    assert inside[batch.target_observed].mean() == pytest.approx(0.8, abs=0.02)


def test_a_series_has_a_width_of_its_own_as_far_as_its_errors_show():
    random, item = np.random.default_rng(0), np.arange(200) % 2
    errors = random.normal(size=(200, 3, 1)) * np.where(item, 3.0, 1.0)[:, None, None]
    about = np.ones((200, 1)), np.zeros((200, 3), dtype=int), TOLD
    for horizons, ratio in ((10_000, 3.0), (4, 1.53)):
        own = fitted(errors, *about, horizons, LEVELS, items=(item, 3))
        quiet, loud, unseen = own.of_series[:, 0]
        assert loud / quiet == pytest.approx(ratio, rel=0.1)
        assert unseen == 1
        some = torch.zeros(2, 1, 1), torch.zeros(2, 3, 0), None, torch.tensor([1, 3])
        widths = Quantiles(own).widths(*some)
        np.testing.assert_allclose(widths[:, 0, 0] / widths[1, 0, 0], [loud, 1])
    scaled = own.rescaled(np.array([[2.0], [4], [2]])).of_series[:, 0]
    np.testing.assert_allclose(scaled, [quiet, 2 * loud, unseen])


def test_a_column_without_values_backs_no_level_and_has_no_coverage():
    without = replace(holed(False), first=310)
    own = calibrate(Last().eval(), without, LEVELS)
    assert own.levels == ()
    assert np.isinf(own.offsets[:, 0]).all()
    assert np.isfinite(own.offsets[:, 1, 3]).all()
    _, got = counted(Last(), calibrate(Last().eval(), windows(100, 600), LEVELS), without)
    columns = got["80"]["columns"]
    assert (columns["OT"]["coverage"], columns["load"]["coverage"]) == (None, got["80"]["coverage"])
    assert "(OT)" not in got["verdict"]


def test_many_windows_of_a_panel_are_thinned_evenly(monkeypatch):
    chosen = holed(True)
    monkeypatch.setattr(module, "MOST_ERRORS", 50 * HORIZON * 2)
    own = calibrate(Last().eval(), chosen, LEVELS)
    assert own.windows == 50
    index = torch.linspace(0, len(chosen) - 1, 50, dtype=torch.float64).round().long()
    past, _, observed, _ = seen_by(chosen.batch(index), Last().task)
    recent = deviation(past, 2, observed).numpy()
    np.testing.assert_allclose(own.conditions.usual, np.sqrt(np.nanmean(recent**2, axis=0)))
