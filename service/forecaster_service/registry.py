"""Resolve names to models: a child process asks MLflow, which the service never imports."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from threading import Lock
from time import monotonic
from typing import Any, Protocol, TypeAlias

from forecaster.errors import UnavailableError, UsageError, of_status

LOOKING, LOADING = 120.0, 600.0
"""Seconds that MLflow may take to resolve names, and to download a bundle."""
LONGEST_PAUSE = 60.0
"""The longest pause, in seconds, before a new child is started after one that did not answer."""
TAIL = 4096
"""Bytes kept from the end of a child's stderr, whose last line is the reason why it ended."""

State: TypeAlias = dict[str, str]
"""What a name resolves to: equal as long as it is the same model."""


class Registry(Protocol):
    """The source of models that are not folders. Calls may come from any thread."""

    def resolve(self, names: Sequence[str]) -> list[State | UsageError]:
        """What each name resolves to now, or an error that states why there is no such model, and
        which models there are.

        A state has "name", "version" and "source", and "alias" where an alias was resolved; the
        state of a run is empty. Raises UnavailableError, or another ForecasterError, if the
        registry cannot answer.
        """
        ...

    def fetch(self, name: str, folder: Path) -> State:
        """Copy the bundle behind a name to a folder, which is created if need be; return its state.

        Raises UsageError if there is none, else as `resolve` does.
        """
        ...

    def close(self) -> None:
        """Ask nothing more. Calls under way raise UnavailableError at once."""
        ...


class Child:
    """The registry of MLflow, queried through `python -m forecaster.track answer`.

    The child is started by the first question and stays. A child that does not answer in time is
    killed. Where one has died, the next question starts another: at once, or, if the last question
    got no answer, after a pause that doubles each time. The child ends when this process does,
    however that happens, because its input ends then. It runs at low priority, gains no privileges
    by what it runs, and gets no variable FORECASTER_* of this process.
    """

    def __init__(self) -> None:
        self._asking, self._living = Lock(), Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._failures, self._again = 0, 0.0
        self._reason = ""

    def resolve(self, names: Sequence[str]) -> list[State | UsageError]:
        told = self._ask({"ask": "resolve", "names": [*names]}, LOOKING)
        return [UsageError(each["error"]) if "error" in each else each for each in told]

    def fetch(self, name: str, folder: Path) -> State:
        question = {"ask": "download", "name": name, "folder": str(folder.absolute())}
        state: State = self._ask(question, LOADING)
        return state

    def close(self) -> None:
        with self._living:
            self._closed = True
            if self._process:
                self._process.kill()
        with self._asking:
            self._end()

    def _ask(self, question: dict[str, Any], seconds: float) -> Any:
        with self._asking:
            if (pause := self._again - monotonic()) > 0:
                raise UnavailableError(f"{self._reason}; it is asked again in {pause:.0f} s")
            try:
                told = _exchange(self._started(), question, seconds)
            except _SilentError as error:
                self._end()
                self._failures += 1
                self._again = monotonic() + min(2.0**self._failures, LONGEST_PAUSE)
                self._reason = f"the process that asks MLflow {error}"
                raise UnavailableError(self._reason) from None
            self._failures = 0
        if "error" in told:
            raise of_status(told["status"])(told["error"])
        return told["answer"]

    def _started(self) -> "subprocess.Popen[bytes]":
        """The running child; a new one if it is gone."""
        if self._process and self._process.poll() is not None:
            self._end()
        with self._living:
            if self._closed:
                raise UnavailableError("the service ends")
            if self._process is None:
                pipe = subprocess.PIPE
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "forecaster.track", "answer"],
                    stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=_environment(),
                    start_new_session=True,  # no Ctrl-C for the child: it ends with the service
                )  # fmt: skip
            return self._process

    def _end(self) -> None:
        """Kill the child and close its pipes."""
        with self._living:
            process, self._process = self._process, None
        if process:
            process.kill()
            with process:  # closes the pipes and waits
                pass


class _SilentError(Exception):
    """The child gave no answer; the message is the predicate of a sentence about the child."""


def _environment() -> dict[str, str]:
    """The child's environment: settings of MLflow, its stores and Python, but no keys of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FORECASTER_")}


def _exchange(
    process: "subprocess.Popen[bytes]", question: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """The child's answer. Raises _SilentError if there is none within `seconds`."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    end, answer, errors = monotonic() + seconds, b"", b""
    with DefaultSelector() as waiting:
        for pipe in (process.stdout, process.stderr):
            waiting.register(pipe, EVENT_READ)
        with suppress(OSError):  # the child has ended, which the loop below finds out
            process.stdin.write(json.dumps(question).encode() + b"\n")
        while not answer.endswith(b"\n"):
            if (left := end - monotonic()) <= 0:
                raise _SilentError(f"gave no answer within {seconds:g} s")
            for key, _ in waiting.select(left):
                chunk = os.read(key.fd, 2**16)
                if key.fileobj is process.stderr:
                    errors = (errors + chunk)[-TAIL:]
                else:
                    answer += chunk
                if not chunk:
                    waiting.unregister(key.fileobj)
            if not waiting.get_map():
                last = errors.decode(errors="replace").strip().splitlines()[-1:]
                why = f" ({last[0]})" if last else ""
                raise _SilentError(f"ended with status {process.wait()}{why}")
    told: dict[str, Any] = json.loads(answer)
    return told
