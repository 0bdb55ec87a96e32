"""A model and its store, and how tests look at them."""

import os
import subprocess
import sys

from forecaster.config import load_dict
from forecaster.tracking import notes

NAME = "forecaster-toy-M-all-6"
CHAMPION = {"name": NAME, "version": "1", "alias": "champion"}
TASK = {"data.digest": "sha256:1", "borders": "[1, 2, 3]"}
WATCHED = load_dict({"track": {"system_metrics": True}}, "the test")
ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")


def tracked_at(uri):
    return load_dict({"track": {"uri": uri}}, "the test")


def points(client, run, key):
    """Every value of a metric in the store, in its order."""
    return sorted((each.step, each.value) for each in client.get_metric_history(run, key))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def command(*arguments, **environment):
    """Run Python without the settings of the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DO_NOT_TRACK"))}
    return subprocess.run(
        [sys.executable, *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def noted(name, key, **values):
    """The folder of a run that has just begun."""
    about = {"uri": "sqlite:///x", "experiment": "x", "begun": 0, "process": notes.process()}
    return notes.begin(
        notes.Noted(**{"key": key, "id": key, "name": name, "tags": {}, **about, **values})
    )
