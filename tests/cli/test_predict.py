import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.config.run_config import load
from forecaster.datasets.calendar import future_times
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.bundle import Bundle
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.record import Record
from tests.bundles import COLUMNS, blended, unsaved, warning
from tests.datasets.reader import test_clock
from tests.forecast.test_predictor import history


class TestPredict:
    def test_a_table_on_stdout_or_in_a_file(self, folder, csv, done):
        arguments = ("predict", "--model", folder, "--input", csv, "--horizon", "2")
        out, err = done(*arguments)
        head, first, _ = out.splitlines()
        assert head == ",".join(["time", *COLUMNS])
        assert err.splitlines()[2].split() == ["2026-03-01", "16:00:00", "10", "-3.5", "400"]
        assert first.startswith("2026-03-01 16:00:00,10.0")
        for name, read in (("a.csv", pd.read_csv), ("a.parquet", pd.read_parquet)):
            assert done(*arguments, "--output", name) == ("", f"wrote 2 rows to {name}\n")
            frame = read(name).astype({"time": "datetime64[us]"})
            pd.testing.assert_frame_equal(frame, pd.read_csv(StringIO(out), parse_dates=["time"]))

    def test_a_folder_of_files(self, folder, done, refused, tmp_path):
        for name in "ab":
            history().to_csv(tmp_path / f"{name}.csv", index=False)
        predict = ("predict", "--model", folder, "--horizon", "2", "--input")
        arguments = (*predict, tmp_path / "?.csv", "--output", "ahead")
        assert done(*arguments) == ("", "wrote 4 rows to 2 files in ahead, kept 0 others\n")
        assert Path("ahead/a.csv").read_text() == done(*predict, tmp_path / "a.csv")[0]
        assert json.loads(done(*arguments, "--json")[0]) == {"written": 0, "kept": 2, "rows": 0}
        history()[["time"]].to_csv(tmp_path / "c.csv", index=False)
        assert "c.csv" in refused(65, *arguments)
        assert "horizon: 2 there, 3 here" in refused(2, *arguments, "--horizon", "3")

    def test_options_that_do_not_fit(self, folder, csv, refused):
        predict = ("predict", "--model", folder)
        many = (*predict, "--input", csv)
        for words, arguments in {
            "this model forecasts 1 to 6 steps, got horizon=99": (*many, "--horizon", "99"),
            "--gpus needs --ray": (*many, "--gpus", "0.5"),
            "--output FOLDER needs --input": predict,
            "--ledger needs --model, and no --output FOLDER": (*many, "--ledger", "kept"),
        }.items():
            assert words in refused(2, *arguments, "--output", "out")
        words = "--ray needs --model, --input with the files and --output FOLDER"
        assert words in refused(2, *many, "--ray", "local")
        assert not Path("out").exists()

    def test_what_it_is_made_of_and_a_short_history(self, done, refused, tmp_path):
        blended(unsaved(), network=0.5, cycle=0.3, last=0.2).save(tmp_path / "blend")
        history(rows=9).to_csv("short.csv", index=False)
        arguments = ("predict", "--model", tmp_path / "blend", "--input", "short.csv")
        made = "made of 50 % network + 30 % cycle mean + 20 % last value\n"
        err = refused(65, *arguments)
        assert err.startswith(made)
        assert "has 9 rows, the model needs 12: give at least 12 rows; short_history=drop" in err
        out, err = done(*arguments, "--short-history", "drop", "--json")
        assert err.startswith(made)
        assert "forecast by 60 % cycle mean + 40 % last value alone" in err
        assert len(json.loads(out)) == 6

    def test_quantiles_beside_the_forecast(self, csv, done, refused, tmp_path):
        unsaved(calibrated=True).save(tmp_path / "with")
        arguments = ("predict", "--model", tmp_path / "with", "--input", csv)
        out, err = done(*arguments, "--levels", "0.9, 0.1")
        names = [f"{column}{level}" for column in COLUMNS for level in ("", " 0.1", " 0.9")]
        assert out.splitlines()[0] == ",".join(["time", *names])
        assert "10 (9 to 12)" in err
        rounded, err = done(*arguments, "--digits", "0")
        assert rounded.splitlines()[0] == ",".join(["time", *COLUMNS]), "nobody asked for levels"
        assert rounded.splitlines()[1] == "2026-03-01 16:00:00,10.0,-4.0,400.0"
        assert "10 (9 to 12)" in err
        assert out.splitlines()[1].startswith("2026-03-01 16:00:00,10.0,9.0,12.0,")
        for levels, words in (("0.1;0.9", "got '0.1;0.9'"), ("0.99", "from 0.1 to 0.9, got 0.99")):
            assert words in refused(2, *arguments, "--levels", levels)

    def test_paths_and_totals(self, csv, done, refused, tmp_path):
        unsaved(calibrated=True).save(tmp_path / "with")
        arguments = ("predict", "--model", tmp_path / "with", "--input", csv)
        out, err = done(*arguments, "--samples", "3", "--picture", "p.svg")
        table = pd.read_csv(StringIO(out))
        assert [*table] == ["time", "sample", *COLUMNS]
        assert table["sample"].tolist() == [1] * 6 + [2] * 6 + [3] * 6
        assert err == "drew the forecast to p.svg\n"
        out, err = done(*arguments, "--total", "horizon", "--horizon", "4")
        table = pd.read_csv(StringIO(out))
        names = [f"{column}{level}" for column in COLUMNS for level in ("", " 0.1", " 0.9")]
        assert [*table] == ["time", *names]
        assert table["load"].tolist() == [50.0]
        assert "50 (31 to 69)" in err
        assert (
            done(*arguments, "--total", "horizon", "--levels", "0.5", "--json")[0].count("0.5") == 3
        )
        for words, options in (
            ("no whole day lies in the 6 steps", ("--total", "day")),
            ("no sums by 'load': this model forecasts one series", ("--by", "load")),
            ("expected no levels, total or by", ("--samples", "3", "--levels", "0.5")),
            ("at most 67,108,864 values of paths", ("--samples", str(10**7))),
        ):
            assert words in refused(65 if "whole" in words else 2, *arguments, *options)

    def test_what_stands_out_goes_to_stderr(self, csv, done, tmp_path):
        warning(unsaved(calibrated=True)).save(tmp_path / "lost")
        arguments = ("--model", tmp_path / "lost", "--input", csv, "--levels", "0.1,0.9")
        out, err = done("predict", *arguments, "--json")
        told = ("best floor", "80 % band", "first step", "unlike")
        for line, words in zip(err.splitlines(), told, strict=True):
            assert words in line
            assert words not in out

    def test_json_is_exact_however_small_the_values(self, done, tmp_path):
        bundle = unsaved(timezone="UTC")
        small = Scaler([1e-30] * 3, [1e-30] * 3)
        replace(bundle, schema=replace(bundle.schema, scaler=small)).save(tmp_path / "small")
        history().set_index("time").mul(1e-30).reset_index().to_parquet("small.parquet")
        asked = ("predict", "--model", tmp_path / "small", "--input", "small.parquet", "--json")
        rows = json.loads(done(*asked)[0])
        assert rows[0]["time"] == "2026-03-01T16:00:00+00:00"
        assert rows[0]["load"] == pytest.approx(10e-30, rel=1e-5)

    def test_without_input_the_models_own_data_go_on(self, csv, done, tmp_path):
        bundle = unsaved()
        data = bundle.config.data.model_copy(update={"path": csv})
        config = bundle.config.model_copy(update={"data": data})
        replace(bundle, config=config).save(tmp_path / "own")
        out, err = done("predict", "--model", tmp_path / "own")
        assert err.startswith(f"history: {csv}\n")
        done("predict", "--model", tmp_path / "own", "--picture", "ahead.svg", "--output", "a.csv")
        assert Path("ahead.svg").stat().st_size > 9_000
        assert out.splitlines()[1].startswith("2026-03-01 16:00:00,10.0")


