"""Ordinary files that are not quite what was expected: each is read, or the error says what to do.

The cases are exports of programs, each smaller than a real one; all numbers are made up.
"""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest


def wave(steps, cycle=24):
    """A cycle of so many steps with some noise."""
    noise = np.random.default_rng(steps).normal(0, 3, steps)
    return (100 + 20 * np.sin(2 * np.pi * np.arange(steps) / cycle) + noise).round(2)


def hours(steps=600):
    return pd.date_range("2024-01-01", periods=steps, freq="h")


@pytest.fixture
def check(run, tmp_path, monkeypatch):
    """Check a file, which is written from a frame or from lines; returns status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(table, *options, name="file.csv", horizon=6):
        if isinstance(table, pd.DataFrame):
            table.to_csv(name, index=False)
        elif table is not None:
            (tmp_path / name).write_text("\n".join(table) + "\n", encoding="utf-8")
        return run("data", "check", name, "--horizon", horizon, "--no-picture", *options)

    return call


@pytest.fixture
def read(check):
    """Check a file that can be read; returns what it holds and what was said."""

    def call(*arguments, **more):
        status, out, err = check(*arguments, **more)
        assert status == 0, err
        return out, err

    return call


@pytest.fixture
def refused(check):
    """Check a file that is refused; returns the error."""

    def call(*arguments, **more):
        status, _, err = check(*arguments, **more)
        assert status == 65, err
        return err

    return call


class TestNames:
    def test_a_name_with_a_comma(self, read):
        table = pd.DataFrame({"time": hours(), "Energy, kWh": wave(600), "temp": wave(600)})
        for target in ("Energy, kWh", '"Energy, kWh"'):
            out, _ = read(table, "--target", target)
            assert "\ncolumn      Energy, kWh: target\n" in out
            assert f" --target '{target}' " in out
        both = [
            read(table, *options)[0]
            for options in (
                ("--target", "temp, Energy, kWh"),
                ("--target", 'temp,"Energy, kWh"'),
                ("--target", "temp", "--target", "Energy, kWh"),
            )
        ]
        assert len({out.rpartition("to train")[0] for out in both}) == 1
        assert """ --target 'temp,"Energy, kWh"' """ in both[1]
        assert """ --target 'temp,"Energy, kWh"' """ in both[2]

    def test_a_name_with_a_comma_from_python(self, tmp_path):
        program = (
            "import numpy as np, pandas as pd\n"
            "from forecaster import Forecaster\n"
            "time = pd.date_range('2024-01-01', periods=400, freq='h')\n"
            "frame = pd.DataFrame({'time': time, 'a, b': np.arange(400) % 24, 'a': 1.0})\n"
            "model = Forecaster(horizon=6, target=['a, b'], epochs=1, blend='cycle mean')\n"
            "print([*model.fit(frame).predict()])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout == "['time', 'a, b']\n", done.stderr
