"""A tracker is told in the background, and holds nothing."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from forecaster.base import signals
from forecaster.tracking import run
from forecaster.tracking.run import Background


class Tracker:
    """One that gets numbers, as long as it neither fails nor hangs."""

    def __init__(self):
        self.noted, self.numbers, self.released = [], [], threading.Event()
        self.fails, self.hangs = None, False
        self.background = Background(self.publish, lambda: len(self.numbers), self.released.set)

    def publish(self):
        noted = [*self.noted]
        while self.hangs:
            time.sleep(0.01)
        if self.fails:
            raise self.fails
        for number in noted[len(self.numbers) :]:
            self.numbers.append(number)
            time.sleep(0.1 if number < 0 else 0)

    def note(self, *numbers):
        for number in numbers:
            self.noted.append(number)
            self.background.wake()

    def settle(self, seconds):
        return self.background.settle(seconds)


@pytest.fixture
def tracker():
    tracker = Tracker()
    yield tracker
    tracker.hangs = False
    tracker.background.close()
    assert tracker.released.wait(5)


def test_it_is_tried_again_with_what_comes_next(tracker):
    tracker.fails = OSError("away")
    tracker.note(1)
    before = time.monotonic()
    assert not tracker.settle(60)
    assert time.monotonic() - before < 30, "one that fails is not waited for"
    assert (str(tracker.background.error), tracker.numbers) == ("away", [])
    tracker.fails = None
    tracker.note(2)
    assert tracker.settle(60)
    assert (tracker.numbers, tracker.background.error) == ([1, 2], None)


def test_one_that_hangs_is_given_up_and_one_that_gets_on_is_not(tracker):
    tracker.hangs = True
    before = time.monotonic()
    tracker.note(*[-1] * 8)
    assert not tracker.settle(0.3)
    assert 0.3 <= time.monotonic() - before < 2
    assert tracker.numbers == []
    tracker.background.close()
    assert not tracker.released.is_set(), "the call is still under way"
    tracker.hangs = False
    assert tracker.settle(0.5), "0.8 s in all, and never 0.5 s without progress"
    assert tracker.numbers == [-1] * 8


def test_a_signal_shortens_a_wait(tracker, monkeypatch):
    monkeypatch.setattr(run, "STOPPED", 1.0)
    tracker.hangs = True
    tracker.note(1)
    with signals.heeding(), signals.orderly():
        threading.Timer(0.5, signal.raise_signal, [signal.SIGTERM]).start()
        for _ in range(2):
            before = time.monotonic()
            assert not tracker.settle(60)
            assert 0.9 <= time.monotonic() - before < 5, "what has to end in order has its time"


def test_a_thread_that_hangs_holds_no_end():
    script = """
import time
from forecaster.tracking.run import Background
background = Background(lambda: time.sleep(600))
background.wake()
assert not background.settle(0.1)
background.close()
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
