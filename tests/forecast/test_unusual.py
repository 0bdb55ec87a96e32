import json
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from forecaster.datasets.dataset import Items
from forecaster.datasets.known import KnownInputs
from forecaster.datasets.windows import Windows
from forecaster.forecast import unusual
from forecaster.forecast.notices import Notice, NoticeCode
from forecaster.forecast.unusual import TRAITS, Ranges, figures, traits
from forecaster.model import Task
from forecaster.parts import Fold, Ridge
from tests.bundles import judged

ROWS, PAST, HORIZON, SEASON = 3000, 96, 24, 24
BORDER = 2000
COLUMNS = ("load", "wind")
MEAN, STD = np.array([10.0, -5.0]), np.array([2.0, 4.0])
ODD = np.arange(PAST)[:, None] % 2 == 1


def series(seed: int = 0) -> np.ndarray:
    """Hours of two columns with a daily cycle, a slow level and noise, (N, 2), scaled."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(ROWS, 2))
    for row in range(1, ROWS):
        noise[row] += 0.8 * noise[row - 1]
    steps = np.arange(ROWS)[:, None]
    values = np.sin(steps * 2 * np.pi / SEASON + [0, 1]) + 0.3 * np.sin(steps / 400) + 0.3 * noise
    scaled: np.ndarray = (values - values[:BORDER].mean(axis=0)) / values[:BORDER].std(axis=0)
    return scaled


def windows(values: np.ndarray, first: int = 0, last: int = BORDER, **changes: Any) -> Windows:
    table = torch.from_numpy(values[:last].astype(np.float32))
    facts: dict[str, Any] = {"targets": (0, 1), "past": PAST, "horizon": HORIZON} | changes
    return Windows(table, torch.zeros(last, 1), first=first, last=last, **facts)


@pytest.fixture(scope="module")
def ranges() -> Ranges:
    return Ranges.fit(windows(series()))


def unlike(ranges: Ranges, histories: np.ndarray) -> dict[int, Notice]:
    return {notice.place: notice for notice in ranges.unlike(histories, MEAN, STD, COLUMNS)}


def histories(values: np.ndarray, starts: Any) -> np.ndarray:
    return np.stack([values[start : start + PAST] for start in starts])


class TestHistories:
    def test_usual_ones_are_quiet(self, ranges: Ranges) -> None:
        """Those of the training rows, and later ones with a few missing values."""
        assert not unlike(ranges, histories(series(), range(0, BORDER - PAST)))
        values = histories(series(), range(BORDER, ROWS - PAST))
        values[np.random.default_rng(0).random(values.shape) < 0.03] = np.nan
        assert not unlike(ranges, values)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda units: units * 10, ["the standard deviation of 'wind' is", "the mean of"]),
            (lambda units: units + 40, ["the mean of 'load' is 50", "(and of 1 more column)"]),
            (lambda units: units * 0 + MEAN, ["the standard deviation of"]),
            (lambda units: np.where(ODD, np.nan, units), [" of 'load' is 0.5, in training 0 to 0"]),
        ],
    )
    def test_others_are_told(self, ranges: Ranges, change: Any, words: list[str]) -> None:
        usual = histories(series(), (5, 300))
        changed = np.stack([usual[0], change(usual * STD + MEAN)[1] / STD - MEAN / STD])
        found = unlike(ranges, changed)
        assert list(found) == [1], "the one that was changed"
        assert found[1].code is NoticeCode.UNLIKE_TRAINING
        for part in words:
            assert part in found[1]

    def test_by_how_much_is_said_in_units(self, ranges: Ranges) -> None:
        history = histories(series(), (5,))
        history[0, :, 1] += 50
        mean = history[0, :, 1].mean() * 4 - 5
        low, high = ranges.low[0, 1] * 4 - 5, ranges.high[0, 1] * 4 - 5
        said = f"the mean of 'wind' is {mean:.4g}, in training {low:.4g} to {high:.4g}"
        assert said in unlike(ranges, history)[0]
        scaled_apart = np.array([[[0.0, 0.0]]]), np.array([[[1.0, 1.0]]])
        (alone,) = ranges.unlike(history, *scaled_apart, COLUMNS)
        assert f"is {history[0, :, 1].mean():.4g}, in" in alone, "the scaler of a panel's series"


class TestFirstSteps:
    def test_a_far_one_is_told_in_units(self, ranges: Ranges) -> None:
        last, first = np.zeros((4, 2)), np.zeros((4, 2))
        first[1, 1] = 4 * 3.1 * ranges.change[1]
        first[2] = 4 * 2.9 * ranges.change[1] * np.array([0, 1])
        last[3], first[3] = np.nan, 1e6  # no last value is far from nothing
        (notice,) = ranges.jumps(last, first, STD, COLUMNS)
        assert (notice.place, notice.code) == (1, NoticeCode.FIRST_STEP)
        assert f"'wind' is {first[1, 1]:.4g}, far from the last value 0: " in notice
        assert notice.endswith(f"at most {4 * ranges.change[1]:.4g}")

    def test_a_column_that_hardly_moves_may_by_half_a_deviation(self) -> None:
        still = series()
        still[:, 0] = 0
        still[:3, 0] = 1
        found = Ranges.fit(windows(still))
        assert found.change[0] == 0
        for jump, told in ((0.4, 0), (0.6, 1)):
            first = np.array([[2 * jump, 0.0]])
            assert len([*found.jumps(np.zeros((1, 2)), first, STD, COLUMNS)]) == told

    def test_no_change_is_known_within_one_step(self) -> None:
        found = Ranges.fit(windows(series(), past=1))
        again = Ranges.from_dict(found.to_dict(), 2, 2)
        assert np.isnan(again.change).all()
        assert not [*again.jumps(np.zeros((1, 2)), np.full((1, 2), 99.0), STD, COLUMNS)]

    def test_healthy_ones_are_quiet(self, ranges: Ranges) -> None:
        """A ridge regression, and even the mean with a cycle mean that ignores the level."""
        validation = windows(series(), BORDER, ROWS)
        batch = validation.batch(torch.arange(len(validation)))
        task = Task(2, (0, 1), PAST, PAST, HORIZON, 1, SEASON)
        ridge = Ridge.fit(
            Fold(task, windows(series()), validation, (SEASON,), ((),), 0, task.past, SEASON)
        )[0]
        ahead = ridge(*batch.inputs)[:, 0].numpy()
        cycle = batch.past.unflatten(1, (-1, SEASON)).mean(dim=1)[:, 0].numpy()
        last = batch.past[:, -1].numpy()
        for first in (ahead, (ahead + cycle) / 2):
            told = [*ranges.jumps(last * STD, first * STD, STD, COLUMNS)]
            assert len(told) < 0.01 * len(last)


class TestCovariates:
    KNOWN = KnownInputs(("warmth", "holiday"), None, (), (-5.0, 0.0), (35.0, 1.0))

    def test_those_beyond_a_twentieth_of_the_range_are_told(self) -> None:
        made = np.zeros((8, 6, 2))
        made[:7, 3, 0] = -5, 35, -6.9, 36.9, 20, 37.1, -7.1
        made[7, 0], made[7, 5] = (99, 0), (0, 2)
        said = [*unusual.covariates(self.KNOWN, made)]
        assert [notice.place for notice in said] == [5, 6, 7]
        assert {each.code for each in said} == {NoticeCode.UNLIKE_COVARIATES}
        assert said[1].endswith("'warmth' is -7.1, in training -5 to 35")
        assert said[2].endswith("'warmth' is 99, in training -5 to 35 (and of 1 more column)")

    def test_what_never_changed_may_not_but_by_rounding(self) -> None:
        rounded = float(np.float32(0.1))
        cases = [(0.0, 1.0, 2), (0.0, 0.0, 0), (rounded, 0.1, 0), (0.1, 0.1001, 2)]
        for usual, value, told in cases:
            known = KnownInputs(("price",), None, (), (usual,), (usual,))
            assert len([*unusual.covariates(known, np.full((2, 6, 1), value))]) == told


class TestRanges:
    def test_they_survive_json(self, ranges: Ranges) -> None:
        state = json.loads(json.dumps(ranges.to_dict(), allow_nan=False))
        again = Ranges.from_dict(state, 2, 2)
        for name in ("low", "high", "change"):
            np.testing.assert_allclose(getattr(again, name), getattr(ranges, name), rtol=1e-5)
        assert again.to_dict() == ranges.to_dict()
        later = series()
        later[BORDER:] = 1e6
        assert Ranges.fit(windows(later)).to_dict() == state, "of training rows alone"

    def test_a_column_without_values_stands_out_from_nothing(self) -> None:
        values = series()
        values[:, 1] = np.nan
        found = Ranges.fit(windows(values))
        state = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        again = Ranges.from_dict(state, 2, 2)
        assert not unlike(again, histories(series() * [1, 100], (5,)))
        assert not [*again.jumps(np.zeros((1, 2)), np.array([[0, 1e6]]), STD, COLUMNS)]

    def test_a_panel_has_those_of_all_its_series(self, monkeypatch: pytest.MonkeyPatch) -> None:
        values = np.concatenate([series(0)[:500], 3 + series(1)[:500]])
        items = Items(("a", "b"), np.array([0, 500, 1000]), np.array([0, 0]))
        table = torch.from_numpy(values.astype(np.float32))
        both = Windows(table, torch.zeros(500, 1), PAST, HORIZON, 0, 500, (1,), items)
        found = Ranges.fit(both)
        assert found.change.shape == (1,)
        assert found.low[0, 0] < 1 < 2 < found.high[0, 0]
        monkeypatch.setattr(unusual, "VALUES", 40 * PAST * 2)
        np.testing.assert_allclose(Ranges.fit(both).low, found.low, atol=0.3)


class TestFigures:
    FLOORS: ClassVar = {"cycle mean": {"mse": 0.39}}

    def test_a_model_that_lost_and_those_that_did_not(self) -> None:
        """Only a loss that is measured is worth a warning."""
        worse = judged(mse=0.41, floors=self.FLOORS, outcome="worse", verdict="Worse than it.")
        (notice,) = figures(worse, ())
        assert notice.code is NoticeCode.LOST_TO_FLOOR
        assert notice == "on the test split: Worse than it."
        outcomes = ("better", "no measurable difference")
        others = [judged(mse=0.41, floors=self.FLOORS, outcome=outcome) for outcome in outcomes]
        for test in (None, *others):
            assert not [*figures(test, (0.1, 0.9))]

    def test_a_band_that_was_asked_for(self) -> None:
        for coverage, levels, windows, word in (
            (0.44, (0.9, 0.5, 0.1), 3000, "narrow"),
            (0.84, (0.1, 0.9), 3000, "wider"),
            (0.78, (0.1, 0.9), 3000, ""),
            (0.44, (0.1, 0.5), 3000, ""),
            (0.44, (0.025, 0.975), 3000, ""),
            (1.0, (0.1, 0.9), 12, ""),  # it may be chance
            (0.44, (0.1, 0.9), 12, "narrow"),
        ):
            bands = {"80": {"coverage": coverage}, "95": None}
            known = {"floors": self.FLOORS, "intervals": bands, "columns": {"a": {}}}
            found = [*figures(judged(mse=0.3, windows=windows, **known), levels)]
            assert [notice.code for notice in found] == [NoticeCode.COVERAGE] * bool(word)
            for notice in found:
                assert f"80 % band covered {coverage:.1%} of the test values: " in notice
                assert word in notice


class TestTraits:
    @pytest.mark.parametrize("holes", [0.0, 0.3])
    def test_they_are_what_the_definition_says(self, holes: float) -> None:
        values = histories(series(), range(0, 50, 10))
        missing = np.random.default_rng(0).random(values.shape) < holes
        values[missing] = np.nan
        found = traits(values)
        assert found.shape == (5, len(TRAITS), 2)
        definitions = np.nanmean(values, axis=1), np.nanstd(values, axis=1), missing.mean(axis=1)
        for trait, expected in enumerate(definitions):
            np.testing.assert_allclose(found[:, trait], expected, rtol=1e-9, atol=1e-12)
        empty = traits(np.full((1, PAST, 1), np.nan))[0, :, 0]
        np.testing.assert_array_equal(empty, [np.nan, np.nan, 1])
