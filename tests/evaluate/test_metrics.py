from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.base.errors import DataError, DivergedError
from forecaster.datasets.dataset import Items
from forecaster.datasets.windows import Windows
from forecaster.evaluate import metrics
from forecaster.evaluate.metrics import (
    Verdict,
    interval_text,
    is_borderline,
    naive_mae,
    paired_interval,
    score,
)


def windows(rows=150, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Windows(
        torch.randn(rows, 3, generator=generator), torch.rand(rows, 2, generator=generator),
        past=12, horizon=5, first=40, last=rows, targets=(2, 0),
    )  # fmt: skip


def panel(missing=False, every=1):
    """Four items: the second is too short for a window, and the third begins late."""
    lengths, places = [40, 6, 30, 61], [5, 0, 31, 0]
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(sum(lengths), 3, generator=generator)
    if missing:
        values[torch.rand(values.shape, generator=generator) < 0.2] = torch.nan
        values[95:105] = torch.nan
    return Windows(
        values, torch.zeros(61, 1), past=12, horizon=5, first=20, last=58, targets=(2, 0),
        items=Items(tuple("abcd"), np.cumsum([0, *lengths]), np.array(places)), every=every,
    )  # fmt: skip


def test_sums_do_not_lose_small_errors_among_many_large_ones():
    rows = 3000
    values = torch.ones(rows, 1)
    values[:10] = 1e4
    data = Windows(values, torch.zeros(rows, 1), 1, 1, 0, rows, (0,))
    got = score(lambda b: torch.zeros(len(b.past), 1, 1), data, batch=7)
    assert got.squared.dtype == np.float64
    assert got.mse == pytest.approx((9 * 1e8 + (rows - 10)) / (rows - 1), rel=1e-12)


def test_a_forecast_that_is_not_finite_is_named():
    data = windows()
    row = data.origin(70)[1] - data.past

    def broken(batch):
        mark = batch.past[:, :1, 0] == data.values[row, 0]
        return batch.target.masked_fill(mark[..., None], torch.nan)

    with pytest.raises(DivergedError, match="window 71 of 106 is not finite"):
        score(broken, data)


def mean(values, *axes):
    """Over what is observed; nan where nothing is."""
    with np.errstate(invalid="ignore"):
        return np.nansum(values, axes) / (~np.isnan(values)).sum(axes)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("every", [1, 3])
def test_panels_and_missing_values_equal_the_definition(missing, every):
    data = panel(missing, every=every)
    got = score(lambda batch: torch.full_like(batch.target, 0.25), data, batch=7)
    item, row, steps = np.array([data.origin(number) for number in range(len(data))]).T
    values = data.values.double().numpy()[:, [2, 0]]
    errors = 0.25 - values[row[:, None] + np.arange(5)]
    squared, absolute = np.square(errors), np.abs(errors)
    by_window = mean(squared, 1, 2)
    assert missing == np.isnan(by_window).any()
    assert (got.observed is None) != missing
    np.testing.assert_allclose(got.squared, mean(squared, 0), rtol=1e-6)
    np.testing.assert_allclose(got.absolute, mean(absolute, 0), rtol=1e-6)
    np.testing.assert_allclose(got.by_window, by_window, rtol=1e-6)
    np.testing.assert_array_equal(got.steps, steps)
    assert (got.mse, got.mae) == pytest.approx((np.nanmean(squared), np.nanmean(absolute)))
    for number in range(4):
        own, found = item == number, got.by_item
        np.testing.assert_allclose(found["squared"][number], mean(squared[own], 0, 1), rtol=1e-6)
        np.testing.assert_allclose(found["absolute"][number], mean(absolute[own], 0, 1), rtol=1e-6)
        assert found["observed"][number].tolist() == (~np.isnan(errors[own])).sum((0, 1)).tolist()


def test_a_step_without_values_is_left_out_of_the_mean():
    values = torch.ones(20, 1)
    values[15:] = torch.nan
    data = Windows(values, torch.zeros(20, 1), 4, 3, 13, 20, (0,))
    got = score(lambda b: torch.zeros(len(b.past), 3, 1), data)
    assert got.observed[:, 0].tolist() == [2, 1, 0]
    np.testing.assert_array_equal(got.squared[:, 0], [1, 1, np.nan])
    np.testing.assert_array_equal(got.by_window, [1, 1, np.nan, np.nan, np.nan])
    assert (got.mse, got.mae) == (1, 1)
    with pytest.raises(DataError, match="all target values of the 2 windows are missing"):
        score(lambda b: torch.zeros(len(b.past), 3, 1), replace(data, first=16))


@pytest.mark.parametrize("chunk", [1, 60, 2**22])
def test_naive_mae_equals_the_definition(chunk, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", chunk)
    single = windows(60)
    values = single.values.double().numpy()[:50, [2, 0]]
    wanted = np.abs(values[6:] - values[:-6]).mean(axis=0)
    assert naive_mae(replace(single, last=50), 6) == pytest.approx(wanted)
    data = panel(missing=True)
    data.values[:40, 2] = 7.0
    got, values = naive_mae(data, 6), data.values.double().numpy()[:, [2, 0]]
    for item, place in enumerate(data.items.places):
        first, end = data.items.bounds[item : item + 2]
        own = values[first : min(end, first + data.last - place)]
        wanted = mean(np.abs(own[6:] - own[:-6]), 0)
        np.testing.assert_allclose(got[item], np.where(wanted > 0, wanted, np.nan), rtol=1e-6)
    assert np.isnan(got).sum() == 3, "two columns of a short item, one that never changes"


def autoregressive(rng, n, memory):
    noise, series = rng.normal(size=n + 100), np.zeros(n + 100)
    for t in range(1, n + 100):
        series[t] = memory * series[t - 1] + noise[t]
    return series[100:]


@pytest.mark.parametrize(("memory", "block"), [(0.0, 10), (0.5, 20), (0.9, 60), (None, 100)])
def test_the_interval_covers_the_truth_as_often_as_it_says(memory, block):
    """Without a memory: differences that overlap like windows, three blocks."""
    rng = np.random.default_rng(0)
    hits, plain = 0, 0
    for draw in range(200):
        if memory is None:
            sums = np.cumsum(rng.normal(size=400))
            series = sums[100:] - sums[:-100]
        else:
            series = autoregressive(rng, 600, memory)
        low, high = paired_interval(series, block, draws=300, seed=draw)
        hits += low <= 0 <= high
        plain += abs(series.mean()) <= 1.96 * series.std() / np.sqrt(len(series))
    assert (0.88 if memory is None else 0.90) <= hits / 200 <= 0.99
    assert memory == 0 or plain / 200 < 0.85  # what ignoring the overlap would have claimed


def test_the_interval_moves_with_the_differences_and_repeats_itself():
    series = autoregressive(np.random.default_rng(0), 500, 0.5)
    low, high = paired_interval(series, 50)
    assert low < series.mean() < high
    assert paired_interval(series, 50) == (low, high)
    assert paired_interval(series + 3, 50) == pytest.approx((low + 3, high + 3))
    assert paired_interval(2 * series, 50) == pytest.approx((2 * low, 2 * high))
    wide = paired_interval(series, 100)
    assert wide[1] - wide[0] > high - low  # fewer blocks are less informative


def test_a_difference_is_that_of_each_step_of_the_grid():
    """Windows of many items that begin together are one point in time, whatever their order."""
    rng = np.random.default_rng(0)
    line = autoregressive(rng, 500, 0.5)
    usual = paired_interval(line, 20)
    steps = np.arange(700, 1200)
    assert paired_interval(line, 20, steps) == pytest.approx(usual)
    order = rng.permutation(1500)
    items = np.stack([line - 1, line + 4, line])  # the offsets sum to 1 at each step
    got = paired_interval(items.ravel()[order], 20, np.tile(steps, 3)[order])
    assert got == pytest.approx((usual[0] + 1, usual[1] + 1))


def test_steps_without_a_difference_are_left_out():
    line = autoregressive(np.random.default_rng(0), 600, 0.5)
    holes = np.where(np.arange(600) % 3 == 0, np.nan, line)
    kept = line[~np.isnan(holes)]
    wanted = paired_interval(kept, 21)  # 30 steps hold 20, or 21
    assert paired_interval(holes, 30) == pytest.approx(wanted, rel=1e-9)
    wanted = paired_interval(line, 11)  # 1798 steps, of which 600 occur
    assert paired_interval(line, 30, 3 * np.arange(600)) == pytest.approx(wanted)


def test_too_few_windows_say_nothing():
    ones, nothing = np.ones(671), np.full(9, np.nan)
    for line, block in ((ones[:10], 336), (ones, 336), (ones[:1], 1), (nothing, 2)):
        assert paired_interval(line, block) == (-np.inf, np.inf)


def test_no_end_but_zero_is_printed_as_zero():
    for low, high, text in (
        (-0.010, -0.00004, "[-0.010000, -0.000040]"),
        (-0.00996, 0.25, "[-0.0100, +0.2500]"),
        (0.0, 0.00012, "[+0.00000, +0.00012]"),
        (-1.234e-12, 0.5, "[-1.2e-12, +5.0e-01]"),
        (None, None, "too few windows"),
        (-np.inf, np.inf, "too few windows"),
    ):
        assert interval_text(low, high) == text


def test_an_end_near_zero_is_borderline():
    for low, high, words in (
        (-0.010, -0.0004, "better, borderline"),
        (-0.010, -0.0006, "better"),
        (-0.010, 0.0004, "no measurable difference, borderline"),
        (-0.010, 0.010, "no measurable difference"),
        (0.0, 0.0, "no measurable difference"),
        (0.0004, 0.010, "worse, borderline"),
        (0.5, 0.6, "worse"),
        (-np.inf, np.inf, "too few windows"),
        (None, None, "too few windows"),
    ):
        assert Verdict.words(low, high) == words
        assert is_borderline(low, high) == words.endswith("borderline")
