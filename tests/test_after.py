"""After the forecast, by commands alone: a shift is seen, and the model renews itself.

Hourly values arrive for 75 days at a service of two processes; on day 30 their level rises.
docs/after.md shows the picture:

    AFTER_PICTURE=docs/pictures/after.png pytest -m long tests/test_after.py
"""

import json
import os
import re
import shutil
import sys
from threading import Event, Thread

import numpy as np
import pandas as pd
import pytest

from forecaster.forecast import kept
from forecaster.forecast.predictor import load_bundle
from forecaster.record.look import look
from tests.forked import forked
from tests.service.processes import Server, free_port, running, until, wait_for

pytestmark = pytest.mark.long

BEFORE, SHIFTED, RENEWED, DAYS = 120, 30, 60, 75
"""The days of training; then the day of the shift, of the renewal, and the last one."""
KEPT, CALM = 10, 11
PICTURE = os.environ.get("AFTER_PICTURE")
"""A file to which the picture is written, too."""


def values():
    random, hours = np.random.default_rng(0), np.arange(24 * (BEFORE + DAYS))
    noise = pd.Series(random.normal(size=len(hours))).ewm(alpha=0.3).mean() * 3
    load = 100 + 10 * np.sin(hours * np.pi / 12) + 4 * np.sin(hours * np.pi / 84) + noise
    load[24 * (BEFORE + SHIFTED) :] += 35
    times = pd.date_range("2026-01-01", periods=len(hours), freq="h")
    return pd.DataFrame({"time": times, "load": load.round(2)})


@pytest.fixture
def forecaster(tmp_path):
    """Runs the command in a process of its own; returns what it prints."""
    with forked(tmp_path) as start:

        def run(*words, code=0):
            job = start.start(*map(str, words))
            assert job.wait() == code, f"{words}\n{job.out}\n{job.err}"
            return job.out

        yield run


def test_a_shift_is_seen_and_the_model_renews_itself(forecaster, tmp_path):
    table = values()
    table[: 24 * BEFORE].to_csv(tmp_path / "load.csv", index=False)
    said = forecaster("train", "--data", "load.csv", "--horizon", 24, "--epochs", 1,
                      "--no-register")  # fmt: skip
    found = re.search(r"^bundle\s+(\S+)$", said, re.M)
    assert found
    shutil.copytree(tmp_path / found[1], tmp_path / "serving")
    keys = {name: forecaster("serve", "--new-key", name) for name in ("anna", "eve")}
    secret = {name: re.findall(r"\S{30,}", text)[0] for name, text in keys.items()}
    hashed = [re.findall(r"(\w+:[0-9a-f]{64})", text)[0] for text in keys.values()]
    port, log = free_port(), tmp_path / "log"
    settings = {
        "FORECASTER_LEDGER": "ledger", "FORECASTER_API_KEYS": ",".join(hashed),
        "FORECASTER_ACTUALS_KEYS": "anna", "FORECASTER_POLL_SECONDS": "0.5",
    }  # fmt: skip
    serve = [sys.executable, "-m", "forecaster", "serve", "--model", "serving", "--port", str(port),
             "--workers", "2"]  # fmt: skip
    with running(serve, settings, tmp_path, log) as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        anna, eve = (Server(port, headers={"Authorization": f"Bearer {secret[name]}"})
                     for name in ("anna", "eve"))  # fmt: skip
        (card,) = anna.get("/models")["models"]

        def arrive(day, client=anna, off=0.0):
            own = table[: 24 * (BEFORE + day)].tail(card["look_back"])
            body = {"start": own["time"].iloc[0].isoformat(), "target": [*(own["load"] + off)]}
            return client.post("/predict", {**body, "quantile_levels": [0.1]})

        def scored(steps):
            promise = kept.promise(load_bundle(str(tmp_path / "serving")))

            def there():
                return (ledger / "actuals").is_dir() and len(look(ledger, promise).rows) == steps

            until(there)
            return json.loads(forecaster(*score, "--json"))

        ledger, score = tmp_path / "ledger", ("score", "--model", "serving", "--ledger", "ledger")
        renew = ("renew", "--model", "serving", "--data", "load.csv", "--ledger", "ledger",
                 "--if-alarmed", "--to", "serving")  # fmt: skip
        for day in range(SHIFTED):
            arrive(day, eve, 500.0)  # a stranger says nothing, and asks first
            arrive(day)
            arrive(day)  # what is asked twice counts once
        assert not any(each["since"] for each in scored(24 * (SHIFTED - 1))["alarms"])
        table[: 24 * (BEFORE + SHIFTED)].to_csv(tmp_path / "load.csv", index=False)
        forecaster(*renew, code=CALM)

        for day in range(SHIFTED, RENEWED):
            arrive(day)
        alarms = {each["what"]: each["since"] for each in scored(24 * (RENEWED - 1))["alarms"]}
        for since in alarms.values():
            assert since, alarms
            late = pd.Timestamp(since) - table["time"].iloc[24 * (BEFORE + SHIFTED) - 1]
            assert late <= pd.Timedelta(days=14)

        table[: 24 * (BEFORE + RENEWED)].to_csv(tmp_path / "load.csv", index=False)
        answered, ending = [arrive(RENEWED)["model"]["digest"]], Event()

        def ask():
            while not ending.is_set():
                answered.append(arrive(RENEWED)["model"]["digest"])  # raises what a client gets

        asking = Thread(target=ask)
        asking.start()
        try:
            forecaster(*renew)
            until(lambda: card["digest"] not in answered[-30:])  # in both processes
        finally:
            ending.set()
            asking.join()
        assert len(set(answered)) == 2, "each answer is one model's"
        for day in range(RENEWED, DAYS):
            arrive(day)
        live = scored(24 * (DAYS - RENEWED - 1))
        assert not any(each["since"] for each in live["alarms"])

    picture = PICTURE or "live.png"
    told = json.loads(forecaster(*score, "--picture", picture, "--json"))
    old = json.loads(forecaster("score", "--model", found[1], "--ledger", "ledger",
                                "--json"))  # fmt: skip
    before, after = (each["periods"][-1] for each in (old, told))
    assert after["mae"] < before["mae"] / 3
    assert after["against_naive"] < 1 < before["against_naive"]
