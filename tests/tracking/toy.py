"""A model and its store, and how tests look at them."""

import os
import signal
import subprocess
import sys

from forecaster.config.run_config import load_dict
from forecaster.tracking import notes
from tests.service.processes import free_port, wait_for

NAME = "forecaster-toy-M-all-6"
CHAMPION = {"name": NAME, "version": "1", "alias": "champion"}
TASK = {"data.digest": "sha256:1", "borders": "[1, 2, 3]"}
WATCHED = load_dict({"track": {"system_metrics": True}}, "the test")


def tracked_at(uri, **more):
    return load_dict({"track": {"uri": uri, **more}}, "the test")


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


class Server:
    """An MLflow server that can be killed and started again."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
                    *("--port", str(self.port), "--workers", "1"),
                    *("--backend-store-uri", f"sqlite:///{self.folder}/served.db"),
                    *("--artifacts-destination", str(self.folder / "served")),
                ],
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(f"{self.address}/health", self.process, self.folder / "log", 240)

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
