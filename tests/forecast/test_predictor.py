import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.base import machine
from forecaster.base.errors import (
    DataError,
    ForecasterError,
    StorageError,
    UnavailableError,
    UsageError,
)
from forecaster.config.run_config import load
from forecaster.datasets.calendar import phase_weights
from forecaster.datasets.card import load_card
from forecaster.datasets.fetch import locate
from forecaster.forecast import golden
from forecaster.forecast.intervals import Conditions
from forecaster.forecast.notices import NoticeCode
from forecaster.forecast.predictor import Predictor, load_bundle
from forecaster.forecast.question import Question
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from tests.bundles import COLUMNS, SEASON, blended, of_splits, scaled, unsaved, warning
from tests.service.toy import KINDS, make_bundle

CYCLE = np.array([[10.0, -3.5, 400.0], [20.0, 0.25, 300.0], [15.0, 7.0, 100.0], [5.0, 1.0, 250.0]])


def history(rows=16, freq="h", start="2026-03-01", tz=None):
    """A pure cycle of four steps in three columns."""
    times = pd.date_range(start, periods=rows, freq=freq, tz=tz)
    values = CYCLE[np.arange(rows) % SEASON]
    return pd.DataFrame({"time": times, **dict(zip(COLUMNS, values.T, strict=True))})


def heard(forecaster, frame, **options):
    """A forecast, and what is said of it."""
    said = []
    return forecaster.predict(frame, say=said.append, **options), said


@pytest.fixture(scope="module")
def forecaster():
    return Predictor(unsaved(), "cpu")


@pytest.fixture(scope="module")
def calibrated():
    return Predictor(unsaved(calibrated=True), "cpu")


