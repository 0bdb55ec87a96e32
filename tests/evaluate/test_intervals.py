from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forecaster.datasets import Items, Scaler, Windows
from forecaster.errors import UsageError
from forecaster.evaluate import Coverage, calibrate, score
from forecaster.evaluate import intervals as module
from forecaster.evaluate.intervals import RATE, Online, verdict
from forecaster.intervals import Intervals
from forecaster.model import ForecastModel, QuantileSpread, Task

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
PAST, HORIZON, SCALER = 4, 3, Scaler((1.0, -2.0), (10.0, 0.5))


class Last(ForecastModel):
    """Forecasts the last value of the two targets, columns 2 and 0."""

    def __init__(self, head: bool = False) -> None:
        super().__init__(Task(3, (2, 0), PAST, 1, HORIZON, 1, 2))
        self.unused = nn.Parameter(torch.zeros(1))
        if head:
            self.spread = QuantileSpread(LEVELS, HORIZON, 2)

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        return past[:, -1:, [2, 0]].expand(-1, HORIZON, -1)


def windows(first: int, last: int, values: Tensor | None = None) -> Windows:
    if values is None:
        values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    return Windows(values, torch.zeros(len(values), 1), PAST, HORIZON, first, last, (2, 0))


def counted(model: ForecastModel, intervals: Intervals, test: Windows, online: bool = False) -> Any:
    coverage = Coverage(model.eval(), intervals, SCALER, online=online)
    return score(coverage.forecast, test), coverage.to_dict(("OT", "load"))


@pytest.mark.parametrize("head", [False, True])
def test_offsets_are_those_of_each_step_and_column(head: bool) -> None:
    model, chosen = Last(head).eval(), windows(100, 160)
    own = calibrate(model, chosen, LEVELS)
    assert own.windows == len(chosen) == 58
    assert own.levels == LEVELS
    batch = chosen.batch(torch.arange(58))
    with torch.no_grad():
        errors = (batch.target[..., None] - model.quantiles(*batch.inputs)).numpy()
    for step in range(HORIZON):
        for column in range(2):
            alone = np.sort(errors[:, step, column], axis=0)
            upper, lower = alone[53, -2 if head else 0], alone[4, 1 if head else 0]
            assert own.offsets[step, column, 5] == pytest.approx(upper)  # ceil(0.9 * 59) = 54
            assert own.offsets[step, column, 1] == pytest.approx(lower)  # floor(0.1 * 59) = 5
            middle = errors[:, step, column, model.middle]
            assert own.scale[step, column] == pytest.approx(np.sqrt(np.mean(middle**2)))


def test_long_horizons_are_calibrated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = calibrate(Last(True).eval(), windows(100, 160), LEVELS)
    monkeypatch.setattr(module, "MOST_ERRORS", 58 * 2 * len(LEVELS) * 2)
    parts = calibrate(Last(True).eval(), windows(100, 160), LEVELS)
    np.testing.assert_array_equal(parts.offsets, whole.offsets)
    np.testing.assert_array_equal(parts.scale, whole.scale)


def test_rows_after_the_calibrating_ones_change_nothing() -> None:
    values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    noisy = values.clone()
    noisy[160:] = 1000.0
    one, other = (calibrate(Last(), windows(100, 160, v), LEVELS) for v in (values, noisy))
    assert one.offsets.tobytes() == other.offsets.tobytes()
    assert one.scale.tobytes() == other.scale.tobytes()


