from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecaster.config.run_config import load
from forecaster.evaluate.intervals import SHARES, Coverage, sides
from forecaster.evaluate.judge import (
    example,
    find_intervals,
    forecast_with,
    judge,
    picked,
    validate,
)
from forecaster.evaluate.metrics import score
from forecaster.forecast.unusual import figures
from forecaster.parts import Blend, Network
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.run.train import make_blend
from tests import small

pytestmark = pytest.mark.usefixtures("home")


def test_one_window_backs_the_median_alone():
    splits = small.splits(horizon=30)
    assert splits.plan.uncalibrated == ""
    alone = Blend.alone(Network(splits.build_model().eval()))
    found, words, _ = find_intervals(splits, alone, "cpu")
    assert found.levels == (0.5,)
    assert "the 1 validation windows" in words
    splits = small.splits("intervals.levels=[0.1, 0.9]", horizon=30)
    found, words, _ = find_intervals(splits, alone, "cpu")
    assert (found, words) == (None, "none: of windows that calibrate, 1 of validation is too few")


def test_one_pass_over_validation_scores_and_calibrates():
    splits = small.splits()
    network = splits.build_model().eval()
    model = Blend.alone(Network(network))
    windows, asked = splits.validation("cpu"), []
    hook = network.register_forward_hook(lambda module, inputs, output: asked.append(len(output)))
    found, intervals, words, _ = validate(splits, model, "cpu")
    hook.remove()
    assert sum(asked) == len(windows)
    own, own_words, _ = find_intervals(splits, model, "cpu")
    assert words == own_words
    np.testing.assert_allclose(intervals.offsets, own.offsets, rtol=1e-5)
    np.testing.assert_allclose(intervals.scale, own.scale, rtol=1e-5)
    assert found.mse == pytest.approx(score(forecast_with(model), windows).mse, rel=1e-6)


def test_what_is_served_is_calibrated_again_with_the_errors_that_were_judged():
    """The record keeps what the judged intervals covered, and says that others are served."""
    splits = small.splits()
    model = Blend.alone(Network(splits.build_model().eval()))
    narrow, _, done = find_intervals(splits, model, "cpu")
    narrow = replace(narrow, offsets=narrow.offsets / 3)
    before = judge(splits, model, "cpu", narrow)
    after = judge(splits, model, "cpu", narrow, done=done)
    assert before.recalibrated is None
    covered = before.backtest.band("80")["coverage"]
    assert covered == after.backtest.band("80")["coverage"] < 0.6
    test, scaler = splits.test("cpu"), splits.schema.target_scaler
    since = Coverage(model, after.recalibrated, scaler)
    score(lambda batch: since.take(batch, model(*batch.asked)), test)
    assert since.record(splits.schema.targets).band("80")["coverage"] == pytest.approx(0.8, abs=0.1)
    assert "too narrow" in before.backtest.intervals.verdict.lower()
    assert "served were calibrated again" in after.backtest.intervals.verdict
    assert after.headline.endswith("of the values, and was calibrated again since.")
    levels = sides(SHARES[0])
    assert [each.code for each in figures(before.backtest, levels)][-1:] == ["coverage"]
    assert "coverage" not in [each.code for each in figures(after.backtest, levels)]


def test_a_few_windows_of_test_calibrate_what_was_rehearsed():
    """Where validation is too short to calibrate, the test windows do so alone."""
    splits = small.splits(horizon=30)
    tried, served, _ = make_blend(splits, splits.build_model(), "cpu", print)
    intervals, words, done = find_intervals(splits, served, "cpu")
    assert words.startswith("from a rehearsal")
    assert done == []
    found = judge(splits, served, "cpu", intervals, tried, done).recalibrated
    assert found.windows == len(splits.test("cpu"))


def test_examples_are_of_what_was_observed():
    errors = np.array([2.0, np.nan, 5.0, 1.0, 3.0, 4.0])
    assert picked(errors) == {"best": 3, "median": 4, "worst": 2}


def test_an_example_has_the_rows_of_its_series_alone(tmp_path):
    days = pd.date_range("2024-01-01", periods=90)
    parts = [
        pd.DataFrame({"shop": shop, "day": days[-rows:], "sold": 100.0 * place + np.arange(rows)})
        for place, (shop, rows) in enumerate({"a": 40, "b": 20, "c": 90}.items())
    ]
    pd.concat(parts).to_csv(tmp_path / "shops.csv", index=False)
    flags = {"data": str(tmp_path / "shops.csv"), "horizon": 10, "lookback": 8, "season": "8"}
    loaded = load(None, ["window.reach=28"], flags, {})
    splits = make_splits(make_plan(*find_data(loaded, lambda said: None)))
    windows, model = splits.test("cpu"), Blend.alone(Network(splits.build_model().eval()))
    found, shown = score(forecast_with(model), windows), {}
    for number in range(len(windows)):
        item, row, step = windows.origin(number)
        made = example(splits, model, None, found, number, "cpu")
        assert made.mse == found.by_window[number]
        assert made.title.endswith(f"{number + 1} of {len(windows)}, series {'abc'[item]}")
        (drawn,) = made.targets.values()
        assert [*drawn.truth] == [*splits.plan.series.values[row : row + 10, 0]]
        assert (len(drawn.forecast), drawn.low, made.share) == (10, (), "")
        before = len(drawn.history)
        assert [*drawn.history] == [drawn.truth[0] - ago for ago in range(before, 0, -1)]
        assert pd.Timestamp(made.begin) == splits.plan.series.times[step - before]
        shown.setdefault("abc"[item], []).append(before)
    assert set(shown["c"]) == {16}
    assert max(shown["b"]) == 10, "what there is"
