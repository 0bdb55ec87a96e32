import json
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
    left = "Left out, without a role: 'note'. --past-covariates reads a column, "
    left += "--future-covariates one that is known ahead.\n"
    assert done("data", "check", *options) == (out, left)
    table.insert(1, "Hour", table["Date"].dt.hour)
    table.assign(Date=table["Date"].dt.date).to_csv("hours.csv", index=False)
    asked = ("--target", "my wind", "--time", "Date,Hour", "--horizon", "6")
    out, _ = done("data", "check", "hours.csv", *asked)
    assert " --time Date,Hour --freq h " in out.splitlines()[-1], "all columns of the time"


def test_a_check_without_its_picture_still_reports(run, done):
    hours = pd.date_range("2024-01-01", periods=400, freq="h")
    pd.DataFrame({"time": hours, "y": np.arange(400) % 24}).to_csv("load.csv", index=False)
    asked = ("data", "check", "load.csv", "--horizon", "6")
    drawn, _ = done(*asked)
    assert "picture     load-check.png\n" in drawn
    Path("load-check.png").unlink()
    none, _ = done(*asked, "--no-picture")
    assert none == drawn.replace("picture     load-check.png\n", "")
    assert not Path("load-check.png").exists()
    Path("load-check.png").mkdir()  # as in a folder that cannot be written to
    out, err = done(*asked)
    assert out == none
    assert "could not be written" in err
    assert "--picture names another place, --no-picture draws none" in err
    assert json.loads(done(*asked, "--json")[0])["picture"] is None
    status, out, _ = run(*asked, "--picture", "nowhere/load.png")
    assert (status, out) == (74, none)


def test_a_column_with_the_name_of_a_quantile_is_refused_before_training(refused, done):
    hours = pd.date_range("2024-01-01", periods=400, freq="h")
    table = pd.DataFrame({"time": hours, "latency": np.arange(400) % 24})
    table["latency 0.5"] = table["latency"]
    table.to_csv("latency.csv", index=False)
    for command in (("data", "check", "latency.csv"), ("train", "--data", "latency.csv")):
        err = refused(2, *command, "--horizon", "6")
        assert "would both be called 'latency 0.5'; rename the column" in err
    assert "--target 'latency 0.5'" in err
    done("data", "check", "latency.csv", "--horizon", "6", "--target", "latency 0.5")
