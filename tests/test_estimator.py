"""Forecaster: fitted to frames, with the same sequence as the command."""

import copy
import os
import pickle
import re
import signal
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone

from forecaster import Forecaster
from forecaster.base.errors import ConfigError, DataError, UsageError
from forecaster.base.signals import WANTED
from forecaster.config.run_config import load
from forecaster.run import train
from forecaster.train.module import ForecastModule

ROWS, HORIZON = 480, 6
OPTIONS = {"model.width": 4, "model.feed_forward": 4, "train.updates": 20}


def made(**changes: object) -> Forecaster:
    given = {"attention": "prob", "horizon": HORIZON, "epochs": 1, "options": OPTIONS}
    return Forecaster(**given | changes)


def wide() -> pd.DataFrame:
    random, steps = np.random.default_rng(0), np.arange(ROWS)
    waves = 10 + 3 * np.sin(steps * np.pi / 12)
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=ROWS, freq="h")})
    noise = random.normal(size=(2, ROWS))
    return frame.assign(load=waves + noise[0], warmth=20 + noise[1])


def long() -> pd.DataFrame:
    frame = wide()[["ds", "load"]].rename(columns={"load": "y"})
    parts = [frame.assign(unique_id=name, y=frame["y"] * scale) for name, scale in NAMES.items()]
    return pd.concat(parts, ignore_index=True)[["unique_id", "ds", "y"]]


