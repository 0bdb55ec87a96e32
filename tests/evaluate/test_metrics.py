import numpy as np
import pytest
import torch
from torch import Tensor

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.datasets import Batch, Windows
from forecaster.errors import DivergedError
from forecaster.evaluate import naive_mae, paired_interval, score
from forecaster.model import Informer, Task


def windows(rows: int = 150, seed: int = 0) -> Windows:
    generator = torch.Generator().manual_seed(seed)
    return Windows(
        torch.randn(rows, 3, generator=generator), torch.rand(rows, 2, generator=generator),
        past=12, horizon=5, first=40, last=rows, targets=(2, 0),
    )  # fmt: skip


def last_but(batch: Batch) -> Tensor:
    return batch.past[:, -2:-1, [2, 0]].expand(-1, 5, -1)


def test_score_equals_the_loops() -> None:
    data = windows()
    got = score(last_but, data)
    errors = np.empty((len(data), 5, 2))
    for i, start in enumerate(data.starts):
        for t in range(5):
            for k, column in enumerate((2, 0)):
                truth, forecast = (
                    data.values[start + 12 + t, column],
                    data.values[start + 10, column],
                )
                errors[i, t, k] = float(forecast) - float(truth)
    assert got.windows == len(data) == 150 - 40 - 5 + 1
    np.testing.assert_allclose(got.squared, (errors**2).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(got.absolute, np.abs(errors).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(got.by_window, (errors**2).mean(axis=(1, 2)), rtol=1e-6)
    assert got.mse == pytest.approx((errors**2).mean())
    assert got.mae == pytest.approx(np.abs(errors).mean())


@pytest.mark.parametrize("attention", ["full", "prob"])
def test_every_window_counts_once_at_any_batch_size(attention: str) -> None:
    torch.manual_seed(0)
    choice = AttentionChoice(attention, {"factor": 1} if attention == "prob" else {})
    model = Informer(
        Task(columns=3, targets=(2, 0), past=12, start=4, horizon=5, calendar=2, season=4),
        AttentionPlan(choice, choice), width=8, heads=2, feed_forward=8,
    ).eval()  # fmt: skip
    data, seen = windows(), []

    def forecast(batch: Batch) -> Tensor:
        seen.append(len(batch.past))
        return model(*batch[:3])

    scores = {size: score(forecast, data, size) for size in (1, 32, 2048, None)}
    assert sum(seen) == 4 * len(data)
    assert {got.windows for got in scores.values()} == {len(data)}
    for got in scores.values():
        assert got.mse == pytest.approx(scores[1].mse, abs=1e-6)
        assert got.mae == pytest.approx(scores[1].mae, abs=1e-6)
        np.testing.assert_allclose(got.by_window, scores[1].by_window, atol=1e-6)


def test_sums_do_not_lose_small_errors_among_many_large_ones() -> None:
    rows = 3000
    values = torch.ones(rows, 1)
    values[:10] = 1e4
    data = Windows(values, torch.zeros(rows, 1), 1, 1, 0, rows, (0,))
    got = score(lambda b: torch.zeros(len(b.past), 1, 1), data, batch=7)
    assert got.squared.dtype == np.float64
    assert got.mse == pytest.approx((9 * 1e8 + (rows - 10)) / (rows - 1), rel=1e-12)


def test_half_precision_forecasts_are_scored_in_full() -> None:
    data = windows()
    half = score(lambda b: b.target.half() + 0.25, data)
    assert half.mse == pytest.approx(0.0625, rel=1e-2)
    assert half.squared.dtype == np.float64


def test_a_forecast_that_is_not_finite_is_named() -> None:
    data = windows()

    def broken(batch: Batch) -> Tensor:
        forecast = batch.target.clone()
        forecast[batch.past[:, 0, 0] == data.values[data.starts[70], 0], 3, 1] = torch.nan
        return forecast

    with pytest.raises(DivergedError, match="window 71 of 106 is not finite"):
        score(broken, data)


def test_naive_mae_equals_the_loops_and_knows_no_constant_columns() -> None:
    values = np.random.default_rng(0).normal(size=(40, 3))
    values[:, 1] = 7.0
    got = naive_mae(values, 6)
    for column in (0, 2):
        changes = [abs(values[t, column] - values[t - 6, column]) for t in range(6, 40)]
        assert got[column] == pytest.approx(sum(changes) / 34)
    assert np.isnan(got[1])


def autoregressive(rng: np.random.Generator, n: int, memory: float) -> np.ndarray:
    noise, series = rng.normal(size=n + 100), np.zeros(n + 100)
    for t in range(1, n + 100):
        series[t] = memory * series[t - 1] + noise[t]
    return series[100:]


@pytest.mark.parametrize(("memory", "block"), [(0.0, 10), (0.5, 20), (0.9, 60)])
def test_the_interval_covers_the_truth_as_often_as_it_says(memory: float, block: int) -> None:
    rng = np.random.default_rng(0)
    hits, plain = 0, 0
    for draw in range(200):
        series = autoregressive(rng, 600, memory)
        low, high = paired_interval(series, block, draws=300, seed=draw)
        hits += low <= 0 <= high
        plain += abs(series.mean()) <= 1.96 * series.std() / np.sqrt(600)
    assert 0.90 <= hits / 200 <= 0.99
    assert memory == 0 or plain / 200 < 0.85  # what ignoring the overlap would have claimed


def test_the_interval_covers_with_few_blocks() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for draw in range(200):  # differences that overlap as windows do, three blocks
        sums = np.cumsum(rng.normal(size=400))
        low, high = paired_interval(sums[100:] - sums[:-100], 100, draws=300, seed=draw)
        hits += low <= 0 <= high
    assert hits / 200 >= 0.88


def test_the_interval_moves_with_the_differences_and_repeats_itself() -> None:
    series = autoregressive(np.random.default_rng(0), 500, 0.5)
    low, high = paired_interval(series, 50)
    assert low < series.mean() < high
    assert paired_interval(series, 50) == (low, high)
    assert paired_interval(series + 3, 50) == pytest.approx((low + 3, high + 3))
    assert paired_interval(2 * series, 50) == pytest.approx((2 * low, 2 * high))
    wide = paired_interval(series, 100)
    assert wide[1] - wide[0] > high - low  # fewer blocks say less


def test_no_difference_is_none() -> None:
    assert paired_interval(np.zeros(100), 10) == (0.0, 0.0)


@pytest.mark.parametrize(("n", "block"), [(10, 336), (671, 336), (1, 1)])
def test_too_few_windows_say_nothing(n: int, block: int) -> None:
    assert paired_interval(np.ones(n), block) == (-np.inf, np.inf)
