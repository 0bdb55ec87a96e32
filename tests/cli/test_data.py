import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import yaml


def test_lists(done):
    out, _ = done("data", "list")
    assert "\ntraffic-sensor0         Part of traffic: its first sensor alone" in out
    assert yaml.safe_load(done("data", "show", "traffic")[0])["columns"] == ["0..860", "OT"]
    assert Path(done("data", "fetch", "vic_elec")[0].strip()).name == "vic_elec.csv"


def test_a_check_without_a_window_ends_with_what_to_do(run):
    days = [pd.date_range(f"{year}-01-01", periods=90) for year in (2020, 2021, 2022)]
    table = pd.DataFrame({"day": np.concatenate(days), "milk": [*np.arange(90) % 7] * 3})
    table.assign(farm=table["day"].dt.strftime("of %Y")).to_csv("farms.csv", index=False)
    options = ("--id", "farm", "--horizon", "5", "--lookback", "80", "--split", "calendar")
    status, out, err = run("data", "check", "farms.csv", *options)
    assert (status, "train       to" in out) == (65, True)
    assert "no window of 80 + 5 steps fits into validation" in err
    assert "--split series" in err


def test_a_check_ends_with_the_command_that_trains(done):
    hours = np.arange(400)
    table = pd.DataFrame({"Date": pd.date_range("2024-01-01", periods=400, freq="h")})
    table[" Grid load"] = 50 + 9 * np.sin(hours * np.pi / 12) + hours % 5
    table = table.assign(**{"my wind": hours % 7, "note": "x"})
    table.to_csv("the load.csv", index=False)
    asked = ("--target", "Grid load", "--past-covariates", "my wind", "--set", "train.epochs=1",
             "--freq", "60min", "--set", "seed=1")  # fmt: skip
    out, err = done("data", "check", "the load.csv", "--horizon", "6", *asked)
    assert "The time is column 'Date'." in err
    label, command = out.splitlines()[-1].split("    ", 1)
    assert label == "to train"
    assert command == (
        "forecaster train --horizon 6 --data 'the load.csv' --target 'Grid load' "
        "--past-covariates 'my wind' --time Date --freq 60min --season 24 --lookback 48 "
        "--set train.epochs=1 --set seed=1"
    )
    _, *options = shlex.split(command)[1:]
    options.remove("--data")
    left = "Left out, without a role: 'note'. --past-covariates reads a column.\n"
    assert done("data", "check", *options) == (out, left)
    table.insert(1, "Hour", table["Date"].dt.hour)
    table.assign(Date=table["Date"].dt.date).to_csv("hours.csv", index=False)
    asked = ("--target", "my wind", "--time", "Date,Hour", "--horizon", "6")
    out, _ = done("data", "check", "hours.csv", *asked)
    assert " --time Date,Hour --freq h " in out.splitlines()[-1], "all columns of the time"
