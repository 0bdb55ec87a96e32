from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.base.errors import DataError, DivergedError
from forecaster.datasets.items import Items
from forecaster.datasets.windows import Windows
from forecaster.evaluate import (
    Verdict,
    interval_text,
    is_borderline,
    metrics,
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

    def broken(batch):
        forecast = batch.target.clone()
        forecast[batch.past[:, 0, 0] == data.values[data.origin(70)[1] - data.past, 0], 3, 1] = (
            torch.nan
        )
        return forecast

    with pytest.raises(DivergedError, match="window 71 of 106 is not finite"):
        score(broken, data)


def quarter(batch):
    return torch.full_like(batch.target, 0.25)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("every", [1, 3])
def test_panels_and_missing_values_equal_the_loops(missing, every):
    data = panel(missing, every=every)
    got = score(quarter, data, batch=7)
    squared, absolute, counts = np.zeros((3, 4, 5, 2))  # items, steps, columns
    by_window, steps = [], []
    for number in range(len(data)):
        item, row, step = data.origin(number)
        own = []
        for t in range(5):
            for k, column in enumerate((2, 0)):
                error = 0.25 - float(data.values[row + t, column])
                if not np.isnan(error):
                    squared[item, t, k] += error**2
                    absolute[item, t, k] += abs(error)
                    counts[item, t, k] += 1
                    own.append(error**2)
        by_window.append(np.mean(own) if own else np.nan)
        steps.append(step)
    assert missing == np.isnan(by_window).any()
    assert (got.observed is None) != missing
    np.testing.assert_allclose(got.squared, squared.sum(0) / counts.sum(0), rtol=1e-6)
    np.testing.assert_allclose(got.absolute, absolute.sum(0) / counts.sum(0), rtol=1e-6)
    np.testing.assert_allclose(got.by_window, by_window, rtol=1e-6)
    np.testing.assert_array_equal(got.steps, steps)
    assert got.mse == pytest.approx(squared.sum() / counts.sum())
    assert got.mae == pytest.approx(absolute.sum() / counts.sum())
    with np.errstate(invalid="ignore"):  # the second item is too short for a window
        np.testing.assert_allclose(got.by_item.squared, squared.sum(1) / counts.sum(1), rtol=1e-6)
        np.testing.assert_allclose(got.by_item.absolute, absolute.sum(1) / counts.sum(1), rtol=1e-6)
    np.testing.assert_array_equal(got.by_item.observed, counts.sum(1))


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
def test_naive_mae_equals_the_loops(chunk, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", chunk)
    single = windows(60)
    got = naive_mae(replace(single, last=50), 6)
    for k, column in enumerate((2, 0)):
        rows = single.values[:50, column].double().numpy()
        changes = [abs(rows[t] - rows[t - 6]) for t in range(6, 50)]
        assert got[k] == pytest.approx(sum(changes) / 44)
    data = panel(missing=True)
    values = data.values.double().numpy()
    values[:40, 2] = 7.0
    data = replace(data, values=torch.from_numpy(values).float())
    got = naive_mae(data, 6)
    assert got.shape == (4, 2)
    for item in range(4):
        first, last = data.items.bounds[item], data.items.bounds[item + 1]
        last = min(last, first + data.last - data.items.places[item])
        for k, column in enumerate((2, 0)):
            changes = [
                abs(values[t, column] - values[t - 6, column]) for t in range(first + 6, last)
            ]
            changes = [change for change in changes if not np.isnan(change)]
            if changes and sum(changes):
                assert got[item, k] == pytest.approx(sum(changes) / len(changes))
            else:
                assert np.isnan(got[item, k])
    assert np.isnan(got).sum() == 3, "two columns of a short item, one that never changes"


def autoregressive(rng, n, memory):
    noise, series = rng.normal(size=n + 100), np.zeros(n + 100)
    for t in range(1, n + 100):
        series[t] = memory * series[t - 1] + noise[t]
    return series[100:]


@pytest.mark.parametrize(("memory", "block"), [(0.0, 10), (0.5, 20), (0.9, 60)])
def test_the_interval_covers_the_truth_as_often_as_it_says(memory, block):
    rng = np.random.default_rng(0)
    hits, plain = 0, 0
    for draw in range(200):
        series = autoregressive(rng, 600, memory)
        low, high = paired_interval(series, block, draws=300, seed=draw)
        hits += low <= 0 <= high
        plain += abs(series.mean()) <= 1.96 * series.std() / np.sqrt(600)
    assert 0.90 <= hits / 200 <= 0.99
    assert memory == 0 or plain / 200 < 0.85  # what ignoring the overlap would have claimed


def test_the_interval_covers_with_few_blocks():
    rng = np.random.default_rng(1)
    hits = 0
    for draw in range(200):  # differences that overlap like windows, three blocks
        sums = np.cumsum(rng.normal(size=400))
        low, high = paired_interval(sums[100:] - sums[:-100], 100, draws=300, seed=draw)
        hits += low <= 0 <= high
    assert hits / 200 >= 0.88


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


def test_differences_that_are_nan_are_left_out():
    line = autoregressive(np.random.default_rng(0), 600, 0.5)
    holes = line.copy()
    holes[::3] = np.nan
    got = paired_interval(holes, 30)
    kept = line[~np.isnan(holes)]
    assert got == pytest.approx(paired_interval(kept, 21), rel=1e-9)  # 30 steps hold 20, or 21
    assert paired_interval(np.full(9, np.nan), 2) == (-np.inf, np.inf)


def test_every_third_window_is_a_block_of_a_third():
    line = autoregressive(np.random.default_rng(0), 600, 0.5)
    got = paired_interval(line, 30, 3 * np.arange(600))
    assert got == pytest.approx(paired_interval(line, 11))  # 1798 steps, of which 600 occur


@pytest.mark.parametrize(("n", "block"), [(10, 336), (671, 336), (1, 1)])
def test_too_few_windows_say_nothing(n, block):
    assert paired_interval(np.ones(n), block) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.1, 0.2, "[-0.1000, +0.2000]"),
        (-0.010, -0.00004, "[-0.010000, -0.000040]"),
        (-0.00996, 0.25, "[-0.0100, +0.2500]"),
        (0.0, 0.0, "[+0.0000, +0.0000]"),
        (0.0, 0.00012, "[+0.00000, +0.00012]"),
        (-1.234e-12, 0.5, "[-1.2e-12, +5.0e-01]"),
        (-12.0, 340.5, "[-12.0000, +340.5000]"),
        (None, None, "too few windows"),
        (-np.inf, np.inf, "too few windows"),
    ],
)
def test_no_end_but_zero_is_printed_as_zero(low, high, text):
    assert interval_text(low, high) == text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.010, -0.0004, "better, borderline"),
        (-0.010, -0.0006, "better"),
        (-0.010, 0.0004, "no measurable difference, borderline"),
        (-0.010, 0.010, "no measurable difference"),
        (-0.010, 0.0, "no measurable difference, borderline"),
        (0.0, 0.0, "no measurable difference"),
        (0.0004, 0.010, "worse, borderline"),
        (0.5, 0.6, "worse"),
        (-np.inf, np.inf, "too few windows"),
        (None, None, "too few windows"),
    ],
)
def test_an_end_near_zero_is_borderline(low, high, words):
    assert Verdict.words(low, high) == words
    assert is_borderline(low, high) == words.endswith("borderline")
    if low is not None and high is not None:
        assert is_borderline(-high, -low) == is_borderline(low, high)
