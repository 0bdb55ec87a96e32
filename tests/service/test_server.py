"""The service as a process: raw HTTP, long bodies, signals, the same bits everywhere."""

import json
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.service.processes import (
    AMBIGUOUS,
    BODY,
    READY,
    Server,
    free_port,
    head,
    running,
    serving,
    until,
    wait_for,
)
from tests.service.toy import NAME

pytestmark = pytest.mark.slow


def test_same_bits_in_two_processes(server, folder, tmp_path):
    """The other one runs by uvicorn alone."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "forecaster_service.app:create_app"]
    environment = {"FORECASTER_MODEL": str(folder)}
    with running([*command, f"--port={port}"], environment, tmp_path, tmp_path / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, tmp_path / "log")
        example = server.get(f"/models/{NAME}/example")
        answers = [one.post("/predict", example) for one in (server, Server(port), server)]
    assert answers[0]["predictions"] == answers[1]["predictions"] == answers[2]["predictions"]


def test_fifty_megabytes_are_413_and_leave_no_trace(server):
    memory = psutil.Process(server.process.pid).memory_info
    server.raw([head("Content-Length: 2", "Connection: close"), b"{}"])
    before = memory().rss
    length = f"Content-Length: {2**16 * 800}"
    received, closed = server.raw([head(length, "Expect: 100-continue")])
    assert received.startswith(b"HTTP/1.1 413")
    assert closed
    pieces = [b"10000\r\n%b\r\n" % (b"1" * 2**16)] * 800
    received, closed = server.raw([head("Transfer-Encoding: chunked"), *pieces])
    # the client that goes on sending may lose the answer, but never sees another one
    assert closed
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    # the part of the body that was read, 16 MiB at most, and a little more
    assert memory().rss - before < 40 * 2**20


@pytest.mark.parametrize(
    "request_", [*AMBIGUOUS, (head("Content-Length: 15") + BODY).replace(b"\r\n", b"\n")]
)
def test_ambiguous_http_is_400_and_ends_the_connection(server, request_):
    received, closed = server.raw([request_])
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1") == 1
    assert closed


def test_terminated_it_says_so_and_answers_what_it_has(folder, tmp_path):
    warnings = {"PYTHONWARNINGS": "default"}
    with (
        serving(folder, tmp_path, variables=warnings, drain_seconds=1.5, max_batch=1) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        example = server.get(f"/models/{NAME}/example")
        large = pool.submit(server.post, "/predict", {"inputs": example["inputs"] * 300})
        until(lambda: server.figure("batch_series_count") > 1)  # the first was the example
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        while (answer := server.raw([READY]))[0].startswith(b"HTTP/1.1 200"):
            assert time.monotonic() - began < 1
        assert answer[0].startswith(b"HTTP/1.1 503")
        assert len(server.post("/predict", example)["predictions"]) == 1
        assert len(large.result()["predictions"]) == 300
        assert server.process.wait(20) in (143, -signal.SIGTERM)
        assert time.monotonic() - began >= 1.5
    events = [json.loads(line)["event"] for line in server.log.read_text().splitlines()]
    assert events[0].startswith("starting the service of ")
    assert "model ready" in events
    assert "Traceback" not in server.log.read_text()