NAMES = {"north": 1.0, "south": 10.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Forecaster:
    """Fitted to the column load of the wide frame."""
    folder = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = made(target="load", features="S").fit(wide())
    assert os.listdir(folder) == [], "neither files nor a tracker"
    return found


@pytest.fixture(scope="module")
def panel() -> Forecaster:
    return made().fit(long())


@pytest.fixture(scope="module")
def warm() -> Forecaster:
    """A model that reads a temperature known ahead."""
    return made(target="load", future_covariates="warmth").fit(wide())


class TestFit:
    @pytest.mark.usefixtures("untracked")
    def test_the_weights_are_those_of_the_command(self, model, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        wide().to_csv("own.csv", index=False)
        sets = [f"{key}={value}" for key, value in OPTIONS.items()]
        flags = {
            "data": "own.csv", "attn": "prob", "horizon": HORIZON, "epochs": 1,
            "target": "load", "features": "S",
        }  # fmt: skip
        found = train.run(load(None, sets, flags), lambda said: None, lambda metrics: None)
        theirs, own = (each.tensors() for each in (found.bundle, model.bundle))
        for file in own.keys() | theirs.keys():
            assert own[file].keys() == theirs[file].keys()
            for name, tensor in own[file].items():
                assert torch.equal(tensor, theirs[file][name]), f"{file}: {name}"

    def test_a_run_is_kept_and_tracked_where_that_is_asked_for(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        tracked = made(target="load", features="S").fit(wide(), track=True)
        (folder,) = [each for each in (tmp_path / "runs").iterdir() if each.is_dir()]
        assert re.fullmatch(r"frame-6-prob-s0-[0-9a-f]{8}", folder.name)
        assert tracked.bundle.about["run_id"]
        assert (tmp_path / "mlflow.db").exists()

    def test_nothing_is_left_or_offered_that_could_not_be_resumed(
        self, tmp_path, monkeypatch, capfd
    ):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(train, "judge", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made(target="load", features="S", verbose=True).fit(wide(), track=True)
        out, err = capfd.readouterr()
        assert "training ended after" in out + err
        assert "--resume" not in out + err
        assert list((tmp_path / "runs").glob("*/unfinished")) == []

    @pytest.mark.parametrize(("freq", "start"), [("D", "2001-01-01"), ("h", "2024-03-01")])
    def test_times_of_a_zone_with_summer_time_come_back_in_it(self, freq, start):
        frame = wide()[["ds", "load"]]
        frame["ds"] = pd.date_range(start, periods=ROWS, freq=freq, tz="Europe/Berlin")
        found = made(target="load", season=7).fit(frame)
        ahead = found.predict()
        after = pd.date_range(frame["ds"].iloc[-1], periods=HORIZON + 1, freq=freq)[1:]
        assert list(ahead["ds"]) == list(after)
        assert ahead["ds"].dtype == frame["ds"].dtype
        again = found.predict(frame.tail(400).set_index("ds").rename_axis(None))
        assert list(again.index) == list(after)
        assert (again.index.name, again.index.dtype) == ("ds", frame["ds"].dtype)
        assert again["load"].to_numpy() == pytest.approx(ahead["load"].to_numpy(), rel=1e-5)
        if freq == "h":
            assert found.cross_validate(frame, cutoffs=1)["first"].iloc[0].tz is not None

    @pytest.mark.parametrize(
        ("changes", "error", "said"),
        [
            ({"options": ["train.lr=1"]}, UsageError, r"options: expected values by their names"),
            ({"horizon": -1}, UsageError, r"^horizon: .*got -1"),
            ({"options": {"train.lrr": 1}}, UsageError, r"^options\['train\.lrr'\]: .*lr"),
            ({"config": "nope"}, UsageError, r"nope"),
            ({"target": "nope"}, DataError, r"the frame.*nope"),
            *(({name: [0]}, UsageError, rf"^{name}: .*got .*0") for name in ("target", "id")),
        ],
    )
    def test_parameters_are_checked_with_the_words_of_the_command(self, changes, error, said):
        with pytest.raises(error, match=said):
            made(**changes).fit(wide())

    def test_an_error_names_the_parameter_that_the_command_has_as_option(self, monkeypatch):
        with pytest.raises(DataError, match=r"policy='sort' orders the") as caught:
            made().fit(wide().drop(index=5))
        assert "--" not in str(caught.value)
        monkeypatch.setenv("FORECASTER_TRAIN__LR", "fast")
        with pytest.raises(ConfigError, match=r"\$FORECASTER_TRAIN__LR"):
            made().fit(wide())

    def test_what_is_no_frame_or_too_short_is_refused(self):
        for ask in (made().fit, made().cross_validate):
            with pytest.raises(UsageError, match=r"expected a DataFrame .*; read a file first"):
                ask("own.csv")
            for cutoffs in (0, 2.5, "2"):
                with pytest.raises(UsageError, match=r"^cutoffs: "):
                    ask(wide(), cutoffs=cutoffs)
        with pytest.raises(DataError, match=r"12 steps are too few"):
            made().fit(wide().head(12))

    @pytest.mark.parametrize("step", ["training_step", "validation_step"])
    def test_ctrl_c_ends_the_fit_and_nothing_else(self, monkeypatch, step):
        def interrupted(module, batch, index):
            signal.raise_signal(signal.SIGINT)

        # a command in the background of a shell has SIGINT ignored
        own = signal.signal(signal.SIGINT, signal.default_int_handler)
        before = [*map(signal.getsignal, WANTED)]
        try:
            with monkeypatch.context() as patch:
                patch.setattr(ForecastModule, step, interrupted)
                for _ in range(2):
                    with pytest.raises(KeyboardInterrupt):
                        made(target="load", features="S").fit(wide())
                    assert [*map(signal.getsignal, WANTED)] == before
            assert len(made(target="load", features="S").fit(wide()).predict()) == HORIZON
        finally:
            signal.signal(signal.SIGINT, own)

    def test_a_thread_of_its_own_may_fit(self, model):
        before, found = [*map(signal.getsignal, WANTED)], []
        fit = lambda: found.append(made(target="load", features="S").fit(wide()))  # noqa: E731
        thread = threading.Thread(target=fit)
        thread.start()
        thread.join()
        assert found[0].predict().equals(model.predict())
        assert [*map(signal.getsignal, WANTED)] == before

    @pytest.mark.parametrize(
        ("freq", "start", "indexed"),
        [("M", "1990-03", False), ("W", "2020-01", True), ("h", "2024", False)],
    )
    def test_periods_are_read_as_their_first_moments(self, freq, start, indexed):
        periods = pd.period_range(start, periods=ROWS, freq=freq)
        table = wide()[["ds", "load"]]
        frames = [table.assign(ds=each) for each in (periods, periods.to_timestamp())]
        if indexed:
            frames = [each.set_index("ds") for each in frames]
        (own, theirs) = (made(target="load").fit(frame) for frame in frames)
        pd.testing.assert_frame_equal(own.predict(), theirs.predict())
        pd.testing.assert_frame_equal(own.predict(frames[0][:-9]), theirs.predict(frames[1][:-9]))
        assert own.score(frames[0]) == theirs.score(frames[1])
        assert own.bundle.schema.freq == theirs.bundle.schema.freq

    def test_numbers_of_numpy_and_frames_of_polars_are_taken_and_pickled(self):
        given = {"horizon": np.int64(HORIZON), "season": np.int64(24)}
        own = made(target=np.array(["load"]), time_limit=np.float32(60), **given)
        found = own.fit(pl.from_pandas(wide()[["ds", "load"]]))
        assert found.bundle.horizon == HORIZON
        again = pickle.loads(pickle.dumps(found))
        assert again.predict().equals(found.predict())


class TestPredict:
    def test_what_follows_the_frame(self, model):
        ahead = model.predict(level=[50, 80], levels=[0.3])
        ends = ["load-lo-50", "load-hi-50", "load-lo-80", "load-hi-80"]
        assert [*ahead.columns] == ["ds", "load", "load 0.3", *ends]
        assert len(ahead) == HORIZON
        assert ahead["ds"].iloc[0] == wide()["ds"].iloc[-1] + pd.Timedelta("1h")
        rising = ahead[["load-lo-80", "load-lo-50", "load", "load-hi-50", "load-hi-80"]].to_numpy()
        assert (np.diff(rising, axis=1) >= 0).all()
        quantiles = model.predict(levels=(0.1, 0.9))
        assert ahead["load-lo-80"].tolist() == quantiles["load 0.1"].tolist()
        assert ahead["load-hi-80"].tolist() == quantiles["load 0.9"].tolist()
        one = model.predict(levels=np.float32(0.5), level=np.int64(80), horizon=np.int64(2))
        assert one.equals(model.predict(levels=[0.5], level=80, horizon=2))

    def test_paths_and_totals(self, model, panel):
        paths, ahead = model.predict(samples=400), model.predict(levels=(0.1, 0.9))
        assert [*paths] == ["ds", "sample", "load"]
        table = paths.pivot(index="ds", columns="sample", values="load")
        low, high = ahead["load 0.1"].to_numpy(), ahead["load 0.9"].to_numpy()
        found = table.quantile([0.1, 0.9], axis=1).to_numpy()
        assert np.abs(found - [low, high]).max() < 0.05 * (high - low).max()
        assert panel.predict(samples=np.int64(2))["sample"].max() == 2
        whole = panel.predict(total="horizon", by="all", level=80)
        assert [*whole] == ["ds", "y", "y-lo-80", "y-hi-80"]
        assert whole["y"].item() == pytest.approx(panel.predict()["y"].sum())
        parts = panel.predict(long().astype({"unique_id": "category"}), total="horizon")
        assert [*parts] == ["unique_id", "ds", "y", "y 0.1", "y 0.9"]
        together = whole["y-hi-80"] - whole["y-lo-80"]
        assert together.item() < (parts["y 0.9"] - parts["y 0.1"]).sum() * 1.001

    def test_targets_whose_names_end_in_numbers_and_a_frame_that_changes(self):
        frame = wide()[["ds", "load"]]
        names = ["load", "load 2", "load 0.3", "load-lo-50"]
        frame = frame.assign(**dict.fromkeys(names, frame["load"]))
        own = made(blend="none").fit(frame)
        before = own.predict()
        frame.loc[:, names] = 0.0
        assert own.predict().equals(before)
        assert [*before.columns] == ["ds", *names]
        ahead = own.predict(levels=[0.1])
        assert [*ahead.columns[1:5]] == ["load", "load 0.1", "load 2", "load 2 0.1"]
        with pytest.raises(UsageError, match=r"would both be called 'load 0\.3'"):
            own.predict(levels=[0.3])
        common = frame.rename(columns={"load 0.3": "load 0.5"})
        with pytest.raises(UsageError, match=r"would both be called 'load 0\.5'"):
            made(blend="none").fit(common)
        with pytest.raises(UsageError, match=r"would both be called 'load-lo-50'"):
            own.predict(level=50)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"horizon": 2.5}, r"horizon=2\.5"),
            ({"level": "80"}, r"^level: .*'80'"),
            ({"levels": None}, r"^levels: .*None"),
            ({"level": 100}, "percentages"),
            ({"level": 0.8}, "did you mean 80"),
            ({"level": 99.9}, r"quantiles from .* got 0\.0005"),
        ],
    )
    def test_arguments_are_checked(self, model, given, said):
        with pytest.raises(UsageError, match=said):
            model.predict(**given)

    def test_a_long_frame_of_any_library_comes_back_as_one_that_joins_with_it(self, panel):
        plain = panel.predict(level=50)
        assert [*plain.columns] == ["unique_id", "ds", "y", "y-lo-50", "y-hi-50"]
        assert plain["unique_id"].tolist() == ["north"] * HORIZON + ["south"] * HORIZON
        indexed = panel.predict(long().set_index(["unique_id", "ds"]), level=50)
        assert indexed.equals(plain), "levels of an index are columns"
        table = pl.from_pandas(long()).with_columns(
            pl.col("unique_id").cast(pl.Enum(["north", "south"])),
            pl.col("ds").cast(pl.Datetime("ns")),
        )
        ahead = panel.predict(table)
        assert ahead["y"].to_list() == plain["y"].tolist()
        assert ahead.schema["unique_id"] == table.schema["unique_id"]
        assert len(table.join(ahead, on=["unique_id", "ds"], how="full")) == 2 * (ROWS + HORIZON)
        arrow = pa.Table.from_pandas(long(), preserve_index=False)
        arrow = arrow.set_column(0, "unique_id", arrow["unique_id"].cast(pa.string()))
        assert panel.predict(arrow).schema.field("unique_id").type == pa.string()
        numbers = long().assign(unique_id=np.arange(2).repeat(ROWS))
        ahead = panel.predict(numbers, say=lambda said: None)
        assert ahead["unique_id"].dtype == numbers["unique_id"].dtype
        assert ahead["unique_id"].tolist() == [0] * HORIZON + [1] * HORIZON

    def test_a_series_that_is_left_out_is_named(self, panel):
        """A new one is not: those of training stand in for the rows that it lacks."""
        (first, *rest), rows, said = NAMES, long(), []
        others = rows[rows["unique_id"] != first]
        both = pd.concat(
            [others, rows[:3].assign(unique_id=first), rows[:3].assign(unique_id="new")]
        )
        with pytest.warns(UserWarning, match=f"any forecast needs: '{first}'"):
            ahead = panel.predict(both)
        assert {*ahead["unique_id"]} == {*rest, "new"}
        panel.predict(both, say=said.append)
        assert any(f"any forecast needs: '{first}'" in sentence for sentence in said)
        assert any(getattr(sentence, "code", "") == "new_series" for sentence in said)

    def test_what_is_known_ahead(self, warm):
        future = ahead_of(0.0)
        backwards = future.iloc[::-1]
        assert warm.predict(future=backwards).equals(warm.predict(future=future))
        with pytest.raises(DataError, match=r"the future: no value of 'warmth' at .* must be comp"):
            warm.predict(future=future.drop(index=2))
        with pytest.raises(UsageError, match=r"needs warmth for the 6 steps ahead"):
            warm.predict()


