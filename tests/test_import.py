"""Importing the package changes nothing for the program that imports it."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import importlib, json, logging, os, signal, sys, threading, warnings

def state():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "files": sorted(os.listdir()),
        "threads": threading.active_count(),
        "warnings": list(map(str, warnings.filters)),
        "handlers": list(map(str, [logging.root.level, *logging.root.handlers])),
        "signals": [str(signal.getsignal(number)) for number in numbers],
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(warnings.showwarning)],
    }

modules, others = sys.argv[1].split(), sys.argv[2].split()
for name in others:
    importlib.import_module(name)
before = state()
for name in modules:
    importlib.import_module(name)
after = state()
print(json.dumps({key: [before[key], after[key]] for key in before if before[key] != after[key]}))
"""
OTHERS = "torch pandas pyarrow requests"
"""Packages that change something themselves."""


@pytest.mark.parametrize(
    ("modules", "others"),
    [
        ("forecaster forecaster.errors forecaster.cli", ""),
        ("forecaster.estimator forecaster.client forecaster_service.app", f"{OTHERS} fastapi"),
        ("forecaster forecaster.train.fit forecaster.tracking.run", f"{OTHERS} lightning mlflow"),
    ],
)
def test_it_changes_nothing(modules, others, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    command = [sys.executable, "-c", PROGRAM, modules, others]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    changed = json.loads(done.stdout.splitlines()[-1])
    before, after = changed.pop("environment", ({}, {}))
    assert {name for name in after if after[name] != before.get(name)} <= {"GOMP_SPINCOUNT"}
    assert changed == {}
