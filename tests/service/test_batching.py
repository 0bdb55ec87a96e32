import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from forecaster.datasets.reading import Reading
from forecaster.forecast.answer import Answer
from forecaster.forecast.question import Form, Question
from forecaster_service import batching
from forecaster_service.batching import FRESH, LATEST, Batcher, Pace
from forecaster_service.http_errors import HttpError
from tests.service.processes import SECONDS

FORM = Form(Reading(time="when", targets=("y",), freq="h"), ("y",), 1, 1, 1, 1)


def question(items):
    """The question about series of one value each."""
    starts = pd.date_range("2026-01-01", periods=len(items), freq="h", unit="us")
    return Question(np.reshape(np.array(items, float), (-1, 1, 1)), starts, rows=[1] * len(items))


def numbers(arrays):
    return np.ravel(arrays).tolist()


class Device:
    """A model that squares numbers once the gate is open."""

    def __init__(self):
        self.batches = []
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, question):
        self.batches.append(numbers(question.values))
        self.entered.release()
        assert self.open.wait(SECONDS)
        squares = question.values**2
        return Answer.of(question, FORM, (squares, squares[..., None]), (0.5,), ())


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def make(request, device):
    def batcher(max_batch=4, max_queue=1000, coming=bool):
        made = Batcher(max_batch, max_queue, coming)
        request.addfinalizer(made.close)
        request.addfinalizer(device.open.set)  # first
        return made

    return batcher


def refused(batcher, device, items, match=None, **within):
    """Why a submission is refused, and the seconds after which it may come again."""
    with pytest.raises(HttpError, match=match) as caught:
        batcher.submit("a", device, question(items), **within)
    return caught.value.reason, int((caught.value.headers or {})["Retry-After"])


def running(batcher, device, items=(0,), **within):
    """A submission that keeps the device busy."""
    future = batcher.submit("a", device, question(items), **within)
    assert device.entered.acquire(timeout=SECONDS)
    return future


def results(futures):
    return [numbers(future.result(SECONDS).forecasts) for future in futures]


@pytest.mark.parametrize(
    ("most", "first", "keys", "batches"),
    [
        (4, 1, "aaaaaa", [[0], [10, 11, 12, 13], [14, 15]]),
        (4, 1, "baab", [[0], [10, 13], [11, 12]]),  # one key at a time, the oldest first
        (3, 8, "ab", [[0, 1, 2], [3, 4, 5], [10, 6, 7], [11]]),  # many leave turns to others
    ],
)
def test_what_waits_together_runs_together(make, device, most, first, keys, batches):
    batcher = make(max_batch=most)
    large = running(batcher, device, range(first))
    rest = [batcher.submit(key, device, question([n])) for n, key in enumerate(keys, start=10)]
    assert batcher.waiting == len(keys) + max(first - most, 0)
    time.sleep(0.5)
    device.open.set()
    assert results([large]) == [[number**2 for number in range(first)]]
    assert large.inference >= 0.5 > large.queue
    for number, future in enumerate(rest, start=10):
        assert results([future]) == [[number**2]]
        assert future.queue >= 0.5 > future.inference
        assert [future.batch] == [len(each) for each in batches if number in each]
    assert device.batches == batches
    assert batcher.waiting == 0


@pytest.mark.parametrize("count", [1, 4])
def test_while_more_is_coming_a_batch_waits_to_be_full_but_not_for_long(
    make, device, monkeypatch, count
):
    monkeypatch.setattr(batching, "COMING", 0.2 if count == 1 else 100)
    device.open.set()
    batcher = make(max_batch=4, coming=lambda: True)
    began = time.monotonic()
    results([batcher.submit("a", device, question([number])) for number in range(count)])
    assert device.batches == [list(range(count))]
    assert (time.monotonic() - began >= 0.2) == (count == 1)


def test_what_would_not_be_done_in_time_is_refused(make, device):
    batcher = make(max_batch=4)
    for _ in range(20):  # 1 s and 0.5 s a series
        batcher.pace.note("a", 2, 2.0)
        batcher.pace.note("a", 4, 3.0)
    futures = [running(batcher, device, range(4), within=3.1)]  # alone it may take all its time
    few = "takes about 6 s here, but 5 s are left: send fewer"
    assert refused(batcher, device, range(8), few, within=5) == ("size", LATEST)
    late = "0 series are waiting already, about .* s of work"
    reason, seconds = refused(batcher, device, range(4), late, within=6)
    assert reason == "time"
    assert 3 < seconds <= 6, "when nothing runs, and it has run"
    _, seconds = refused(batcher, device, range(4), within=6)
    assert 6 < seconds <= 9, "when the one before it has had its turn"
    futures += [batcher.submit("a", device, question(range(4)), within=3 * 6)]
    assert 5 < batcher.ahead() <= 6
    assert batcher.submit("b", device, question([1])), "nobody knows what it costs"
    device.open.set()
    results(futures)
    assert batcher.ahead() == 0