def ahead_of(warmer: float) -> pd.DataFrame:
    stamps = pd.date_range(wide()["ds"].iloc[-1], periods=HORIZON + 1, freq="h")[1:]
    return pd.DataFrame({"ds": stamps, "warmth": 20.0 + warmer})


def test_evaluate_has_the_figures_of_the_test_split(model):
    found, test = model.evaluate(), model.bundle.record.to_dict()["test"]
    assert [*found.index[:2]] == ["model", "network"]
    assert found.loc["model", "mse"] == test["mse"]
    floor = test["best_floor"]
    assert found.loc[floor, "skill"] == test["floors"][floor]["skill"]


def test_cutoffs_train_anew_or_stand_in_the_metrics_of_a_fit(model):
    kept, other = model.bundle, made(target="load", features="S")
    found = other.cross_validate(wide(), cutoffs=2)
    assert model.bundle is kept
    assert [*found.index] == [1, 2]
    assert found["last"].iloc[0] < found["first"].iloc[1]
    assert found["mse"].between(0.01, 2).all()
    assert {"covered_80", "best_floor", "best_floor_mse"} <= {*found.columns}
    other.fit(wide(), cutoffs=2)
    assert other.bundle.record.to_dict()["cutoffs"]["count"] == 2


class TestKeep:
    def test_what_was_saved_forecasts_the_same(self, model, tmp_path):
        folder = model.save(tmp_path / "model")
        loaded = Forecaster.load(folder)
        assert loaded.predict(wide(), level=80).equals(model.predict(level=80))
        with pytest.raises(UsageError, match=r"give a history"):
            loaded.predict()
        for fit in (loaded.fit, loaded.cross_validate):
            with pytest.raises(UsageError, match=r"a loaded model does not train"):
                fit(wide())

    @pytest.mark.parametrize("kind", ["model", "panel", "warm"])
    def test_a_copy_made_at_any_time_forecasts_the_same(self, kind, request, tmp_path):
        own = Forecaster.load(request.getfixturevalue(kind).save(tmp_path / "bundle"))
        history = {"model": wide, "panel": long, "warm": wide}[kind]()
        given = {"future": ahead_of(0.0)} if kind == "warm" else {}
        early = pickle.dumps(own)
        expected = own.predict(history, level=80, **given)
        own.evaluate(), own.effects()
        for again in (pickle.loads(early), pickle.loads(pickle.dumps(own)), copy.deepcopy(own)):
            assert again.predict(history, level=80, **given).equals(expected)

    def test_scikit_learn_clones_it(self, model):
        copy = clone(model)
        assert copy.get_params() == model.get_params()
        assert copy.set_params(horizon=9).horizon == 9
        with pytest.raises(UsageError, match=r"not fitted yet: call fit"):
            copy.predict()
        with pytest.raises(UsageError, match=r"unknown parameter 'horizons'"):
            copy.set_params(horizons=9)