class TestPredict:
    @pytest.mark.parametrize(
        ("freq", "stamp"),
        [("30min", "2026-03-01 08:30"), ("D", "2026-03-18"), ("MS", "2027-08-01")],
    )
    def test_a_cycle_goes_on_in_units_from_the_step_after_the_last(self, freq, stamp):
        forecaster, frame = Predictor(unsaved(freq=freq), "cpu"), history(17, freq)
        ahead = forecaster.predict(frame)
        assert list(ahead.columns) == ["time", *COLUMNS]
        assert list(ahead["time"]) == [*pd.date_range(stamp, periods=6, freq=freq)]
        expected = CYCLE[np.arange(17, 23) % SEASON]
        np.testing.assert_allclose(ahead[list(COLUMNS)], expected, rtol=1e-5, atol=1e-4)
        assert forecaster.predict(frame, horizon=2).equals(ahead.head(2))
        some = Predictor(unsaved(targets=("Zürich °C",), freq=freq), "cpu").predict(frame)
        assert list(some.columns) == ["time", "Zürich °C"]
        np.testing.assert_allclose(some["Zürich °C"], expected[:, 2], rtol=1e-5)

    @pytest.mark.parametrize(
        "change",
        [
            lambda frame: frame[["Zürich °C", "load", "time", "wind"]].assign(extra="none"),
            lambda frame: frame.set_index("time").rename_axis("other"),
            lambda frame: frame.assign(time=frame["time"].astype(str)),
            lambda frame: frame.tail(12),
        ],
    )
    def test_what_makes_no_difference(self, change):
        forecaster, frame = Predictor(unsaved("informer"), "cpu"), history(rows=40)
        before = frame.copy()
        torch.manual_seed(1)
        expected = forecaster.predict(frame)
        assert forecaster.predict(change(frame)).equals(expected)
        assert frame.equals(before), "the caller's frame stays as it was"

    def test_a_short_history_by_the_parts_that_need_no_more(self):
        forecaster = Predictor(blended(unsaved(), network=0.4, cycle=0.4, last=0.2), "cpu")
        assert (forecaster.needs, forecaster.least) == (12, 1)
        with pytest.raises(DataError, match=r"has 9 rows, the model needs 12.*short_history=drop"):
            forecaster.predict(history().tail(9))
        ahead, (notice,) = heard(forecaster, history().tail(9), short_history="drop")
        alone = Predictor(blended(unsaved(), cycle=2 / 3, last=1 / 3), "cpu")
        assert (alone.needs, alone.least) == (8, 1)
        pd.testing.assert_frame_equal(ahead, alone.predict(history()))
        pd.testing.assert_frame_equal(ahead, alone.predict(history().tail(8)))
        assert notice.code is NoticeCode.SHORT_HISTORY
        assert notice.endswith("forecast by 67 % cycle mean + 33 % last value alone")

    def test_rows_that_no_part_reads_may_be_away(self):
        """Their presence changes neither the forecast nor the notices."""
        bundle = blended(warning(unsaved(calibrated=True)), cycle=0.5, last=0.5)
        forecaster = Predictor(bundle, "cpu")
        whole, said = heard(forecaster, history(), levels=(0.1,))
        short, others = heard(forecaster, history().tail(8), levels=(0.1,))
        pd.testing.assert_frame_equal(whole, short)
        assert [each.code for each in said] == [each.code for each in others]
        assert "missing" not in "".join(others)

    def test_a_model_of_utc_answers_in_utc(self):
        forecaster = Predictor(unsaved(timezone="UTC"), "cpu")
        ahead = forecaster.predict(history())
        assert ahead["time"][0] == pd.Timestamp("2026-03-01 16:00", tz="UTC")
        there = history(start="2026-03-01 01:00", tz="Europe/Berlin")
        assert forecaster.predict(there).equals(ahead)

    def test_a_horizon_beyond_the_trained_one(self, forecaster):
        for horizon in (0, -1, 7, 10**9):
            with pytest.raises(UsageError, match=f"horizon={horizon}"):
                forecaster.predict(history(), horizon=horizon)

    @pytest.mark.parametrize(
        ("change", "word"),
        [
            (lambda frame: frame.tail(11), "11 rows, the model needs 12"),
            (lambda frame: frame.drop(columns="wind"), "'wind'"),
            (lambda frame: frame.drop(index=13), "2026-03-01 13:00"),
            (lambda frame: frame.assign(wind=[*frame["wind"][:-1], np.inf]), "row 16.*'wind'"),
            (lambda frame: frame.assign(wind=np.nan), "'wind' has no value at all"),
            (lambda frame: history(start="9999-12-31 08:00"), "9999"),
        ],
    )
    def test_what_cannot_be_used_is_named(self, change, word, forecaster):
        with pytest.raises(DataError, match=word):
            forecaster.predict(change(history()))

    @pytest.mark.parametrize(
        ("column", "cell", "word"),
        [
            ("load", "much", "expected a number, got 'much'"),
            ("load", float("inf"), "finite"),
            *[("time", cell, "row 6") for cell in (10**30, "yesterday", None, True)],
            ("time", "2026-01-01T07:00:00Z", "time zone"),
            ("time", "9999-12-31T23:00:00", "row"),
        ],
    )
    def test_a_cell_that_does_not_fit_is_named(self, column, cell, word, forecaster):
        frame = history()
        frame["time"] = frame["time"].astype(str)
        frame[column] = frame[column].astype(object)
        frame.loc[5, column] = cell
        with pytest.raises(DataError, match=word):
            forecaster.predict(frame)

    def test_a_forecast_that_is_not_finite_is_an_error(self):
        forecaster = Predictor(scaled(unsaved(), np.nan), "cpu")
        with pytest.raises(DataError, match=r"not finite .*'load'"):
            forecaster.predict(history())


class TestRemarks:
    def test_what_stands_out_is_said_with_its_code(self, calibrated):
        forecaster = Predictor(warning(unsaved(calibrated=True)), "cpu")
        ahead, said = heard(forecaster, history(), levels=(0.1, 0.9))
        assert [notice.code for notice in said] == [
            "lost_to_floor", "coverage", "first_step", "unlike_training",
        ]  # fmt: skip
        assert "the 80 % band covered 44.0% of" in said[1]
        assert ahead.equals(calibrated.predict(history(), None, (0.1, 0.9)))
        assert "coverage" not in [notice.code for notice in heard(forecaster, history())[1]]
        assert heard(calibrated, history())[1] == [], "of what was not measured"

    def test_the_series_of_a_panel_are_named(self, tmp_path):
        bundle = warning(make_bundle(tmp_path, **KINDS["panel"]))
        forecaster = Predictor(bundle, "cpu")
        both = [forecaster.example.assign(town=name) for name in ("Bern", "../c d")]
        _, said = heard(forecaster, pd.concat(both, ignore_index=True))
        (about,) = [notice for notice in said if notice.code == "unlike_training"]
        assert about.startswith("series '../c d': the history is unlike the training rows: ")
        assert about.endswith("; similarly 'Bern'")


