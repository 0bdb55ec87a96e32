"""The child that asks MLflow: its questions and answers, and what happens when it fails."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from forecaster.errors import StorageError, UnavailableError, UsageError
from forecaster_service import registry
from forecaster_service.registry import Child


@pytest.fixture
def child() -> Iterator[Child]:
    with closing(Child()) as child:
        yield child


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Run a Python script as the child; returns the file with its process ids."""

    def become(text: str) -> Path:
        code, file = tmp_path / "child.py", tmp_path / "python"
        ids = tmp_path / "ids"
        code.write_text(
            f"import json, os, sys, time\nprint(os.getpid(), file=open({str(ids)!r}, 'a'))\n{text}"
        )
        file.write_text(f"#!/bin/sh\nexec {PYTHON} {code}\n")
        file.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(file))
        return ids

    return become


PYTHON = sys.executable
ECHO = """
for line in sys.stdin:
    print("chatter", file=sys.stderr)
    print(json.dumps({"answer": [json.loads(line)]}), flush=True)
"""


def alive(pid: str) -> bool:
    return Path("/proc", pid).exists()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_process_answers_all_questions_and_ends_with_us(
    child: Child, script: Callable[[str], Path], tmp_path: Path
) -> None:
    ids = script(ECHO)
    assert not ids.exists(), "it is started when it is wanted"
    for _ in range(3):
        assert child.resolve(["a", "b"]) == [{"ask": "resolve", "names": ["a", "b"]}]
    asked = {"ask": "download", "name": "a", "folder": str(tmp_path)}
    assert child.fetch("a", tmp_path) == [asked]
    (pid,) = ids.read_text().split()
    assert alive(pid)
    child.close()
    assert not alive(pid)
    with pytest.raises(UnavailableError, match="the service ends"):
        child.resolve(["a"])


def test_errors_keep_their_kind_and_words(child: Child, script: Callable[[str], Path]) -> None:
    answers = [
        {"answer": [{"name": "a"}, {"error": "no such model"}]},
        *({"error": "the reason", "status": status} for status in (69, 74, 2, 70)),
    ]
    script(f"for answer in {answers}: sys.stdin.readline(); print(json.dumps(answer), flush=True)")
    found, missing = child.resolve(["a", "b"])
    assert found == {"name": "a"}
    assert (type(missing), str(missing)) == (UsageError, "no such model")
    for kind in (UnavailableError, StorageError, UsageError):
        with pytest.raises(kind, match=r"^the reason$"):
            child.resolve(["a"])


def test_one_that_died_is_replaced_at_once(child: Child, script: Callable[[str], Path]) -> None:
    ids = script(ECHO)
    child.resolve(["a"])
    os.kill(int(ids.read_text()), signal.SIGKILL)
    wait_until(lambda: child._process is not None and child._process.poll() is not None)
    child.resolve(["a"])
    assert len(ids.read_text().split()) == 2


def test_one_that_gives_no_answer_is_started_again_ever_more_rarely(
    child: Child, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = script("print('No module named mlflow', file=sys.stderr); sys.exit(1)")
    now = time.monotonic()
    monkeypatch.setattr(registry, "monotonic", lambda: now)
    pauses = []
    for _ in range(8):
        with pytest.raises(
            UnavailableError, match=r"ended with status 1 \(No module named mlflow\)"
        ):
            child.resolve(["a"])
        with pytest.raises(UnavailableError, match=r"mlflow\); it is asked again in \d+ s"):
            child.resolve(["a"])
        pauses.append(child._again - now)
        now = child._again
    assert [round(pause) for pause in pauses] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert len(ids.read_text().split()) == 8
    script(ECHO)
    assert child.resolve(["a"])
    assert child._failures == 0


def test_one_that_hangs_is_killed(
    child: Child, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = script("time.sleep(600)")
    monkeypatch.setattr(registry, "LOOKING", 0.5)
    with pytest.raises(UnavailableError, match=r"gave no answer within 0\.5 s"):
        child.resolve(["a"])
    assert not ids.exists() or not alive(ids.read_text().strip())


def test_closing_does_not_wait_for_an_answer(child: Child, script: Callable[[str], Path]) -> None:
    ids = script("time.sleep(600)")
    errors: list[Exception] = []

    def ask() -> None:
        try:
            child.resolve(["a"])
        except UnavailableError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: ids.exists() and ids.read_text() != "")
    child.close()
    thread.join(60)
    assert len(errors) == 1
    assert not alive(ids.read_text().strip())


def test_no_setting_of_ours_is_handed_on(
    child: Child, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORECASTER_API_KEYS", "anna:secret")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "needed")
    script("sys.stdin.readline(); print(json.dumps({'answer': [dict(os.environ)]}), flush=True)")
    (environment,) = child.resolve(["a"])
    assert isinstance(environment, dict)
    assert environment["MLFLOW_TRACKING_TOKEN"] == "needed"
    assert not any(name.startswith("FORECASTER_") for name in environment)


OURS = """
import os, sys, time
from forecaster_service.registry import Child
child = Child()
try:
    child.resolve(["forecaster-nobody"])
except Exception as error:
    print(child._process.pid, error, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_it_outlives_the_absence_of_mlflow_and_not_its_parent(tmp_path: Path) -> None:
    """The real child: without an MLflow it says so and goes on; then the service is killed."""
    environment = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    with subprocess.Popen(
        [sys.executable, "-c", OURS],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, _, words = parent.stdout.readline().partition(" ")
        assert words.startswith("MLflow cannot use http://127.0.0.1:9")
        found = psutil.Process(int(pid))
        assert found.is_running()
        parent.kill()
    found.wait(60)
