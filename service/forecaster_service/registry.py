"""Models by name: a child process asks MLflow, which the service never imports, for all of them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any, TypeAlias

from forecaster.base.atomic import write
from forecaster.base.errors import ForecasterError, UnavailableError, of_status
from forecaster_service.logs import logger
from forecaster_service.settings import Settings

FIRST = 300.0
"""Seconds for which a question waits for the first answer of MLflow."""
LONGEST_PAUSE = 60.0
"""The longest pause, in seconds, before a new child is started after one that ended."""
LINE = 4096
"""The most bytes of the child's last line on stderr, which is the reason why it ended."""

State: TypeAlias = dict[str, str]
"""What a name resolves to: equal as long as it is the same model."""


class Found:
    """The source of models that are not folders: the registry as `python -m forecaster.tracking
    watch` has last found it, in the folder `place`: what names resolve to in found.json, and each
    bundle in a folder of its own. Calls may come from any thread."""

    def __init__(self, place: Path) -> None:
        self.place, self.ending = place, Event()

    def state(self, name: str) -> State:
        """What a name resolves to now: "name", "version" and "source", and "alias" where an alias
        was resolved; the state of a run is empty.

        Raises UsageError that states which models there are if there is no such model, and
        UnavailableError, or another ForecasterError, if the registry cannot answer.
        """
        answer = self._read(name)
        _check(answer)
        state: State = answer["state"]
        return state

    def fetch(self, name: str, folder: Path) -> State:
        """Copy the bundle behind a name to a folder, which is created if need be; return its state.
        While the registry cannot answer, it is the last one. Raises as `state` does."""
        answer = self._read(name)
        if "folder" not in answer:
            _check(answer)
        try:
            shutil.copytree(self.place / answer["folder"], folder, dirs_exist_ok=True)
        except OSError:
            raise UnavailableError(f"the bundle of {name} was replaced meanwhile") from None
        state: State = answer["state"]
        return state

    def close(self) -> None:
        """Wait for nothing more."""
        self.ending.set()

    def _read(self, name: str) -> dict[str, Any]:
        file, end = self.place / "found.json", monotonic() + FIRST
        while not file.exists():
            if self.ending.is_set() or monotonic() > end:
                raise UnavailableError("MLflow has not been asked yet")
            sleep(0.05)
        answer: dict[str, Any] = json.loads(file.read_bytes())[name]
        return answer


def _check(answer: dict[str, Any]) -> None:
    if "error" in answer:
        raise of_status(answer["status"])(answer["error"])


class Child(Found):
    """The registry of MLflow, which a child process of its own watches for the models of the
    settings: it takes 200 MB, so there is one, however many processes serve.

    Where the child ends, another is started after a pause that doubles each time, and meanwhile its
    last words are the error of all names. The child ends when this process does, however that
    happens, because its input ends then, and deletes the folder. It gets no variable FORECASTER_*
    of this process.
    """

    def __init__(self, settings: Settings) -> None:
        self.names = [model for model in settings.models if not Path(model).is_dir()]
        super().__init__(Path(mkdtemp(prefix="forecaster-models-") if self.names else os.devnull))
        watch = [sys.executable, "-m", "forecaster.tracking", "watch"]
        self._command = [*watch, str(self.place), str(settings.poll_seconds), *self.names]
        self._living = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if self.names:
            Thread(target=self._keep, name="registry", daemon=True).start()

    def close(self) -> None:
        with self._living:
            self.ending.set()
            if self._process:
                self._process.kill()
                self._process.wait()
        if self.names:
            shutil.rmtree(self.place, ignore_errors=True)

    def _keep(self) -> None:
        pause = 1.0
        while not self.ending.is_set():
            began = monotonic()
            try:
                self._tell(self._run())
            except (OSError, ForecasterError):  # no process, or no room for a file
                logger().exception("the registry cannot be watched")
            if monotonic() - began > LONGEST_PAUSE:
                pause = 1.0
            self.ending.wait(pause := min(2 * pause, LONGEST_PAUSE))

    def _run(self) -> str:
        """Run a child until it ends; returns how it did."""
        others = {name: v for name, v in os.environ.items() if not name.startswith("FORECASTER_")}
        with self._living:
            if self.ending.is_set():
                return ""
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, env=others,
                start_new_session=True,  # no Ctrl-C for the child: it ends with the service
            )  # fmt: skip
        last = b""
        with self._process as process:
            assert process.stderr
            while line := process.stderr.readline(LINE):
                last = line.strip() or last
        why = f" ({last.decode(errors='replace')})" if last else ""
        return f"the process that asks MLflow ended with status {process.returncode}{why}"

    def _tell(self, words: str) -> None:
        """Make the end of the child the error of all names."""
        with self._living:
            if self.ending.is_set():
                return
            error = {"error": words, "status": UnavailableError.exit_code}
            file = self.place / "found.json"
            known = json.loads(file.read_bytes()) if file.exists() else {}
            answers = {name: {**known.get(name, {}), **error} for name in self.names}
            write(file, json.dumps(answers).encode())