def test_a_series_of_a_panel_has_weights_of_its_own(tmp_path):
    bundle = make_bundle(tmp_path / "panel", **KINDS["panel"])
    weights = {"network": 0.5, "cycle": 0.3, "last": 0.2}
    blend = Predictor(blended(bundle, **weights).save(tmp_path / "blend"), "cpu")
    frame = blend.example
    (target,), names = blend.schema.targets, [*blend.schema.items, "unknown"]
    alone = [Predictor(blended(bundle, **{name: 1.0}), "cpu") for name in weights]
    for number, name in enumerate(names):
        asked = frame.assign(**{blend.schema.id[0]: name})
        shares = np.roll([*weights.values()], (number + 1) % len(names))
        own = [part.predict(asked)[target] for part in alone]
        np.testing.assert_allclose(blend.predict(asked)[target], shares @ np.array(own), rtol=1e-5)


class TestQuantiles:
    def test_each_target_is_followed_by_its_quantiles(self, forecaster, calibrated):
        plain, steps = forecaster.predict(history(), 4), np.arange(1, 5)
        ahead = calibrated.predict(history(), 4, (0.9, 0.1, 0.7, 0.1))
        names = ("", " 0.1", " 0.7", " 0.9")
        assert list(ahead.columns) == ["time", *(c + name for c in COLUMNS for name in names)]
        assert ahead[["time", *COLUMNS]].equals(plain)
        for column in COLUMNS:
            for name, factor in ((" 0.1", -1), (" 0.7", 1), (" 0.9", 2)):
                expected = plain[column] + factor * steps
                np.testing.assert_allclose(ahead[column + name], expected, rtol=1e-12)

    def test_they_are_wider_after_a_wilder_history_and_at_harder_hours(self, calibrated):
        """Twelve rows do not make two days: then the distance from their mean counts."""
        bundle, phases = calibrated.bundle, np.ones((24, 3))
        phases[13] = 3  # the second step after noon
        told = Conditions(24, phase_weights("h", 24), np.array([0.5, 1, 1]), phases)
        bundle = replace(bundle, intervals=replace(bundle.intervals, conditions=told))
        frame = history(12)
        frame["load"] = np.repeat([1.0, 1.0, 5.0], 4) + np.tile([0.0, 4.0], 6)
        frame.loc[[3, 7], "load"] = np.nan
        there = frame["load"].dropna()
        recent = np.sqrt(np.square((there - there.mean()) / 2).mean())
        ahead = Predictor(bundle, "cpu").predict(frame, 4, (0.1, 0.9))
        wanted = (recent / 0.5) ** 0.75 * np.array([2, 4 * 3, 6, 8])
        np.testing.assert_allclose(ahead["load 0.9"] - ahead["load"], wanted, rtol=1e-6)

    def test_outside_the_range_they_are_refused_and_without_any(self, forecaster, calibrated):
        for level in (0.05, 0.95, 0.0, 2.0, np.nan):
            with pytest.raises(UsageError, match=rf"quantiles from 0.1 to 0.9, got {level:g}"):
                calibrated.predict(history(), levels=[0.5, level])
        assert forecaster.levels == ()
        with pytest.raises(UsageError, match="has no quantiles: none: nobody calibrated it"):
            forecaster.predict(history(), levels=[0.5])


