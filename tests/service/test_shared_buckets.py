"""Buckets in shared memory work like those of one process, whichever process takes from them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from forecaster_service import buckets, shared_buckets
from forecaster_service.buckets import Buckets
from forecaster_service.shared_buckets import ENTRIES, SETS, SharedBuckets, Table, new_table


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (buckets, shared_buckets):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    new_table(tmp_path / "buckets")
    return tmp_path / "buckets"


@pytest.mark.parametrize("per_minute", [0.5, 7, 600])
def test_the_same_as_in_one_process(per_minute: float, file: Path, clock: Clock) -> None:
    both = [SharedBuckets(Table(file), 0, per_minute) for _ in range(2)]
    alone = Buckets(per_minute)
    for number in range(2000):
        client = f"client {number % 3}"
        how = {"tokens": number % 4 + 1, "owe": number % 50 == 0}
        assert both[number % 2].take(client, **how) == pytest.approx(alone.take(client, **how))
        clock.now += 60 / per_minute * ((number * 37) % 11) / 20


def test_two_uses_of_a_table_are_apart(file: Path, clock: Clock) -> None:
    table = Table(file)
    rates, wrong = SharedBuckets(table, 0, 1), SharedBuckets(table, 1, 1)
    assert rates.take("a") == 0
    assert rates.take("a") > 0
    assert wrong.take("a") == 0


def test_of_too_many_clients_the_last_ones_are_remembered(file: Path, clock: Clock) -> None:
    rates = SharedBuckets(Table(file), 0, 1)
    for number in range(3 * SETS * ENTRIES):
        assert rates.take(f"client {number}") == 0
        clock.now += 1e-6
    known = [rates.take(f"client {number}") > 0 for number in range(number - SETS, number)]
    assert sum(known) > 0.95 * SETS


TAKE = """
import sys
from pathlib import Path
from forecaster_service.shared_buckets import SharedBuckets, Table

rates = SharedBuckets(Table(Path(sys.argv[1])), 0, 20_000)
print("here", flush=True)
sys.stdin.readline()
print(sum(rates.take("client") == 0 for _ in range(15_000)))
"""


def test_no_token_is_taken_twice_by_processes_at_the_same_time(file: Path) -> None:
    command, pipe = [sys.executable, "-c", TAKE, str(file)], subprocess.PIPE
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
