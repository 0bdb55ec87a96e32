import subprocess
import sys
import time
from pathlib import Path

import pytest

from forecaster_service import buckets as module
from forecaster_service.buckets import ENTRIES, SETS, Buckets


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the buckets use, which a test can set."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_as_many_as_there_are_and_then_by_the_minute(clock: list[float]) -> None:
    buckets = Buckets(6)
    assert [buckets.take("a") for _ in range(7)] == [0] * 6 + [10]
    assert buckets.take("b") == 0
    clock[0] += 4
    assert buckets.take("a") == pytest.approx(6)
    clock[0] += 6
    assert [buckets.take("a"), buckets.take("a")] == [0, pytest.approx(10)]
    clock[0] += 3600
    assert [buckets.take("a") for _ in range(7)] == [0] * 6 + [pytest.approx(10)]


def test_less_than_one_a_minute(clock: list[float]) -> None:
    buckets = Buckets(0.5)
    assert [buckets.take("a"), buckets.take("a")] == [0, 120]


def test_what_costs_more_than_there_is_is_owed(clock: list[float]) -> None:
    buckets = Buckets(60)
    assert buckets.take("a", 100) == 0
    assert buckets.take("a") == 41, "40 are owed"
    assert buckets.take("a", 9, owe=True) == 0
    clock[0] += 49
    assert buckets.take("a") == 1
    clock[0] += 1
    assert [buckets.take("a"), buckets.take("a")] == [0, 1]


def test_of_too_many_clients_the_last_ones_are_remembered(clock: list[float]) -> None:
    rates = Buckets(1)
    for number in range(3 * SETS * ENTRIES):
        assert rates.take(f"client {number}") == 0
        clock[0] += 1e-6
    known = [rates.take(f"client {number}") > 0 for number in range(number - SETS, number)]
    assert sum(known) > 0.95 * SETS


@pytest.mark.parametrize("per_minute", [0.5, 7, 600])
def test_shared_ones_are_the_same(per_minute: float, tmp_path: Path, clock: list[float]) -> None:
    both = [Buckets(per_minute, tmp_path / "buckets") for _ in range(2)]
    alone = Buckets(per_minute)
    for number in range(2000):
        client = f"client {number % 3}"
        how = {"tokens": number % 4 + 1, "owe": number % 50 == 0}
        assert both[number % 2].take(client, **how) == pytest.approx(alone.take(client, **how))
        clock[0] += 60 / per_minute * ((number * 37) % 11) / 20


TAKE = """
import sys
from pathlib import Path
from forecaster_service.buckets import Buckets

rates = Buckets(20_000, Path(sys.argv[1]))
print("here", flush=True)
sys.stdin.readline()
print(sum(rates.take("client") == 0 for _ in range(15_000)))
"""


def test_no_token_is_taken_twice_by_processes_at_the_same_time(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", TAKE, str(tmp_path / "buckets")], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "here\n"
    began = time.monotonic()
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    total = sum(int(process.communicate(timeout=60)[0]) for process in processes)
    assert 20_000 <= total <= 20_001 + (time.monotonic() - began) * 20_000 / 60
