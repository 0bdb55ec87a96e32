import multiprocessing
import operator
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from forecaster.base.workers import FailedError, Worker, each


def test_every_item_is_worked_on_once_and_a_failure_stops_no_other():
    results = dict(each(operator.truediv, 1, [0, 4, 2, 1], processes=2))
    assert str(results.pop(0)) == "raised ZeroDivisionError: division by zero"
    assert results == {4: 0.25, 2: 0.5, 1: 1.0}
    assert multiprocessing.active_children() == []


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


def fails() -> Iterator[Any]:
    yield 1
    raise ValueError("no such thing\nat all")


def dies() -> Iterator[Any]:
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps() -> Iterator[Any]:
    yield 1
    time.sleep(60)


ENDS = {fails: "raised ValueError: no such", dies: "status -9", sleeps: r"took longer than 0.5 s"}


@pytest.mark.parametrize(("work", "words"), ENDS.items())
def test_a_worker_yields_until_it_fails(work: Any, words: str) -> None:
    begun = time.monotonic()
    with Worker(work).ask() as worker:
        assert worker.receive(60) == 1
        with pytest.raises(FailedError, match=words):
            worker.receive(0.5 if work is sleeps else 60)
    assert time.monotonic() - begun < 30
