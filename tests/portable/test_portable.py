"""Commands as on macOS and on Windows; sitecustomize.py says what is hidden from them."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.base.spelling import in_shell
from tests.service.processes import free_port

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CALL = [sys.executable, "-c", "from forecaster.cli import main; main()"]
ONE_BY_ONE = """
import json, sys
from forecaster import Forecaster, cli
cli.leave = sys.exit
for words in json.loads(sys.argv[1]):
    sys.argv = ["forecaster", *words]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, words
Forecaster.load(words[1]).save("copy")
Forecaster.load("copy").save("copy")  # over the files that it was read from
"""


class Elsewhere:
    """A folder on another system, in which commands are run."""

    def __init__(self, system, folder):
        path = os.pathsep.join(map(str, (HERE, ROOT, ROOT / "service")))
        self.folder = folder
        self.how = {
            "cwd": folder,
            "env": {
                **os.environ, "FORECASTER_SIMULATES": system, "PYTHONPATH": path,
                "PYTHONWARNDEFAULTENCODING": "1",
                "PYTHONIOENCODING": "cp1252" if system == "win32" else "utf-8",
                "MLFLOW_TRACKING_URI": "",
            },
        }  # fmt: skip

    def run(self, *words, call=CALL):
        done = subprocess.run(
            [*call, *words], capture_output=True, check=False, timeout=240, **self.how
        )
        errors = done.stderr.decode()
        assert "defect" not in errors, errors
        return done.returncode, done.stdout.decode(), errors

    def out(self, *words, call=CALL):
        status, out, errors = self.run(*words, call=call)
        assert status == 0, errors
        assert "\r" not in out  # Windows adds it to each line
        return out


SYSTEMS = [pytest.param("darwin", marks=pytest.mark.long), "win32"]
"""Windows lacks all that macOS does, and more."""


@pytest.fixture(scope="module", params=SYSTEMS)
def elsewhere(request, tmp_path_factory):
    """A system with a file of sales and one run."""
    place = Elsewhere(request.param, tmp_path_factory.mktemp(request.param))
    days = pd.date_range("2025-01-01", periods=400)
    sales = 50 + 20 * (days.day_of_week == 6) + np.random.default_rng(0).normal(0, 3, 400)
    pd.DataFrame({"day": days, "Umsätze €": sales}).to_csv(place.folder / "sales.csv", index=False)
    place.out("train", "--data", "sales.csv", "--horizon", "7", "--epochs", "1", "--json")
    (run,) = (place.folder / "runs").iterdir()
    place.model = str(run.relative_to(place.folder))
    return place


@pytest.mark.slow
def test_a_run_is_forecast_judged_and_described(elsewhere):
    commands = [
        ("predict",),
        ("predict", "--output", "ahead.csv"),
        ("predict", "--input", "sales.csv", "--ledger", "kept"),
        ("evaluate",),
    ]
    commands = [(*words, "--model", elsewhere.model) for words in commands]
    commands += [("doctor",), ("report", elsewhere.model)]
    out = elsewhere.out(json.dumps(commands), call=[sys.executable, "-c", ONE_BY_ONE])
    assert "Umsätze €" in out
    assert "no problem" in out
    assert (elsewhere.folder / "ahead.csv").read_bytes().count(b"\n") == 8
    assert (elsewhere.folder / "report.html").stat().st_size > 10_000


@pytest.mark.long
def test_python_and_compare(elsewhere):
    code = (
        "import pandas as pd; from forecaster import Forecaster\n"
        "frame = pd.read_csv('sales.csv', parse_dates=['day'])\n"
        "print(len(Forecaster('prob', 7, epochs=1).fit(frame).predict()))"
    )
    assert elsewhere.out(call=[sys.executable, "-c", code]).strip() == "7"
    words = ("--attn", "prob", "--horizon", "7", "--data", "sales.csv", "--seeds", "1")
    elsewhere.out("compare", *words, "--grid", "small", "--steps", "2")


@pytest.mark.slow
def test_serve(elsewhere):
    port = free_port()
    status, _, errors = elsewhere.run("serve", "--model", elsewhere.model, "--workers", "2")
    assert (status, "--workers needs Linux" in errors) == (2, True)
    command = [*CALL, "serve", "--model", elsewhere.model, "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, **elsewhere.how) as service:
        try:
            for _ in range(300):
                try:
                    return _ask(f"http://127.0.0.1:{port}")
                except (OSError, ValueError):  # it loads its model
                    time.sleep(0.1)
            raise AssertionError(service.stderr.read1())
        finally:
            service.terminate()


def _ask(url):
    """Forecast the example of the only model."""
    with urllib.request.urlopen(f"{url}/models", timeout=10) as answer:
        (model,) = json.load(answer)["models"]
    with urllib.request.urlopen(f"{url}/models/{model['name']}/example", timeout=10) as answer:
        example = answer.read()
    asked = urllib.request.Request(f"{url}/predict", example, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert len(json.load(answer)["predictions"]) == 1


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_file_is_read(system, tmp_path):
    place = Elsewhere(system, tmp_path)
    rows = "".join(f"{day.date()},{day.day}\n" for day in pd.date_range("2025-01-01", periods=99))
    (tmp_path / "sales.csv").write_text(f"day,n\n{rows}")
    assert "2025-01-01" in place.out("data", "check", "sales.csv", "--horizon", "7", "--no-picture")


@pytest.mark.parametrize(
    ("system", "words", "typed"),
    [
        ("linux", ["--data", "my sales.csv"], "--data 'my sales.csv'"),
        ("win32", ["--data", "C:\\my sales\\a.csv"], '--data "C:\\my sales\\a.csv"'),
        ("win32", ["--data", "C:\\sales\\a.csv"], "--data C:\\sales\\a.csv"),
        ("win32", ["--target", 'a"b|c'], '--target "a\\"b|c"'),
    ],
)
def test_printed_commands_are_quoted_for_the_shell(monkeypatch, system, words, typed):
    monkeypatch.setattr(sys, "platform", system)
    assert in_shell(words) == typed
