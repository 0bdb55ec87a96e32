"""A tracker is told in the background, and holds nothing."""

import signal
import subprocess
import sys
import threading
import time
from math import inf

import pytest

from forecaster.base import signals
from forecaster.tracking import run as tracked
from forecaster.tracking.run import Background

PATIENT = (inf, inf, 99)


@pytest.fixture(autouse=True)
def _pauses(monkeypatch):
    monkeypatch.setattr(tracked, "PAUSES", (0.01, 0.02))


class Tracker:
    """One that gets numbers, as long as it neither fails nor hangs."""

    def __init__(self):
        self.noted, self.numbers = [], []
        self.fails = self.hangs = False

    def __call__(self):
        noted = [*self.noted]
        while self.hangs:
            time.sleep(0.01)
        if self.fails:
            raise OSError("away")
        self.numbers = noted


def note(told, *numbers):
    tracker, background = told
    for number in numbers:
        tracker.noted.append(number)
        background.wake()


@pytest.fixture
def told():
    """A tracker, and the thread that tells it."""
    tracker = Tracker()
    background = Background(tracker)
    background.start()
    yield tracker, background
    tracker.hangs = False
    background.close()
    assert not background.is_alive()


def test_it_is_told_in_the_background(told):
    tracker, background = told
    tracker.hangs = True
    before = time.monotonic()
    for number in range(100):
        note(told, number)
    assert time.monotonic() - before < 1
    assert tracker.numbers == []
    tracker.hangs = False
    assert background.settle(PATIENT)
    assert tracker.numbers == [*range(100)]


def test_it_is_tried_again(told):
    tracker, background = told
    tracker.fails = True
    note(told, 1)
    assert not background.settle((inf, inf, 3))
    assert str(background.error) == "away"
    tracker.fails = False
    assert background.settle(PATIENT)
    assert (tracker.numbers, background.error) == ([1], None)


def test_what_failed_last_is_tried_once_more(told, monkeypatch):
    tracker, background = told
    monkeypatch.setattr(tracked, "PAUSES", (60.0, 60.0))
    tracker.fails = True
    note(told, 1)
    assert not background.settle((inf, inf, 1))
    before = time.monotonic()
    assert not background.settle((inf, inf, 99))
    tracker.fails = False
    assert background.settle(PATIENT), "at once, for somebody waits"
    assert time.monotonic() - before < 5


@pytest.mark.parametrize("limits", [(0.2, inf, 99), (inf, 0.2, 99)])
def test_a_tracker_that_hangs_is_given_up(told, limits):
    tracker, background = told
    assert background.settle(PATIENT)
    tracker.hangs = True
    note(told, 1)
    before = time.monotonic()
    assert not background.settle(limits)
    assert 0.2 <= time.monotonic() - before < 2


def test_a_signal_ends_a_wait_that_it_falls_into_and_no_later_one(told):
    tracker, background = told
    assert background.settle(PATIENT)
    tracker.hangs = True
    note(told, 1)
    with signals.heeding(), signals.orderly():
        threading.Timer(0.5, signal.raise_signal, [signal.SIGTERM]).start()
        before = time.monotonic()
        assert not background.settle((inf, 60, 99))
        assert 0.4 <= time.monotonic() - before < 5
        before = time.monotonic()
        assert not background.settle((inf, 1, 99))
        assert time.monotonic() - before >= 1, "what has to end in order may wait its time"


class TestAbsent:
    """A tracker that is not there yet, like one that starts together with the run."""

    @pytest.fixture
    def told(self):
        tracker = Tracker()
        tracker.absent = True

        def publish():
            if tracker.absent:
                raise ConnectionRefusedError
            tracker()

        background = Background(publish)
        background.start()
        note((tracker, background), 1)
        assert not background.settle((5, 5, 1)), "without patience it is a failure like any other"
        yield tracker, background
        background.close()

    def test_it_is_waited_for(self, told):
        tracker, background = told
        threading.Timer(2.5, lambda: setattr(tracker, "absent", False)).start()
        assert background.settle((1, 1, 1), 60), "the other limits begin when it is there"
        assert tracker.numbers == [1]

    def test_but_not_for_ever(self, told):
        _, background = told
        before = time.monotonic()
        assert not background.settle((60, 60, 99), 0.5)
        assert 0.5 <= time.monotonic() - before < 10

    def test_one_that_comes_and_fails_is_not(self, told):
        tracker, background = told
        tracker.absent, tracker.fails = False, True
        before = time.monotonic()
        assert not background.settle((60, 60, 1), 60)
        assert time.monotonic() - before < 30

    def test_a_signal_ends_the_wait(self, told):
        _, background = told
        with signals.heeding(), signals.orderly():
            threading.Timer(1.5, signal.raise_signal, [signal.SIGTERM]).start()
            before = time.monotonic()
            assert not background.settle((60, 60, 99), 60)
            assert time.monotonic() - before < 30


def test_a_tracker_that_gets_on_is_waited_for():
    done = []

    def publish():
        for _ in range(8):
            time.sleep(0.1)
            done.append(True)

    background = Background(publish, lambda: len(done))
    background.start()
    assert background.settle((0.5, inf, 1)), "0.8 s in all, and never 0.5 s without progress"
    background.close()


def test_what_is_new_while_the_tracker_is_told_is_told_next(told):
    tracker, background = told
    assert background.settle(PATIENT)
    tracker.hangs = True
    note(told, 1)
    time.sleep(0.1)  # now it is told of the first
    note(told, 2)
    tracker.hangs = False
    assert background.settle(PATIENT)
    assert tracker.numbers == [1, 2]


def test_a_thread_that_hangs_holds_no_end():
    """The process ends though the tracker does not answer."""
    script = """
import time
from forecaster.tracking.run import Background
background = Background(lambda: time.sleep(600))
background.start()
assert not background.settle((0.1, float("inf"), 1))
background.close()
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
