"""Questions and answers between two processes of the service: JSON lines over a socket pair."""

import json
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from threading import Lock, Thread
from typing import Any

from forecaster import errors
from forecaster.errors import ForecasterError, UnavailableError


class Channel:
    """One end of the connection. Each question from the other end is answered by the function of
    `answers` with its name, in a new thread; `gone` is called when the other process is gone.
    """

    def __init__(
        self,
        connection: socket.socket,
        answers: Mapping[str, Callable[..., Any]],
        gone: Callable[[], object],
    ) -> None:
        self._connection, self._answers, self._gone = connection, answers, gone
        self._asked: dict[int, Future[Any]] = {}
        self._numbers, self._writing = count(), Lock()
        self._closed = False
        Thread(target=self._listen, name="channel", daemon=True).start()

    def ask(self, what: str, *arguments: Any, seconds: float) -> Any:
        """The answer of the other process.

        Raises UnavailableError if it is gone or does not answer within `seconds`. An error that it
        raises is raised here, too; one that is not a ForecasterError becomes one.
        """
        number, answer = next(self._numbers), Future[Any]()
        self._asked[number] = answer
        try:
            self._send({"number": number, "ask": what, "with": arguments})
            if self._closed:  # possibly before the question was registered
                raise UnavailableError("the other process is gone")
            return answer.result(seconds)
        except (TimeoutError, OSError):
            raise UnavailableError(f"the other process did not answer '{what}'") from None
        finally:
            self._asked.pop(number, None)

    def close(self) -> None:
        """Close the connection; the other process then considers this one gone."""
        with suppress(OSError):  # already closed
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        with self._writing:
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "ask" in message:
                        Thread(target=self._answer, args=(message,), daemon=True).start()
                    elif answer := self._asked.get(message["number"]):
                        _fulfil(answer, message)
        except (OSError, ValueError):
            pass  # the other process died in the middle of a line
        self._closed = True
        for answer in list(self._asked.values()):
            _fulfil(answer, {"error": ["UnavailableError", "the other process is gone"]})
        self._gone()

    def _answer(self, question: dict[str, Any]) -> None:
        message = {"number": question["number"]}
        try:
            message["answer"] = self._answers[question["ask"]](*question["with"])
        except Exception as error:
            message["error"] = [type(error).__name__, str(error)]
        with suppress(OSError):  # the other process is gone
            self._send(message)


def _fulfil(answer: "Future[Any]", message: dict[str, Any]) -> None:
    if "error" not in message:
        answer.set_result(message["answer"])
        return
    name, text = message["error"]
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, ForecasterError):
        answer.set_exception(kind(text))
    else:
        answer.set_exception(ForecasterError(f"{name}: {text}"))