@pytest.mark.parametrize("head", [False, True])
def test_figures_are_plain_means(head: bool) -> None:
    model, test = Last(head).eval(), windows(600, 900)
    own = calibrate(model, windows(100, 600), LEVELS)
    scored, got = counted(model, own, test)
    reference = score(lambda batch: model(*batch.inputs), test)
    np.testing.assert_array_equal(scored.by_window, reference.by_window)
    batch = test.batch(torch.arange(len(test)))
    with torch.no_grad():
        paths = model.quantiles(*batch.inputs).double().numpy()
    quantiles = np.sort(paths + own.offsets, axis=-1)
    truth = batch.target.double().numpy()[..., None]
    inside = (quantiles[..., 1] <= truth[..., 0]) & (truth[..., 0] <= quantiles[..., 5])
    width = quantiles[..., 5] - quantiles[..., 1]
    assert got["80"]["coverage"] == pytest.approx(inside.mean())
    assert got["80"]["width"] == pytest.approx(width.mean())
    assert got["80"]["by_step"]["coverage"] == pytest.approx(inside.mean(axis=(0, 2)).tolist())
    assert got["80"]["by_step"]["width"] == pytest.approx(width.mean(axis=(0, 2)).tolist())
    assert got["80"]["columns"]["load"]["coverage"] == pytest.approx(inside[..., 1].mean())
    assert got["80"]["columns"]["load"]["width_units"] == pytest.approx(0.5 * width[..., 1].mean())
    error, levels = truth - quantiles, np.array(LEVELS)
    losses = np.maximum(levels * error, (levels - 1) * error).mean(axis=(0, 1, 2))
    assert list(got["pinball"].values()) == pytest.approx(losses.tolist())
    assert got["80"]["coverage"] == pytest.approx(0.8, abs=0.06), "the same noise"
    assert got["95"]["coverage"] == pytest.approx(0.95, abs=0.03)
    assert (got["calibration_windows"], got["online"]) == (498, None)


def test_the_crps_of_normal_quantiles() -> None:
    """Quantiles of N(0, 1) against N(0, 1): the CRPS is 1 / sqrt(pi)."""
    levels = tuple(np.linspace(0.01, 0.99, 99).round(2).tolist())
    normal = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64)).numpy()
    own = Intervals(levels, np.tile(normal, (1, 1, 1)), np.ones((1, 1)), 99)
    tally = module.Tally(own)
    truth = np.random.default_rng(0).normal(size=(20_000, 1, 1, 1))
    seen = np.ones((20_000, 1, 1), dtype=bool)
    tally.add(np.broadcast_to(normal, (20_000, 1, 1, 99)), truth, seen, np.ones(1))
    crps = tally.to_dict(("x",), "")["crps"]
    assert crps == pytest.approx(np.pi**-0.5, rel=0.02)


def test_intervals_that_too_few_windows_back_are_not_reported() -> None:
    own = calibrate(Last().eval(), windows(100, 114), LEVELS)  # 12 windows
    assert own.levels == (0.1, 0.25, 0.5, 0.75, 0.9)
    _, got = counted(Last(), own, windows(600, 700))
    assert got["95"] is None
    assert got["80"] is not None
    few = calibrate(Last().eval(), windows(100, 105), LEVELS)  # 3 windows
    _, got = counted(Last(), few, windows(600, 700))
    assert (got["levels"], got["80"]) == ([0.25, 0.5, 0.75], None)
    assert got["verdict"] == "Too few calibrating windows for 80 % intervals."


@pytest.mark.parametrize(
    ("coverage", "words"),
    [(0.769, "TOO NARROW"), (0.771, "values;"), (0.829, "values;"), (0.831, "WIDER than")],
)
def test_a_coverage_that_is_off_is_said_in_words(coverage: float, words: str) -> None:
    columns = {"a": {"coverage": 0.993}, "b": {"coverage": 0.54}, "c": {"coverage": 0.8}}
    said = verdict({"coverage": coverage, "columns": columns}, " online")
    assert said.startswith(f"The 80 % online intervals cover {coverage:.1%} of the test values")
    assert words in said
    assert said.endswith("; by column from 54% (b) to 99% (a).")
    alone = verdict({"coverage": 0.8, "columns": {"a": {"coverage": 0.8}}}, "")
    assert alone == "The 80 % intervals cover 80.0% of the test values."


