"""Rolling origins on a small series: what is known at a cut-off, and the results there."""

import json

import numpy as np
import pytest
import torch

from forecaster.base.errors import UsageError
from forecaster.config.run_config import load
from forecaster.datasets.card import Borders
from forecaster.evaluate.cutoffs import COVERED, cut, roll, text
from forecaster.evaluate.judge import find_intervals, judge
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.run.train import make_blend, train_anew
from tests import small
from tests.run.test_train_traps import TEST, TRAIN, VALIDATION, splits, values
from tests.test_own_files import SMALL, long

BLOCK = (TEST - VALIDATION) // 5
LAST_OF_3 = 373  # the start of the last of three blocks


def nothing(said):
    pass


def untrained(posed):
    """Its network with initial weights, weighed with the closed forms."""
    tried, served, _ = make_blend(posed, posed.build_model(), "cpu", nothing)
    return tried, served


def rolled(posed, count=5):
    made = untrained(posed)
    return roll(posed, count, lambda at: made, "cpu", nothing)


@pytest.fixture(scope="module")
def posed():
    return splits(values())


@pytest.fixture(scope="module")
def rolling(posed):
    return rolled(posed)


class TestCut:
    def test_what_trains_stops_calibrates_and_tests_at_each(self, posed):
        length = VALIDATION - TRAIN
        for number, at in enumerate(cut(posed, 5)):
            start = VALIDATION + number * BLOCK
            train, half = start - length, start - length // 2
            stop, rest, test = at.stopping("cpu"), at.calibrating("cpu"), at.test("cpu")
            assert at.plan.borders == Borders(train, start, start + BLOCK)
            assert at.training("cpu").last == train
            assert (stop.first, stop.last) == (train, half)
            assert (rest.first, rest.last) == (half, start)
            assert (test.first, test.last) == (start, start + BLOCK)
            assert at.schema is posed.schema, "one scaling for all"

    def test_more_than_fit_are_refused_with_the_arithmetic(self, posed):
        words = (
            r"6 cut-offs are too many: each takes 13 of the 80 steps .* 14 .*; 5 fit: --cutoffs 5"
        )
        with pytest.raises(UsageError, match=words):
            cut(posed, 6)
        with pytest.raises(UsageError, match=r"5 fit"):
            cut(posed, 10**9)
        data = values()
        data[VALIDATION + BLOCK : VALIDATION + 2 * BLOCK] = np.nan
        with pytest.raises(UsageError, match=r"5 cut-offs are too many: .*; 4 fit"):
            cut(splits(data), 5)

    def test_series_cut_by_their_own_lengths_are_refused(self, posed):
        borders = TRAIN, VALIDATION, TEST
        with pytest.raises(UsageError, match=r"cut by its own length; train with --split calendar"):
            cut(small.planned(posed, borders=Borders(*borders, (borders,))), 5)


