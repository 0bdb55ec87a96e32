"""A model and its store, and how tests look at them."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

from forecaster.config.run_config import load_dict
from forecaster.forecast.bundle import FILES, MANIFEST
from forecaster.record import Contest, Training
from forecaster.tracking import texts
from tests.service.processes import free_port, wait_for
from tests.service.toy import make_bundle

NAME = "forecaster-toy-M-all-6"
CHAMPION = {"name": NAME, "version": "1", "alias": "champion"}
TASK = {"data.digest": "sha256:1", "borders": "[1, 2, 3]"}
TRAINED = Training(
    windows=1, peak_mib=None, expected_mib=1, epochs=1, seconds=6, best_epoch=1, steps=1,
    windows_per_second=9, still_falling=False,
)  # fmt: skip


def tracked_at(uri, **more):
    return load_dict({"track": {"uri": uri, **more}}, "the test")


def points(client, run, key):
    """Every value of a metric in the store, in its order."""
    return sorted((each.step, each.value) for each in client.get_metric_history(run, key))


def contents(folder):
    """The files of a bundle."""
    return {name: (folder / name).read_bytes() for name in (*FILES, MANIFEST)}


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


def complete(run, name):
    """Let a run with a folder end with a bundle, whose model is called `name`."""
    folder = run.held.folder
    bundle = make_bundle(folder)
    contest = Contest(errors=(0.5,) * 4, windows="those")
    record = bundle.record.model_copy(update={"train": TRAINED, "contest": contest})
    about = {**bundle.about, "name": name, "borders": [1, 2, 3]}
    bundle = replace(bundle, record=record, about=about).save(folder)
    run.held.finish()
    texts.tell(run, bundle, folder)


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