HOURS = pd.date_range("2020-01-28", periods=40, freq="h")
GAP = pd.date_range("2020-01-01", "2020-01-13", freq="6h", inclusive="left").delete(9)
STRETCHES = [(x, {"time": test_clock.written(x, form)}, {}) for form, x in test_clock.FORMS.items()]
STRETCHES += [
    (HOURS, {"Date": HOURS.strftime("%d.%m.%Y"), "Hour": HOURS.hour}, {"time": "Date,Hour"}),
    (GAP, {"time": GAP.strftime("%m/%d/%Y %H:%M")}, {"stamps": "month-first", "policy": "sort"}),
]


@pytest.mark.parametrize(("times", "columns", "reading"), STRETCHES)
def test_any_stretch_of_the_training_file_is_taken(times, columns, reading, done):
    """However its stamps are written, as far as it has the steps of the look-back."""
    table = pd.DataFrame(columns)
    table["v"] = np.arange(len(table)) % 7 + 0.5
    table.to_csv("sales.csv", index=False)
    sets = ["window.past=8", "model.parts=1", "model.width=4"]
    flags = {"data": "sales.csv", "target": "v", "season": [7], "horizon": 3, **reading}
    splits = make_splits(make_plan(*find_data(load(None, sets, flags, {}), lambda text: None)))
    weights = dict(splits.build_model().state_dict())
    about = {"name": splits.plan.name, "refit": False, "intervals": "none"}
    Bundle(splits.plan.config, splits.schema, weights, Record(), about).save(Path("bundle"))
    for first in (0, 3, len(times) - 8):
        table[first : first + 8].to_csv("part.csv", index=False)
        out, err = done("predict", "--model", "bundle", "--input", "part.csv")
        assert "otherwise" not in err
        ahead = pd.read_csv(StringIO(out), parse_dates=[next(iter(columns))])
        expected = future_times(times[first + 7], 3, splits.schema.freq)
        assert list(ahead.iloc[:, 0].dt.tz_localize(None)) == list(expected)
