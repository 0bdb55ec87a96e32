import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forecaster.base.errors import Stopped, UnavailableError, UsageError
from forecaster.train import launch


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", launch.MEETING):
        monkeypatch.delenv(name, raising=False)


def test_options_say_how_many() -> None:
    assert (launch.started(), launch.is_first()) == (False, True)
    for devices, nodes, count in ((None, None, 1), (1, 1, 1), (4, None, 4)):
        assert launch.wanted(devices, nodes) == count
    with pytest.raises(UsageError, match=r"--nodes 2: .*torchrun --nnodes=2 --nproc-per-node=4 "):
        launch.wanted(4, 2)


def test_torchrun_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the second of two machines with three processes each."""
    values = {"WORLD_SIZE": 6, "LOCAL_WORLD_SIZE": 3, "RANK": 3, "TORCHELASTIC_RUN_ID": "run"}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    assert (launch.started(), launch.is_first()) == (True, False)
    for devices, nodes in [(None, None), (3, None), (None, 2), (3, 2)]:
        assert launch.wanted(devices, nodes) == 6
    with pytest.raises(UsageError, match=r"--devices 4, but torchrun has started 3 of 6 .*use --d"):
        launch.wanted(4, None)
    with pytest.raises(UsageError, match=r"--nodes 1, but torchrun .*: use --nodes 2, or leave"):
        launch.wanted(3, 1)
    monkeypatch.setenv("RANK", "0")
    assert launch.is_first()
    monkeypatch.setenv(launch.MEETING, "file")
    assert not launch.is_first(), "what has started it was"


def test_what_the_ranks_that_failed_come_to() -> None:
    assert launch._status({1: 69, 0: 65}, 2) == 65
    assert launch._status({1: 74}, 2) == 74
    for code, hint in ((-9, r" \(out of mem"), (-11, ", which")):
        with pytest.raises(UnavailableError, match=rf"process 1 of 2 .* signal {-code}{hint}"):
            launch._status({1: code}, 2)


PROGRAM = """
import os, pathlib, signal, sys, time
rank = int(os.environ["RANK"])
assert os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"] == "2"
assert pathlib.Path(os.environ["FORECASTER_MEETING"]).parent.is_dir()
pathlib.Path(f"rank-{rank}").touch()
while len([*pathlib.Path().glob("rank-?")]) < 2:  # the other has not begun yet
    time.sleep(0.01)
"""


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Starts two ranks that do some work; the exit status."""

    def start(work: str) -> int:
        python = tmp_path / "python"
        python.write_text(f"#!{sys.executable}\n{PROGRAM}{work}")
        python.chmod(0o755)
        monkeypatch.setattr(launch.sys, "executable", str(python))
        return launch.start(2, ["train"])

    monkeypatch.chdir(tmp_path)
    return start


@pytest.mark.parametrize(
    ("work", "status"), [("", 0), ("sys.exit(69) if rank else time.sleep(60)", 69)]
)
def test_one_that_fails_ends_the_others(
    work: str, status: int, starting: Callable[[str], int], tmp_path: Path
) -> None:
    begun = time.monotonic()
    assert starting(work) == status
    assert time.monotonic() - begun < 30
    assert len([*tmp_path.glob("rank-*")]) == 2


def test_a_signal_reaches_each(
    starting: Callable[[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = """
def end(*_):
    pathlib.Path(f"ended-{rank}").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
pathlib.Path(f"ready-{rank}").touch()
time.sleep(60)
"""
    sleep, stopped = time.sleep, []

    def stop(seconds: float) -> None:
        sleep(seconds)
        if len([*tmp_path.glob("ready-*")]) == 2 and not stopped:
            stopped.append(True)
            raise Stopped(signal.SIGINT)

    monkeypatch.setattr(launch.time, "sleep", stop)
    assert starting(work) == 130
    assert len([*tmp_path.glob("ended-*")]) == 2