class TestShow:
    def test_the_text_says_what_was_fitted_even_if_a_floor_has_no_error(self, model):
        first, second, *_ = repr(model).splitlines()
        assert first.startswith("Forecaster(attention='prob', horizon=6, target='load'")
        assert second == "  fitted to 1 column every h: reads 192 steps, forecasts 6"
        own = made(target="load", features="S").fit(wide().assign(load=5.0))
        assert "best floor" in repr(own)
        assert own.evaluate()["skill"].dtype == float

    def test_a_picture_has_the_history_the_forecast_and_its_band(self, model, monkeypatch):
        (axis,) = model.plot().axes
        history, ahead, _ = axis.get_lines()
        assert len(history.get_xdata()) == 2 * HORIZON
        assert list(ahead.get_ydata()) == model.predict()["load"].tolist()
        bands = model.bundle.record.to_dict()["test"]["intervals"]["80"]["columns"]
        held = f"covered {100 * bands['load']['coverage']:.0f} %"
        covered = f"80 % ({held} before it was calibrated again)"
        assert [each.get_label() for each in axis.collections] == [covered]
        lines = model.plot(samples=7).axes[0].get_lines()
        assert len(lines) == 3 + 7
        for wrong in ({"future": {}}, {"level": 0.8}, {"level": [80]}):
            with pytest.raises(UsageError):
                model.plot(**wrong)
        levels = property(lambda _: (0.25, 0.5, 0.75))
        monkeypatch.setattr(type(model.bundle.intervals), "levels", levels)
        for level, shown in ((None, "50 %"), (30, "30 %")):  # at most the widest that there is
            (axis,) = model.plot(level=level).axes
            assert [each.get_label() for each in axis.collections] == [shown]

    def test_scenarios_are_drawn_with_their_difference(self, warm):
        futures = {"as it is": ahead_of(0), "5 degrees warmer": ahead_of(5)}
        above, below = warm.plot(future=futures).axes
        assert [line.get_label() for line in above.get_lines()][1:3] == [*futures]
        base, warmer = (warm.predict(future=each)["load"].to_numpy() for each in futures.values())
        assert list(below.get_lines()[0].get_ydata()) == list(warmer - base)

    def test_a_series_of_a_panel_is_chosen_by_its_name(self, panel):
        (axis,) = panel.plot(series="south").axes
        wanted = panel.predict().query("unique_id == 'south'")["y"].tolist()
        assert list(axis.get_lines()[1].get_ydata()) == wanted
        with pytest.raises(UsageError, match=r"no series 'sout'. Did you mean 'south'\?"):
            panel.plot(series="sout")
