"""Servers as processes of their own, on free ports of the loopback interface, and what they get."""

import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SECONDS = 90.0
"""The most that anything may take on a busy machine."""
CLIENTS = 4
"""The clients of a `Load`."""
POST = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json")
BODY = b'{"target": [1]}'


def head(*lines, start=POST):
    """The head of a request, by default of one to /predict."""
    return "\r\n".join((*start, *lines, "", "")).encode()


def get(path, *lines):
    """A request for a path, the last one of its connection."""
    return head("Connection: close", *lines, start=(f"GET {path} HTTP/1.1", "Host: localhost"))


READY = get("/readyz")
AMBIGUOUS = [
    head("Content-Length: 15", "Transfer-Encoding: chunked") + BODY,
    head("Transfer-Encoding: chunked", "Content-Length: 15") + b"0\r\n\r\n" + BODY,
    head("Content-Length: 15", "Content-Length: 16") + BODY,
    head("Content-Length: +15") + BODY,
    head("Content-Length: 99999999999999999999") + BODY,
    head("Content-Length : 15") + BODY,
    head("X-A: 1\r\n folded", "Content-Length: 15") + BODY,
    head("X-A: 1\0", "Content-Length: 15") + BODY,
    head("Transfer-Encoding: nonsense") + BODY,
    head("Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n" + BODY,
    head("Transfer-Encoding: chunked") + b"2\r\n{}X\r\n0\r\n\r\n",
    head("Content-Length: 15", "Host: elsewhere") + BODY,
    head("Content-Length: 15", start=("POST /predict HTTP/1.1",)) + BODY,
    b"NONSENSE\r\n\r\n",
]
"""Requests that two servers may understand differently: refused by the service, and by nginx."""


def until(true, seconds=SECONDS, about=lambda: ""):
    """Wait until something is true. `about`: what to print where it does not come true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, about()
        time.sleep(0.01)


def everything(connection):
    """Everything that comes until the other side closes."""
    found = b""
    with suppress(ConnectionError):
        while chunk := connection.recv(2**16):
            found += chunk
    return found


def free_port():
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextmanager
def running(command, environment, folder, log):
    """Run a process in `folder` that writes to `log`; it is ended after the block."""
    ours = ("FORECASTER_", "MLFLOW_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env={**clean, **environment}, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def children(process, word):
    """The processes that a process has started, with that word in their command."""
    found = []
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if word in " ".join(each.cmdline()):
                found.append(each)
    return found


def wait_for(url, process, log, seconds=120):
    """Wait until `url` answers 200. Raises AssertionError with the log if it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer:\n{log.read_text()[-3000:]}")


@dataclass
class Server:
    """A service on a port of this machine; its process and log, where it is one of ours."""

    port: int
    process: Any = None
    log: Path = Path(os.devnull)
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, path, body=None):
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def post(self, path, body):
        return self.get(path, json.dumps(body).encode())

    def raw(self, parts):
        """The answer to these bytes, and whether the server then closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            with suppress(ConnectionError):  # the server did not read the rest
                for part in parts:
                    connection.sendall(part)
            received = b""
            try:
                while chunk := connection.recv(65536):
                    received += chunk
            except TimeoutError:
                return received, False
            except ConnectionResetError:
                pass
            return received, True

    def figure(self, name):
        """The sum of the samples of a metric, with or without labels."""
        text = self.raw([get("/metrics")])[0]
        found = re.findall(rf"(?m)^forecaster_{name}(?:{{.*}})? (\S+)\r?$".encode(), text)
        assert found, text[:300]
        return sum(map(float, found))


@contextmanager
def serving(
    model, place, *options, program=("forecaster",), until="/readyz", variables=None, **settings
):
    """`forecaster serve` with a model and settings, run in `place`, where its log is, too; without
    a model, the settings name it."""
    port, log = free_port(), place / "log"
    named = () if model is None else ("--model", str(model))
    command = [*program, "serve", *named, "--port", str(port), *options]
    environment = {f"FORECASTER_{name.upper()}": str(value) for name, value in settings.items()}
    with running(command, {**(variables or {}), **environment}, place, log) as process:
        wait_for(f"http://127.0.0.1:{port}{until}", process, log)
        yield Server(port, process, log)


@dataclass
class Load:
    """Clients that send requests all the time, from changing addresses, each on one connection;
    a client that loses its connection asks once more. The answers are the digests of the models."""

    port: int
    body: bytes
    answers: list[str] = field(default_factory=list)
    again: int = 0
    failed: list[object] = field(default_factory=list)

    def __enter__(self):
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        headers = {"Content-Type": "application/json"}
        while not self._ended.is_set():
            for attempt in range(2):
                try:
                    connection.request("POST", "/predict", self.body, headers)
                    answer = connection.getresponse()
                    text = answer.read()
                    break
                except (OSError, http.client.HTTPException) as error:
                    connection.close()  # the next request opens it again
                    if attempt:
                        self.failed.append(error)
                        return
                    self.again += 1
            if answer.status != 200:
                self.failed.append(text)
                return
            self.answers.append(json.loads(text)["model"]["digest"])
        connection.close()
