import math
import multiprocessing
import operator
import os
import signal
import time

from forecaster.compare.pool import FailedError, each


def test_every_item_is_worked_on_once():
    results = dict(each(math.pow, 2, range(5), processes=2))
    assert results == {0: 1, 1: 2, 2: 4, 3: 8, 4: 16}
    assert multiprocessing.active_children() == []


def test_a_failure_stops_no_other():
    results = dict(each(operator.truediv, 1, [0, 4], processes=1))
    assert results[4] == 0.25
    assert isinstance(results[0], FailedError)
    assert str(results[0]) == "ZeroDivisionError: division by zero"


def test_a_process_that_dies_costs_one_item():
    results = dict(each(operator.call, signal.raise_signal, [9, signal.SIGWINCH], processes=1))
    assert str(results[9]) == "its process ended, status -9 (out of memory?)"
    assert results[signal.SIGWINCH] is None
    ((_, failure),) = each(operator.call, os._exit, [3], processes=1)
    assert str(failure) == "its process ended, status 3"


def test_who_leaves_early_leaves_no_process():
    results = each(operator.call, time.sleep, [0, 600], processes=2)
    assert next(results) == (0, None)
    results.close()
    assert multiprocessing.active_children() == []


def test_nothing_to_do():
    assert list(each(math.pow, 2, [], processes=2)) == []
