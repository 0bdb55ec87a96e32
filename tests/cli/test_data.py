import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import yaml


class TestLists:
    def test_data(self, run, tmp_path):
        _, out, _ = run("data", "list")
        assert out.splitlines()[0].startswith("ETTh1 ")
        assert "\ntraffic-sensor0         Part of traffic: its first sensor alone" in out
        assert "\ntraffic                 Road occupancy at 862 sensors" in out
        _, wide, _ = run("data", "show", "traffic")
        assert yaml.safe_load(wide)["columns"] == ["0..860", "OT"]
        _, shown, _ = run("data", "show", "vic_elec")
        assert yaml.safe_load(shown)["target"] == "Demand"
        status, file, _ = run("data", "fetch", "vic_elec")
        assert status == 0
        assert Path(file.strip()).name == "vic_elec.csv"


class TestCheck:
    def test_a_part_without_a_window_ends_with_what_to_do(self, run):
        parts = [
            pd.DataFrame(
                {
                    "farm": str(year),
                    "day": pd.date_range(f"{year}-01-01", periods=90),
                    "milk": np.arange(90) % 7,
                }
            )
            for year in (2020, 2021, 2022)
        ]
        pd.concat(parts).to_csv("farms.csv", index=False)
        options = ("data", "check", "farms.csv", "--id", "farm", "--horizon", "5")
        status, out, err = run(*options, "--lookback", "20")
        assert status == 0
        assert "each series is cut by its own length instead" in err
        assert "validation  by length: 18 windows of 3 series" in out
        status, out, err = run(*options, "--lookback", "80", "--split", "calendar")
        assert status == 65
        assert "train       to" in out
        assert "no window of 80 + 5 steps fits into validation" in err
        assert "--split series" in err

    def test_it_ends_with_the_command_that_trains(self, run):
        hours = np.arange(400)
        table = pd.DataFrame(
            {
                "Date": pd.date_range("2024-01-01", periods=400, freq="h"),
                " Grid load": 50 + 9 * np.sin(hours * np.pi / 12) + hours % 5,
                "my wind": hours % 7,
                "note": "x",
            }
        )
        table.to_csv("the load.csv", index=False)
        asked = ("--target", "Grid load", "--past-covariates", "my wind", "--set", "train.epochs=1")
        status, out, err = run("data", "check", "the load.csv", "--horizon", "6", *asked)
        assert status == 0
        assert "The time is column 'Date'." in err
        label, command = out.splitlines()[-1].split("    ", 1)
        assert label == "to train"
        assert command == (
            "forecaster train --horizon 6 --data 'the load.csv' --target 'Grid load' "
            "--past-covariates 'my wind' --time Date --freq h --season 24 --lookback 48 "
            "--set train.epochs=1"
        )
        _, *options = shlex.split(command)[1:]
        options.remove("--data")
        status, again, err = run("data", "check", *options)
        assert (status, again) == (0, out)
        assert err == "Left out, without a role: 'note'. --past-covariates reads a column.\n"

    def test_the_command_names_all_columns_of_the_time(self, run):
        times = pd.date_range("2024-01-01", periods=400, freq="h")
        table = pd.DataFrame({"Date": times.date, "Hour": times.hour, "v": np.arange(400) % 7})
        table.to_csv("hours.csv", index=False)
        _, out, _ = run("data", "check", "hours.csv", "--time", "Date,Hour", "--horizon", "6")
        assert " --time Date,Hour --freq h " in out.splitlines()[-1]