def test_what_runs_too_long_is_expected_to_go_on(make, device):
    batcher = make()
    batcher.pace.note("a", 1, 0.001)
    slow = running(batcher, device, [1])
    time.sleep(0.5)
    assert batcher.ahead() > 0.4
    assert refused(batcher, device, [1], "0 series are waiting already", within=0.4)
    device.open.set()
    assert results([slow]) == [[1]]


def test_what_was_too_slow_once_is_tried_again(make, device, monkeypatch):
    device.open.set()
    batcher = make()
    batcher.pace.note("a", 1, 40)
    assert refused(batcher, device, [2], "this request takes about 40 s here", within=30)
    later = time.monotonic() + FRESH
    monkeypatch.setattr("forecaster_service.batching.monotonic", lambda: later)
    for _ in range(40):
        assert results([batcher.submit("a", device, question([2]), within=100)]) == [[4]]
    assert batcher.pace.cost("a", 1, 4) < 1


def test_a_large_submission_keeps_its_turn_when_its_time_gets_short(make, device):
    batcher = make(max_batch=2)
    for _ in range(9):
        batcher.pace.note("a", 1, 1)
        batcher.pace.note("b", 1, 3)
    large = running(batcher, device, range(8), within=8.5)
    small = [batcher.submit("b", device, question([number]), within=100) for number in (10, 11)]
    device.open.set()
    results([large, *small])
    assert device.batches == [[0, 1], [2, 3], [4, 5], [6, 7], [10, 11]]


def test_the_cancelled_leave_the_queue_and_never_run(make, device):
    batcher = make(max_batch=2, max_queue=1008)
    large = running(batcher, device, range(10))
    gone = [large, *(batcher.submit("a", device, question([1])) for _ in range(1000))]
    assert refused(batcher, device, [2])
    assert all(future.cancel() for future in gone)
    assert batcher.waiting == 0
    last = batcher.submit("a", device, question([3]))
    device.open.set()
    assert results([last]) == [[9]]
    assert device.batches == [[0, 1], [3]]
    with pytest.raises(CancelledError):
        large.result(SECONDS)


def test_closing_runs_what_waits_and_takes_nothing_more(device):
    batcher = Batcher(2, 1000)
    device.open.set()
    futures = [batcher.submit(key, device, question([n])) for n, key in enumerate("abcab")]
    batcher.close()
    assert results(futures) == [[0], [1], [4], [9], [16]]
    assert refused(batcher, device, [1], "ending")


def test_many_threads_get_their_own_results(make, device):
    device.open.set()
    batcher = make(max_batch=7)

    def ask(number):
        items = [number + part / 128 for part in range(number % 11 + 1)]
        future = batcher.submit(number % 3, device, question(items))
        if number % 5 == 0 and future.cancel():
            return []
        assert results([future]) == [[item**2 for item in items]]
        return items

    with ThreadPoolExecutor(16) as pool:
        answered = list(pool.map(ask, range(400)))
    assert sum(bool(items) for items in answered) >= 320
    assert batcher.waiting == 0
    assert max(map(len, device.batches)) == 7


def test_batches_of_each_size_have_their_costs():
    pace = Pace()
    assert pace.cost("a", 100, 16) == 0, "nobody knows"
    for size in (1, 16, 4, 16, 1):
        pace.note("a", size, 0.5 + 0.25 * size)
    assert pace.cost("a", 3, 16) == 1.5, "as four"
    assert pace.cost("a", 40, 16) == 2 * 4.5 + 3, "two of sixteen, and eight as twice four"
    assert pace.cost("a", 0, 16) == 0
    assert pace.last == 0.75
    pace.note("b", 2, 1.0)
    assert [pace.cost("b", count, 16) for count in (1, 16, 32)] == [1, 8, 16], "in proportion"


def test_what_was_measured_is_believed_for_a_while(monkeypatch):
    clock = 1000.0
    monkeypatch.setattr("forecaster_service.batching.monotonic", lambda: clock)
    pace = Pace()
    assert not pace.fresh("a", 1)
    pace.note("a", 1, 1.0)
    assert pace.fresh("a", 1)
    assert not pace.fresh("a", 2), "another size"
    clock += FRESH
    assert not pace.fresh("a", 1)
