"""Two ends in one process: answers, errors, silence, the end of the other."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forecaster.errors import ForecasterError, UnavailableError, UsageError
from forecaster_service.channel import Channel

SECONDS = 30.0


def refuse() -> None:
    raise UsageError("no such model")


def fail() -> None:
    raise ZeroDivisionError("by nothing")


class TestChannel:
    @pytest.fixture
    def silence(self) -> Iterator[threading.Event]:
        event = threading.Event()
        yield event
        event.set()

    @pytest.fixture
    def gone(self) -> threading.Event:
        return threading.Event()

    @pytest.fixture
    def ends(
        self, silence: threading.Event, gone: threading.Event
    ) -> Iterator[tuple[Channel, Channel]]:
        here, there = socket.socketpair()
        answers: dict[str, Callable[..., Any]] = {
            "add": lambda a, b: a + b, "refuse": refuse, "fail": fail, "wait": silence.wait,
        }  # fmt: skip
        with here, there:
            one = Channel(here, {"double": lambda a: 2 * a}, gone.set)
            yield one, Channel(there, answers, lambda: None)
            one.close()

    def test_each_asks_the_other(self, ends: tuple[Channel, Channel]) -> None:
        one, other = ends
        assert one.ask("add", 1, 2, seconds=SECONDS) == 3
        assert other.ask("double", "Zürich\n", seconds=SECONDS) == "Zürich\nZürich\n"

    def test_answers_are_not_mixed_up_and_none_waits_for_another(
        self, ends: tuple[Channel, Channel], silence: threading.Event
    ) -> None:
        one, _ = ends
        with ThreadPoolExecutor(9) as pool:
            slow = pool.submit(one.ask, "wait", seconds=SECONDS)
            sums = list(pool.map(lambda n: one.ask("add", n, n, seconds=SECONDS), range(200)))
            assert not slow.done()
            silence.set()
            assert slow.result()
        assert sums == [2 * n for n in range(200)]

    def test_errors_are_those_of_the_other(self, ends: tuple[Channel, Channel]) -> None:
        one, _ = ends
        with pytest.raises(UsageError, match=r"^no such model$"):
            one.ask("refuse", seconds=SECONDS)
        with pytest.raises(ForecasterError, match=r"^ZeroDivisionError: by nothing$"):
            one.ask("fail", seconds=SECONDS)

    def test_silence_has_an_end(self, ends: tuple[Channel, Channel]) -> None:
        with pytest.raises(UnavailableError, match=r"did not answer 'wait'"):
            ends[0].ask("wait", seconds=0.05)

    def test_the_end_of_the_other_is_told(
        self, ends: tuple[Channel, Channel], gone: threading.Event
    ) -> None:
        one, other = ends
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.ask, "wait", seconds=SECONDS)
            assert one.ask("add", 1, 1, seconds=SECONDS) == 2
            other.close()
            with pytest.raises(UnavailableError):
                waiting.result()
        assert gone.wait(SECONDS)
        with pytest.raises(UnavailableError):
            one.ask("add", 1, 1, seconds=SECONDS)