def holed(panel: bool) -> Windows:
    values = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    values[torch.rand(values.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = torch.nan
    values[300:, 2] = torch.nan  # nothing of the first target at the end
    items = Items(("a", "b"), np.array([0, 150, 400]), np.array([0, 30])) if panel else None
    grid = 280 if panel else 400
    return Windows(values, torch.zeros(grid, 1), PAST, HORIZON, 40, grid, (2, 0), items)


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("panel", [False, True])
def test_offsets_are_of_what_is_observed(head: bool, panel: bool) -> None:
    model, chosen = Last(head).eval(), holed(panel)
    own = calibrate(model, chosen, LEVELS)
    assert own.windows == len(chosen)
    batch = chosen.batch(torch.arange(len(chosen)))
    with torch.no_grad():
        errors = (batch.target[..., None] - model.quantiles(*batch.inputs)).numpy()
    seen = batch.target_observed
    assert seen is not None
    for step in range(HORIZON):
        for column in range(2):
            alone = np.sort(errors[seen[:, step, column].numpy(), step, column], axis=0)
            n = len(alone)
            upper = alone[int(np.ceil(0.9 * (n + 1))) - 1, -2 if head else 0]
            lower = alone[int(np.floor(0.1 * (n + 1))) - 1, 1 if head else 0]
            assert own.offsets[step, column, 5] == pytest.approx(upper)
            assert own.offsets[step, column, 1] == pytest.approx(lower)
            middle = alone[:, model.middle]
            assert own.scale[step, column] == pytest.approx(np.sqrt(np.mean(middle**2)))


def test_a_column_without_values_backs_no_level() -> None:
    chosen = replace(holed(False), first=310)
    own = calibrate(Last().eval(), chosen, LEVELS)
    assert own.levels == ()
    assert np.isinf(own.offsets[:, 0]).all()
    assert np.isfinite(own.offsets[:, 1, 3]).all()


def test_many_windows_of_a_panel_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = holed(True)
    monkeypatch.setattr(module, "MOST_ERRORS", 50 * HORIZON * 2)
    own = calibrate(Last().eval(), chosen, LEVELS)
    assert own.windows == 50
    index = torch.linspace(0, len(chosen) - 1, 50, dtype=torch.float64).round().long()
    batch = chosen.batch(index)
    assert batch.target_observed is not None
    seen = batch.target_observed[:, 1, 1]
    error = (batch.target[:, 1, 1] - batch.past[:, -1, 0])[seen].double().square()
    assert own.scale[1, 1] == pytest.approx(float(error.mean().sqrt()))


@pytest.mark.parametrize("panel", [False, True])
def test_coverage_counts_what_is_observed(panel: bool) -> None:
    std = np.array([[10.0, 0.5], [2.0, 3.0]]) if panel else np.array([10.0, 0.5])
    model, test = Last().eval(), holed(panel)
    own = calibrate(model, windows(100, 600), LEVELS)
    coverage = Coverage(model, own, Scaler(np.zeros_like(std), std), online=False)
    score(coverage.forecast, test)
    got = coverage.to_dict(("OT", "load"))
    inside, width, units = ([[], []] for _ in range(3))
    for number in range(len(test)):
        batch = test.batch(torch.tensor([number]))
        assert batch.target_observed is not None
        item = int(batch.item[0]) if batch.item is not None else 0
        for step in range(HORIZON):
            for column, place in enumerate((2, 0)):
                if batch.target_observed[0, step, column]:
                    path = float(batch.past[0, -1, place])
                    low, high = path + own.offsets[step, column, [1, 5]]
                    inside[column].append(low <= batch.target[0, step, column] <= high)
                    width[column].append(high - low)
                    units[column].append((high - low) * np.atleast_2d(std)[item, column])
    assert got["80"]["coverage"] == pytest.approx(np.mean(inside[0] + inside[1]))
    assert got["80"]["width"] == pytest.approx(np.mean(width[0] + width[1]))
    for column, name in enumerate(("OT", "load")):
        shown = got["80"]["columns"][name]
        assert shown["coverage"] == pytest.approx(np.mean(inside[column]))
        assert shown["width_units"] == pytest.approx(np.mean(units[column]))


def test_a_column_that_is_never_observed_has_no_coverage() -> None:
    own = calibrate(Last().eval(), windows(100, 600), LEVELS)
    _, got = counted(Last(), own, replace(holed(False), first=310))
    assert got["80"]["columns"]["OT"]["coverage"] is None
    assert got["80"]["coverage"] == got["80"]["columns"]["load"]["coverage"]
    assert "(OT)" not in got["verdict"]


class TestOnline:
    def run(self, values: Tensor, test: Windows) -> np.ndarray:
        own = calibrate(Last().eval(), windows(100, 300, values), LEVELS)
        online, batch = Online(own), test.batch(torch.arange(len(test)))
        with torch.no_grad():
            paths = Last().quantiles(*batch.inputs).numpy()
        truth, seen = batch.target[..., None].numpy(), np.ones((HORIZON, 2), dtype=bool)
        return np.stack([online.step(*each, seen) for each in zip(paths, truth, strict=True)])

    def test_a_forecast_knows_the_rows_before_it_alone(self) -> None:
        values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        noisy = values.clone()
        noisy[450:] *= 100
        one, other = (self.run(v, windows(400, 500, v)) for v in (values, noisy))
        np.testing.assert_array_equal(one[:51], other[:51])  # the 51st begins at row 450
        # the next one knows row 450, which is the last value it repeats: the widths tell
        widths = [np.diff(quantiles[51], axis=-1) for quantiles in (one, other)]
        assert not np.allclose(*widths)

    def test_the_offsets_by_hand(self) -> None:
        values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        own = calibrate(Last().eval(), windows(100, 300, values), LEVELS)
        online = Online(own)
        assert np.array_equal(online.offsets, own.offsets)
        zero, high = np.zeros((HORIZON, 2, 1)), np.full((HORIZON, 2, 1), 1e6)
        seen = np.ones((HORIZON, 2), dtype=bool)
        first = online.step(zero, high, seen)
        np.testing.assert_array_equal(first, own.offsets)
        online.step(zero, high, seen)  # knows the first step of the first window
        moved = (online.offsets - own.offsets) / own.scale[..., None]
        np.testing.assert_allclose(moved[0], RATE * np.tile(LEVELS, (2, 1)))
        assert not moved[1:].any()
        online.step(zero, high, seen)  # and now the first of the second and the second of the first
        moved = (online.offsets - own.offsets) / own.scale[..., None]
        np.testing.assert_allclose(moved[:, 0, 0], [2 * RATE * 0.025, RATE * 0.025, 0])

    def test_missing_values_teach_nothing(self) -> None:
        values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        online = Online(calibrate(Last().eval(), windows(100, 300, values), LEVELS))
        start = online.offsets.copy()
        zero, high = np.zeros((HORIZON, 2, 1)), np.full((HORIZON, 2, 1), 1e6)
        seen = np.tile([False, True], (HORIZON, 1))
        for _ in range(5):
            online.step(zero, high, seen)
        assert np.array_equal(online.offsets[:, 0], start[:, 0])
        assert (online.offsets[:, 1] > start[:, 1]).all()

    def test_a_panel_has_none(self) -> None:
        own = Intervals((0.1, 0.9), np.zeros((HORIZON, 2, 2)), np.ones((HORIZON, 2)), 99)
        with pytest.raises(UsageError, match=r"online=true follows .* a panel of 5 series"):
            Coverage(Last(), own, Scaler(np.zeros((5, 2)), np.ones((5, 2))), online=True)

    def test_late_steps_move_slowly(self) -> None:
        """A large step that is learned of late swings ever wider: at most 1 / h for step h."""
        own = Intervals((0.1, 0.9), np.zeros((40, 1, 2)), np.full((40, 1), 3.0), 99)
        rate = Online(own).rate[:, 0, 0]
        np.testing.assert_allclose(rate[:20], 3 * RATE)
        np.testing.assert_allclose(rate[20:], 3 / np.arange(21, 41))

    def test_it_finds_its_coverage_after_the_noise_has_grown(self) -> None:
        values = torch.randn(6000, 3, generator=torch.Generator().manual_seed(0))
        values[400:] *= 3
        test = windows(400, 6000, values)
        own = calibrate(Last().eval(), windows(100, 300, values), LEVELS)
        _, got = counted(Last(), own, test, online=True)
        assert got["80"]["coverage"] < 0.5
        assert got["online"]["80"]["coverage"] == pytest.approx(0.8, abs=0.03)
        assert "TOO NARROW" in got["verdict"]
        assert got["online"]["verdict"].startswith("The 80 % online intervals cover")
