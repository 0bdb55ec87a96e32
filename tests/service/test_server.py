"""The service as a process: raw HTTP, long bodies, signals, the same bits everywhere."""

import json
import re
import signal
import socket
import sys
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import psutil
import pytest

from tests.service.processes import (
    AMBIGUOUS,
    BODY,
    READY,
    Server,
    free_port,
    get,
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


@pytest.mark.parametrize("way", ["declared", "chunked", "a client that waits"])
def test_fifty_megabytes_are_413_and_leave_no_trace(server, way):
    pieces, length = [b"1" * 2**16] * 800, f"Content-Length: {2**16 * 800}"
    sent = {
        "declared": [head(length), *pieces],
        "chunked": [head("Transfer-Encoding: chunked"), *(b"10000\r\n%b\r\n" % p for p in pieces)],
        "a client that waits": [head(length, "Expect: 100-continue")],
    }[way]
    memory = psutil.Process(server.process.pid).memory_info
    server.raw([head("Content-Length: 2", "Connection: close"), b"{}"])
    before = memory().rss
    received, closed = server.raw(sent)
    assert closed
    # the client that goes on sending may lose the answer, but never sees another one
    goes_on = way != "a client that waits"
    assert received.startswith(b"HTTP/1.1 413") or (goes_on and received == b"")
    # the part of the body that was read, 16 MiB at most, and a little more
    assert memory().rss - before < 40 * 2**20
    assert server.get("/livez") == {"status": "alive"}


@pytest.mark.parametrize(
    "request_", [*AMBIGUOUS, (head("Content-Length: 15") + BODY).replace(b"\r\n", b"\n")]
)
def test_ambiguous_http_is_400_and_ends_the_connection(server, request_):
    received, closed = server.raw([request_])
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1") == 1
    assert closed


def test_head_has_no_body_and_leaves_the_connection(server):
    request = head(start=("HEAD /models HTTP/1.1", "Host: localhost"))
    received, _ = server.raw([request, request, READY])
    assert received.count(b"HTTP/1.1 200") == 3
    assert received.count(b"\r\n\r\nHTTP/1.1 200") == 2
    assert int(re.findall(rb"content-length: (\d+)", received)[0]) > 100


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


def test_a_registry_that_hangs_delays_neither_probes_nor_the_end(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"MLFLOW_TRACKING_URI": address, "FORECASTER_MODEL": NAME}
        with serving(None, tmp_path, until="/livez", variables=variables) as server:
            with pytest.raises(urllib.error.HTTPError, match="503") as caught:
                server.get("/readyz")
            caught.value.close()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(30)  # much less than MLflow may take
    assert "Traceback" not in server.log.read_text()


def test_hundreds_of_clients_that_are_slow_or_leave_delay_nobody(folder, tmp_path):
    with serving(folder, tmp_path, receive_seconds=2) as server, ExitStack() as stack:
        example = server.get(f"/models/{NAME}/example")
        looked_at = psutil.Process(server.process.pid)
        files, body = looked_at.num_fds(), json.dumps(example).encode()
        whole = head(f"Content-Length: {len(body)}") + body
        kinds = (b"", get("/livez")[:20], whole[:-9], head("Transfer-Encoding: chunked"))
        slow = []
        for number in range(400):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            stack.enter_context(connection).sendall(kinds[number % len(kinds)])
            slow.append(connection)
        mate = stack.enter_context(ThreadPoolExecutor(1)).submit(
            lambda: [server.post("/predict", example) for _ in range(20)]
        )
        for number in range(400):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(whole[: (50, len(whole) - 9, len(whole))[number % 3]])
        first, *others = [each["predictions"][0]["mean"] for each in mate.result()]
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-5, atol=1e-5)
        answers = [connection.recv(2**16)[:13] for connection in slow]
        assert set(answers[::4]) == {b""}
        assert set(answers) == {b"", b"HTTP/1.1 408 "}
        until(lambda: looked_at.num_fds() <= files + 2)
        assert server.get("/readyz") == {"status": "ready"}
        assert server.post("/predict", example)["timing"]["batch_size"] == 1
    assert not re.search("Traceback|never retrieved|[Ee]xception ignored", server.log.read_text())
