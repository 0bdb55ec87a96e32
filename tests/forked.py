"""Commands in processes that start at once: they are forked from one that has imported everything.

They behave as if started separately, except for the seconds that imports would take.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, signal, sys
import torch
torch.set_num_threads(1)
import forecaster.cli, forecaster.run.experiment, forecaster.tracking.run
import forecaster.train.run
import matplotlib.pyplot, mlflow.pyfunc, mlflow.store.tracking.sqlalchemy_store
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        for number in (signal.SIGINT, signal.SIGTERM):  # a background job may ignore them
            signal.signal(number, signal.SIG_DFL)
        os.chdir(job["folder"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["forecaster", *job["arguments"]]
        forecaster.cli.main()
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@dataclass
class Job:
    """A command under way; its output is in files of its working directory."""

    id: int
    folder: Path
    answers: Any

    def reach(self, words: str) -> None:
        """Wait until it has printed this, or has ended."""
        while words not in self.err and Path(f"/proc/{self.id}").exists():
            time.sleep(0.005)

    def wait(self) -> int:
        """Its exit status, or minus the signal that ended it."""
        return int(self.answers.readline())

    @property
    def err(self) -> str:
        file = self.folder / "err"
        return file.read_text() if file.exists() else ""

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()


class Forked:
    """Starts one command after another in a folder."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process, self.folder = process, folder

    def start(self, *arguments: str) -> Job:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for name in ("out", "err"):  # those of the previous command
            (self.folder / name).unlink(missing_ok=True)
        job = {"folder": str(self.folder), "arguments": arguments}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return Job(int(self.process.stdout.readline()), self.folder, self.process.stdout)


@contextmanager
def forked(folder: Path) -> Iterator[Forked]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FORECASTER_", "MLFLOW_"))
    }
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        yield Forked(process, folder)
        process.stdin.close()