class TestRoll:
    def test_one_cut_off_is_the_plain_evaluation(self, posed):
        tried, served = untrained(posed)
        intervals, words, _ = find_intervals(posed, served, "cpu")
        plain = judge(posed, served, "cpu", intervals, tried).backtest.to_dict()
        report = rolled(posed, 1).cutoffs.to_dict()
        (only,) = report["each"]
        for name in ("mse", "mae", "windows"):
            assert only[name] == plain[name]
        assert only["coverage"] == plain["intervals"][COVERED]["coverage"]
        assert only["intervals"] == words
        assert report["mse"] == {"mean": plain["mse"], "sd": None}
        assert report["network"]["mse"]["mean"] == plain["network"]["mse"]
        best = report["best_floor"]
        assert best == plain["best_floor"]
        assert report["paired_low"] == pytest.approx(plain["floors"][best]["paired_low"])
        basis = f"Based on 1 cut-off; better in {report['better_in']} of them."
        assert report["verdict"] == f"{plain['verdict']} {basis}"

    def test_mean_and_spread_over_cut_offs(self, posed, rolling):
        tried, served = untrained(posed)
        plain = judge(posed, served, "cpu", None, tried).model.by_window
        for number, found in enumerate(rolling.found):
            own = plain[number * BLOCK :][: BLOCK - 14 + 1]
            np.testing.assert_allclose(found.model.by_window, own, rtol=1e-4)
            assert found.model.mse == pytest.approx(own.mean())
        report = rolling.cutoffs.to_dict()
        mse, best = [own["mse"] for own in report["each"]], report["floors"][report["best_floor"]]
        assert report["mse"] == pytest.approx({"mean": np.mean(mse), "sd": np.std(mse, ddof=1)})
        floors = [own["floors"][report["best_floor"]]["mse"] for own in report["each"]]
        better = sum(np.less(mse, floors))
        assert report["better_in"] == best["better_in"] == better
        assert f"Based on 5 cut-offs; better in {better} of them." in report["verdict"]
        means = [floor["mse"]["mean"] for floor in report["floors"].values()]
        assert best["mse"]["mean"] == min(means)

    def test_blocks_of_unequal_windows_count_by_what_is_observed_together(self):
        data = values()
        data[VALIDATION + 5 : TEST : 7, 1] = np.nan
        rolling = rolled(splits(data), 3)
        scores, whole = [found.model for found in rolling.found], rolling.whole.model
        assert len({score.windows for score in scores}) > 1
        observed = sum(score.observed for score in scores)
        assert whole.observed.tolist() == observed.tolist()
        squares = sum(score.squared * score.observed for score in scores)
        assert whole.mse == pytest.approx(squares.sum() / observed.sum())
        starts = [at.plan.borders.validation for at in rolling.cuts]
        steps = [s + i for s, own in zip(starts, scores, strict=True) for i in range(own.windows)]
        assert whole.steps.tolist() == steps

    def test_a_panel_is_cut_at_steps_of_its_grid(self, tmp_path):
        with small.at_home(tmp_path):
            long().to_csv("shops.csv", index=False)
            flags = {"data": "shops.csv", "id": "shop", "target": "sold", "split": "calendar"}
            loaded = load(None, list(SMALL), {**flags, "horizon": 5}, {})
            posed = make_splits(make_plan(*find_data(loaded, nothing)))
        with pytest.raises(UsageError, match=r"9 cut-offs are too many: .*; 8 fit"):
            cut(posed, 9)
        rolling = rolled(posed, 2)
        json.dumps(rolling.cutoffs.to_dict(), allow_nan=False)
        counts = [found.model.windows for found in rolling.found]
        assert counts == [len(at.test("cpu")) for at in rolling.cuts]
        assert rolling.whole.model.steps.min() == posed.plan.borders.validation


def test_noise_in_a_block_changes_nothing_before_it():
    """No row from a cut-off on affects the blend, its intervals or the results before it."""
    noisy, made, each = values(), [], []
    noisy[LAST_OF_3:] += np.random.default_rng(1).normal(0, 5, noisy[LAST_OF_3:].shape)
    for data in (values(), noisy):
        posed, bytes_of = splits(data), []

        def make(at, bytes_of=bytes_of):
            tried, served = train_anew(at, "cpu", nothing)
            tensors = [served.weights, *(t for part in tried for t in part.state_dict().values())]
            bytes_of += [t.detach().numpy().tobytes() for t in tensors]
            bytes_of.append(find_intervals(at, served, "cpu")[0].offsets.tobytes())
            return tried, served

        each.append(roll(posed, 3, make, "cpu", nothing).cutoffs.to_dict()["each"])
        made.append(bytes_of)
    assert made[0] == made[1], "weights and intervals are older than the noise"
    assert each[0][:2] == each[1][:2]
    assert each[0][2]["mse"] < each[1][2]["mse"]


def test_training_anew_at_the_first_cut_off_is_the_run_itself(posed):
    (first,) = cut(posed, 1)
    assert first is not posed
    torch.manual_seed(7)
    _, one = train_anew(posed, "cpu", nothing)
    _, other = train_anew(first, "cpu", nothing)
    assert one.names == other.names
    batch = posed.test("cpu").batch(torch.arange(4))
    with torch.inference_mode():
        assert torch.equal(one(*batch.asked), other(*batch.asked))


def test_the_terminal_has_every_cut_off_and_forecast(rolling):
    report, said = rolling.cutoffs.to_dict(), text(rolling.cutoffs)
    lines = said.splitlines()
    assert lines[0].startswith("5 cut-offs of the test split, trained anew at each")
    assert "2020-01-14 08:00  2020-01-14 23:00        3" in said
    assert lines[-1] == report["verdict"]
    for name, floor in report["floors"].items():
        (line,) = [line for line in lines if line.startswith(f"{name}  ")]
        assert f"{floor['mse']['mean']:.4f} ± {floor['mse']['sd']:.4f}" in line
        assert line.endswith(f"{floor['better_in']} of 5")
    assert f"cover {report['coverage']['mean']:.1%} ± " in said
