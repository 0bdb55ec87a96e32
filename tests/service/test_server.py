"""The service as a process: raw HTTP, long bodies, signals, the same bits everywhere."""

import json
import signal
import socket
import sys
import time
import urllib.error
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.service.processes import Server, free_port, running, wait_for
from tests.service.toy import NAME

pytestmark = pytest.mark.slow

BODY = b'{"target": [1]}'


def head(*lines: str) -> bytes:
    fixed = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return "\r\n".join((*fixed, *lines, "", "")).encode()


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield head("Transfer-Encoding: chunked")
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def test_same_bits_in_two_processes(server: Server, folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app"]
    environment = {"FORECASTER_MODEL": str(folder)}
    with running([*command, f"--port={port}"], environment, tmp_path, tmp_path / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, tmp_path / "log")
        other = Server(port, process)
        example = server.get(f"/models/{NAME}/example")
        answers = [one.post("/predict", example)["predictions"] for one in (server, other, server)]
    assert answers[0] == answers[1] == answers[2]


def test_requests_at_the_same_time_are_not_mixed_up(server: Server) -> None:
    from concurrent.futures import ThreadPoolExecutor

    example = server.get(f"/models/{NAME}/example")
    bodies = []
    for i in range(12):
        (series,) = example["inputs"]
        target = [[value + i for value in row] for row in series["target"]]
        bodies.append({"inputs": [{**series, "item_id": str(i), "target": target}]})
    alone = [server.post("/predict", body)["predictions"] for body in bodies]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda body: server.post("/predict", body), bodies))
    assert [answer["predictions"] for answer in together] == alone


@pytest.mark.parametrize("way", ["declared", "chunked"])
def test_fifty_megabytes_are_413_and_leave_no_trace(server: Server, way: str) -> None:
    piece = b"1" * 2**16
    pieces = [piece] * 800
    memory = psutil.Process(server.process.pid).memory_info
    server.raw([head("Content-Length: 2"), b"{}"])
    before = memory().rss
    if way == "chunked":
        received, closed = server.raw(chunked(pieces))
    else:
        received, closed = server.raw([head(f"Content-Length: {len(piece) * 800}"), *pieces])
    assert closed
    # the client that goes on sending may lose the answer, but never sees another one
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    # what was read of the body, 16 MiB at most, and some
    assert memory().rss - before < 40 * 2**20
    assert server.get("/livez") == {"status": "alive"}


def test_a_client_that_waits_gets_the_413(server: Server) -> None:
    received, closed = server.raw([head("Content-Length: 50000000", "Expect: 100-continue")])
    assert received.startswith(b"HTTP/1.1 413")
    assert b"application/problem+json" in received
    assert closed


def test_chunks_of_one_byte(server: Server) -> None:
    last = BODY[:-1] + b', "start": "x"}'
    received, _ = server.raw(chunked(bytes([byte]) for byte in last))
    assert received.startswith(b"HTTP/1.1 422")


@pytest.mark.parametrize(
    "request_",
    [
        head("Content-Length: 15", "Transfer-Encoding: chunked") + BODY,
        head("Content-Length: 15", "Content-Length: 16") + BODY,
        head("Content-Length: +15") + BODY,
        head("Content-Length : 15") + BODY,
        head("Content-Length: 15").replace(b"\r\n", b"\n") + BODY,
        head("X-A: 1\r\n folded", "Content-Length: 15") + BODY,
        head("Transfer-Encoding: nonsense") + BODY,
        head("Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n" + BODY,
        head("Transfer-Encoding: chunked") + b"zz\r\n" + BODY,
        b"NONSENSE\r\n\r\n",
    ],
    ids=lambda value: str(value[75:120]),
)
def test_ambiguous_http_is_400_and_ends_the_connection(server: Server, request_: bytes) -> None:
    received, closed = server.raw([request_])
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1") == 1
    assert closed


def test_a_request_without_a_host_is_400(server: Server) -> None:
    received, _ = server.raw([b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n"])
    assert received.startswith(b"HTTP/1.1 400")


def test_alive_while_a_large_request_runs(server: Server) -> None:
    from concurrent.futures import ThreadPoolExecutor

    (series,) = server.get(f"/models/{NAME}/example")["inputs"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, "/predict", {"inputs": [series] * 1000})
        slowest = 0.0
        while not answer.done():
            began = time.monotonic()
            server.get("/livez")
            slowest = max(slowest, time.monotonic() - began)
        assert len(answer.result()["predictions"]) == 1000
    assert slowest < 2


def test_a_client_that_leaves_does_no_harm(server: Server) -> None:
    body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head(f"Content-Length: {len(body)}") + body)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head(f"Content-Length: {len(body)}") + body[:100])
    assert server.post("/predict", json.loads(body))["timing"]["batch_size"] == 1


def test_terminated_it_ends_soon(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    with running(command, {}, tmp_path, tmp_path / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, tmp_path / "log")
        process.send_signal(signal.SIGTERM)
        status = process.wait(10)
    assert status in (143, -signal.SIGTERM)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_registry_that_hangs_delays_neither_probes_nor_the_end(tmp_path: Path) -> None:
    port = free_port()
    command = ["forecaster", "serve", "--model", NAME, "--port", str(port)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {"MLFLOW_TRACKING_URI": address}
        with running(command, environment, tmp_path, tmp_path / "log") as process:
            wait_for(f"http://127.0.0.1:{port}/livez", process, tmp_path / "log")
            with pytest.raises(urllib.error.HTTPError, match="503") as caught:
                Server(port, process).get("/readyz")
            caught.value.close()
            process.send_signal(signal.SIGTERM)
            process.wait(5)
    assert "Traceback" not in (tmp_path / "log").read_text()
