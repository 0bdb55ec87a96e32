"""Commands in processes that start at once: they are forked from one that has imported everything.

They behave as if started separately, except for the seconds that imports would take.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

PROGRAM = """
import json, os, signal, sys
import torch
torch.set_num_threads(1)
import forecaster.cli, forecaster.run.train, forecaster.tracking.run
import forecaster.train.fit
import matplotlib.pyplot, mlflow.pyfunc, mlflow.store.tracking.sqlalchemy_store
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, int):
        _, status = os.waitpid(asked, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        continue
    child = os.fork()
    if not child:
        for number in (signal.SIGINT, signal.SIGTERM):  # a background job may ignore them
            signal.signal(number, signal.SIG_DFL)
        os.chdir(asked["folder"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{os.getpid()}", os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["forecaster", *asked["arguments"]]
        forecaster.cli.main()
    print(child, flush=True)
"""


@dataclass
class Job:
    """A command under way; its output is in files of its working directory."""

    id: int
    forked: "Forked"

    def reach(self, words):
        """Wait until it has printed this, or has ended."""
        process = psutil.Process(self.id)
        while words not in self.err and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.005)

    def wait(self):
        """Its exit status, or minus the signal that ended it."""
        return self.forked.ask(self.id)

    @property
    def err(self):
        file = self.forked.folder / f"err.{self.id}"
        return file.read_text() if file.exists() else ""

    @property
    def out(self):
        return (self.forked.folder / f"out.{self.id}").read_text()


class Forked:
    """Starts commands in a folder."""

    def __init__(self, process, folder):
        self.process, self.folder = process, folder

    def ask(self, what):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, *arguments):
        return Job(self.ask({"folder": str(self.folder), "arguments": arguments}), self)


@contextmanager
def forked(folder):
    ours = ("FORECASTER_", "MLFLOW_")
    environment = {key: each for key, each in os.environ.items() if not key.startswith(ours)}
    command, pipe = [sys.executable, "-c", PROGRAM], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Forked(process, folder)
        process.stdin.close()
