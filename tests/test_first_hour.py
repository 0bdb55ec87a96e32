"""An analyst's first hour with two ordinary files, typing what the documents and `train` say.

The files are messy in ordinary ways: shops of which one is young and one has promotions, and a load
by its local clock with a temperature.
"""

import re
import shlex

import numpy as np
import pandas as pd
import pytest

from .forked import Forked, forked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's use of SQLAlchemy
]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    with forked(tmp_path_factory.mktemp("home")) as started:
        yield started.process


@pytest.fixture
def start(processes, tmp_path):
    return Forked(processes, tmp_path)


def shops(file):
    """Six shops by day, promotions known ahead, closed on Sundays; the last one is young."""
    random, parts = np.random.default_rng(0), []
    days = pd.date_range("2023-01-02", periods=500)
    for shop in range(6):
        own = days[-70:] if shop == 5 else days
        promo = random.random(len(own)) < 0.15
        week = 1 + 0.3 * np.sin(own.day_of_week * 2 * np.pi / 6)
        sales = (100 + 20 * shop) * week * (1 + 0.4 * promo) + random.normal(0, 5, len(own))
        table = pd.DataFrame({"date": own, "store": f"STORE{shop + 1:02}", "sales": sales.round(1)})
        table["promo"] = promo.astype(int)
        parts.append(table[own.day_of_week < 6])
    pd.concat(parts).to_csv(file, index=False)


def load(file):
    """A load by hours on the clock of Berlin, through both changes, with a temperature."""
    random = np.random.default_rng(1)
    times = pd.date_range("2025-03-01", periods=24 * 250, freq="h", tz="UTC")
    local, steps = times.tz_convert("Europe/Berlin").tz_localize(None), np.arange(len(times))
    noise = pd.Series(random.normal(0, 1, len(steps))).ewm(halflife=12).mean() * 8
    warm = 11 - 9 * np.cos(steps * 2 * np.pi / 24 / 365) + noise
    value = 900 + 150 * np.sin(steps * 2 * np.pi / 24) - 8 * warm + random.normal(0, 10, len(steps))
    table = pd.DataFrame({"Zeitpunkt": local.strftime("%d.%m.%Y %H:%M"), "Last MW": value.round(1)})
    table["Temperatur"] = warm.round(1)
    table.to_csv(file, index=False, sep=";", decimal=",")


def run(line, start):
    """Run a command line as it was printed; a refusal fails the test."""
    name, *words = shlex.split(line)
    assert name == "forecaster"
    job = start.start(*words)
    assert job.wait() == 0, f"{line}\n{job.out}\n{job.err}"
    return job


def walk(line, start, filled=""):
    """Train, then type what `train` printed. Returns what it said, the forecast, and the line.

    `filled` goes into the empty cells of the future. Every forecast lies inside its band.
    """
    done, folder = run(line, start), start.folder
    assert len(done.out.splitlines()) <= 11  # twelve with the registered name
    printed = dict(re.findall(r"^(fill in|forecast|look)\s+(forecaster .*)$", done.out, re.M))
    if "fill in" in printed:
        run(printed["fill in"], start)
        future = pd.read_csv(folder / "future.csv")
        future.fillna(float(filled)).to_csv(folder / "future.csv", index=False)
    run(f"{printed['forecast']} --levels 0.1,0.9 --output ahead.csv", start)
    run(printed["look"], start)
    ahead = pd.read_csv(folder / "ahead.csv")
    middle, low, high = (ahead.iloc[:, place] for place in (-3, -2, -1))
    assert ((low <= middle) & (middle <= high) & (low < high)).all()
    return done.out + done.err, ahead, printed["forecast"]


def test_shops(start, tmp_path):
    shops(tmp_path / "shops.csv")
    said, ahead, line = walk(
        "forecaster train --data shops.csv --target sales --id store --future-covariates promo "
        "--horizon 14 --epochs 2 --no-register", start, filled="0"
    )  # fmt: skip
    assert "Open hours: rows from Mon to Sat" in said
    assert "6 series" in said
    assert ahead["store"].nunique() == 6
    assert "Typical error of sales" in said
    told = run(line.partition(" --future")[0].replace("predict", "effects"), start).out
    assert re.search(r"promo on rather than off: sales \+", told)


def test_load(start, tmp_path):
    load(tmp_path / "load.csv")
    said, ahead, line = walk(
        'forecaster train --data load.csv --target "Last MW" --future-covariates Temperatur '
        "--horizon 24 --epochs 1 --no-register", start, filled="12"
    )  # fmt: skip
    assert "Summer time: skipped by the clock, and missing: 1 steps" in said
    told = run(line.partition(" --future")[0].replace("predict", "effects"), start).out
    effect = re.search(r"one more of Temperatur: Last MW ([-+.\d]+)", told)
    assert effect
    assert -9 < float(effect[1]) < -7
    assert len(ahead) == 24
