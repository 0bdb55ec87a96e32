import math
import multiprocessing
import operator
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from forecaster.base.workers import FailedError, Worker, each


def test_every_item_is_worked_on_once():
    results = dict(each(math.pow, 2, range(5), processes=2))
    assert results == {0: 1, 1: 2, 2: 4, 3: 8, 4: 16}
    assert multiprocessing.active_children() == []


def test_a_failure_stops_no_other():
    results = dict(each(operator.truediv, 1, [0, 4], processes=1))
    assert results[4] == 0.25
    assert isinstance(results[0], FailedError)
    assert str(results[0]) == "raised ZeroDivisionError: division by zero"


def test_a_process_that_dies_costs_one_item():
    results = dict(each(operator.call, signal.raise_signal, [9, signal.SIGWINCH], processes=1))
    assert str(results[9]) == "ended its process, status -9 (out of memory?)"
    assert results[signal.SIGWINCH] is None
    ((_, failure),) = each(operator.call, os._exit, [3], processes=1)
    assert str(failure) == "ended its process, status 3"


def test_who_leaves_early_leaves_no_process():
    results = each(operator.call, time.sleep, [0, 600], processes=2)
    assert next(results) == (0, None)
    results.close()
    assert multiprocessing.active_children() == []


def test_nothing_to_do():
    assert list(each(math.pow, 2, [], processes=2)) == []


def yields(*objects: Any) -> Iterator[Any]:
    yield from objects


def fails() -> Iterator[Any]:
    yield 1
    raise ValueError("no such thing\nat all")


def dies() -> Iterator[Any]:
    yield "full", 1
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps() -> Iterator[Any]:
    yield 1
    time.sleep(60)


class TestWorker:
    def test_what_is_yielded_arrives(self) -> None:
        with Worker(yields, "a").ask(2) as worker:
            assert [worker.receive(60) for _ in range(2)] == ["a", 2]
            worker.ask(3)
            assert [worker.receive(60) for _ in range(2)] == ["a", 3]

    @pytest.mark.parametrize(
        ("work", "words"),
        [
            (fails, r"raised ValueError: no such thing\nat all$"),
            (dies, r"ended its process, status -9 \(out of memory\?\)"),
            (sleeps, r"took longer than 0.5 s"),
        ],
    )
    def test_what_does_not_is_said(self, work: Any, words: str) -> None:
        begun = time.monotonic()
        with Worker(work).ask() as worker:
            worker.receive(60)
            with pytest.raises(FailedError, match=words):
                worker.receive(0.5 if work is sleeps else 60)
        assert time.monotonic() - begun < 30