class TestForecast:
    def test_the_time_of_each_history_counts(self):
        forecaster = Predictor(unsaved("informer"), "cpu")
        histories = np.repeat(history(rows=12)[list(COLUMNS)].to_numpy()[None], 2, axis=0)
        starts = pd.DatetimeIndex(["2026-01-01", "2026-07-02 05:00"])
        ahead, _ = forecaster.forecast_quantiles(Question(histories, starts))
        assert not np.allclose(ahead[0], ahead[1])
        with pytest.raises(DataError, match="12 steps x 3 columns, got 11 x 3"):
            forecaster.forecast_quantiles(Question(histories[:, 1:], starts))

    def test_one_thread_computes_it(self, monkeypatch):
        forecaster, seen = Predictor(unsaved(), "cpu"), []
        forward = forecaster.model.forward

        def noting(*arrays):
            seen.append(torch.get_num_threads())
            return forward(*arrays)

        monkeypatch.setattr(forecaster.model, "forward", noting)
        with machine.threads(2):
            golden.forecasts(forecaster, [0])
            assert (seen, torch.get_num_threads()) == ([1], 2)


class TestLoad:
    def test_a_folder(self, tmp_path):
        unsaved().save(tmp_path)
        assert Predictor.load(tmp_path).bundle.name == "forecaster-toy-M-all-6"
        assert load_bundle(str(tmp_path)).digest == load_bundle(tmp_path).digest
        (tmp_path / "MANIFEST.sha256").unlink()
        with pytest.raises(UnavailableError, match=r"MANIFEST\.sha256"):
            load_bundle(tmp_path)

    def test_errors_of_the_child_keep_their_kind_and_words(self, tmp_path, monkeypatch):
        python = tmp_path / "python"
        monkeypatch.setattr(sys, "executable", str(python))
        for does, kind, words in (
            ("echo why >&2; exit 74", StorageError, "^why$"),
            ("kill -9 $$", ForecasterError, "-9"),
        ):
            python.write_text(f"#!/bin/sh\n{does}\n")
            python.chmod(0o755)
            with pytest.raises(kind, match=words):
                load_bundle("forecaster-toy")


class TestCards:
    """A bundle of a card forecasts from the file that it was trained on, and from a stretch."""

    def untrained(self, name, path, folder):
        sets = ["window.past=1 cycle", "model.parts=1", "model.width=4"]
        sets += [f"data.path={path}"] if path else []
        splits = make_splits(
            make_plan(
                *find_data(load(None, sets, {"data": name, "horizon": 5}, {}), lambda text: None)
            )
        )
        return Predictor(of_splits(splits).save(folder / "bundle"), "cpu")

    def check(self, name, file, forecaster, folder, header=True):
        ahead = forecaster.predict(file)
        assert ahead.shape == (5, 1 + len(load_card(name).columns))
        assert np.isfinite(ahead[list(load_card(name).columns)].to_numpy()).all()
        if header:
            lines = file.read_text().splitlines()
            stretch = folder / "stretch.csv"
            past = forecaster.bundle.past
            for first in (1, len(lines) // 2, len(lines) - past):
                stretch.write_text("\n".join([lines[0], *lines[first : first + past], ""]))
                assert np.isfinite(forecaster.predict(stretch).iloc[:, 1:].to_numpy()).all()
            numbers = ahead.iloc[:, 1:].to_numpy()
            np.testing.assert_array_equal(forecaster.predict(stretch).iloc[:, 1:], numbers)

    @pytest.mark.data
    @pytest.mark.parametrize(
        "name",
        [
            *("ETTh1", "ETTh2", "ETTm1", "ETTm2", "electricity-client0-OT", "electricity-mean"),
            *("exchange_rate", "traffic-sensor0", "vic_elec", "weather"),
        ],
    )
    def test_of_each_card(self, name, tmp_path):
        file = locate(load_card(name))
        self.check(name, file, self.untrained(name, None, tmp_path), tmp_path)

    def test_of_a_wide_set_in_both_forms(self, tmp_path):
        name = "electricity"
        card = load_card(name)
        values = np.random.default_rng(0).random((400, len(card.columns))).round(3)
        frame = pd.DataFrame(values, columns=list(card.columns))
        bare = tmp_path / f"{name}.txt.gz"
        frame.to_csv(bare, header=False, index=False)
        forecaster = self.untrained(name, bare, tmp_path)
        self.check(name, bare, forecaster, tmp_path, header=False)
        frame.insert(0, card.time, pd.date_range("2016-07-01 02:00", periods=400, freq=card.freq))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        self.check(name, tmp_path / f"{name}.csv", forecaster, tmp_path)
