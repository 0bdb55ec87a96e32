"""The service as a process: raw HTTP, long bodies, signals, the same bits everywhere."""

import asyncio
import json
import re
import resource
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest

from forecaster_service.batching import LATEST
from tests.service.processes import Server, free_port, running, wait_for
from tests.service.toy import NAME

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BODY = b'{"target": [1]}'
READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def head(*lines: str) -> bytes:
    fixed = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return "\r\n".join((*fixed, *lines, "", "")).encode()


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield head("Transfer-Encoding: chunked", "Connection: close")
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def test_same_bits_in_two_processes(server: Server, folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "forecaster_service.app:create_app"]
    environment = {"FORECASTER_MODEL": str(folder)}
    with running([*command, f"--port={port}"], environment, tmp_path, tmp_path / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, tmp_path / "log")
        other = Server(port, process)
        example = server.get(f"/models/{NAME}/example")
        answers = [one.post("/predict", example)["predictions"] for one in (server, other, server)]
    assert answers[0] == answers[1] == answers[2]


def test_requests_at_the_same_time_are_not_mixed_up(server: Server) -> None:
    example = server.get(f"/models/{NAME}/example")
    bodies = []
    for i in range(12):
        (series,) = example["inputs"]
        target = [[value + i for value in row] for row in series["target"]]
        bodies.append({"inputs": [{**series, "item_id": str(i), "target": target}]})
    alone = [server.post("/predict", body)["predictions"] for body in bodies]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda body: server.post("/predict", body), bodies))
    for (one,), (other,) in zip(alone, (answer["predictions"] for answer in together), strict=True):
        assert one["item_id"] == other["item_id"]
        np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["declared", "chunked"])
def test_fifty_megabytes_are_413_and_leave_no_trace(server: Server, way: str) -> None:
    piece = b"1" * 2**16
    pieces = [piece] * 800
    memory = psutil.Process(server.process.pid).memory_info
    server.raw([head("Content-Length: 2", "Connection: close"), b"{}"])
    before = memory().rss
    if way == "chunked":
        received, closed = server.raw(chunked(pieces))
    else:
        received, closed = server.raw([head(f"Content-Length: {len(piece) * 800}"), *pieces])
    assert closed
    # the client that goes on sending may lose the answer, but never sees another one
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    # the part of the body that was read, 16 MiB at most, and a little more
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


@pytest.mark.parametrize("second", ["localhost", "elsewhere"])
def test_a_request_has_one_host(server: Server, second: str) -> None:
    request = f"GET /livez HTTP/1.1\r\nHost: localhost\r\nhost: {second}\r\n\r\n".encode()
    received, closed = server.raw([request])
    assert received.startswith(b"HTTP/1.1 400")
    assert b"expected one header Host, with a name" in received
    assert closed


def test_head_has_no_body_and_leaves_the_connection(server: Server) -> None:
    request = b"HEAD /models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    received, _ = server.raw([request, request, READY])
    assert received.count(b"HTTP/1.1 200") == 3
    assert received.count(b"\r\n\r\nHTTP/1.1 200") == 2
    assert int(re.findall(rb"content-length: (\d+)", received)[0]) > 100


def test_alive_while_a_large_request_runs(server: Server) -> None:
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


def test_terminated_it_ends_soon(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    with running(command, {}, tmp_path, tmp_path / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, tmp_path / "log")
        process.send_signal(signal.SIGTERM)
        status = process.wait(10)
    assert status in (143, -signal.SIGTERM)
    assert "Traceback" not in (tmp_path / "log").read_text()


def batches(server: Server) -> float:
    """How many batches have run."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        count = re.search(r"^forecaster_batch_series_count{.*} (.*)$", answer.read().decode(), re.M)
    assert count is not None
    return float(count[1])


def test_terminated_it_says_so_and_answers_what_it_has(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    environment = {"FORECASTER_DRAIN_SECONDS": "1.5", "FORECASTER_MAX_BATCH": "1"}
    log = tmp_path / "log"
    with running(command, environment, tmp_path, log) as process, ThreadPoolExecutor(1) as pool:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        server = Server(port, process)
        example = server.get(f"/models/{NAME}/example")
        large = pool.submit(server.post, "/predict", {"inputs": example["inputs"] * 300})
        while not batches(server) > 1:  # the first was the model's example
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        while (answer := server.raw([READY]))[0].startswith(b"HTTP/1.1 200"):
            assert time.monotonic() - began < 1
        assert answer[0].startswith(b"HTTP/1.1 503")
        assert len(server.post("/predict", example)["predictions"]) == 1
        assert len(large.result()["predictions"]) == 300
        assert process.wait(20) in (143, -signal.SIGTERM)
        assert time.monotonic() - began >= 1.5
    assert "Traceback" not in log.read_text()


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
            process.wait(30)  # much less than MLflow may take
    assert "Traceback" not in (tmp_path / "log").read_text()


async def at_once(port: int, request: bytes, count: int) -> list[tuple[bytes, float]]:
    """Answers and seconds of requests on as many connections, all open before the first is sent."""
    ready = asyncio.Event()
    waiting = 0

    async def one() -> tuple[bytes, float]:
        nonlocal waiting
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        waiting += 1
        if waiting == count:
            ready.set()
        await ready.wait()
        began = time.monotonic()
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer, time.monotonic() - began

    return await asyncio.gather(*(one() for _ in range(count)))


def test_overload_is_refused_and_recovered_from(folder: Path, tmp_path: Path) -> None:
    """More clients than the queue has room for: 503 for the surplus, and soon it is as before."""
    port, log = free_port(), tmp_path / "log"
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    limits = {"FORECASTER_MAX_QUEUE": "16", "FORECASTER_MAX_BATCH": "4"}
    with running(command, limits, tmp_path, log) as process, ThreadPoolExecutor(1) as pool:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        server, looked_at = Server(port, process), psutil.Process(process.pid)
        example = server.get(f"/models/{NAME}/example")
        body = json.dumps({"inputs": example["inputs"] * 4}).encode()
        request = head(f"Content-Length: {len(body)}", "Connection: close") + body
        files = looked_at.num_fds()
        slowest, memory = 0.0, list[int]()
        asked = pool.submit(asyncio.run, at_once(port, request, 500))
        while not asked.done():
            began = time.monotonic()
            server.get("/livez")
            slowest = max(slowest, time.monotonic() - began)
            memory.append(looked_at.memory_info().rss)
        received = asked.result()
        assert server.post("/predict", example)["timing"]["batch_size"] == 1
        assert server.get("/readyz") == {"status": "ready"}
        wait_until(lambda: looked_at.num_fds() <= files + 2)
    statuses = [answer[9:12] for answer, _ in received]
    assert set(statuses) == {b"200", b"503"}
    refused = [answer for answer, _ in received if answer[9:12] == b"503"]
    assert all(re.search(rb"retry-after: [1-9]\d*\r\n", answer) for answer in refused)
    assert max(seconds for answer, seconds in received if answer[9:12] == b"200") < 30
    assert slowest < 10
    assert memory[-1] - memory[0] < 60 * 2**20
    assert "Traceback" not in log.read_text()


def test_of_two_thousand_at_once_none_waits_in_vain(folder: Path, tmp_path: Path) -> None:
    """Requests that would miss their deadline are refused at once, with a Retry-After."""
    port, log, count, deadline = free_port(), tmp_path / "log", 2000, 8
    command = [sys.executable, "-m", "tests.service.slowed", "0.05", "serve"]
    command += ["--model", str(folder), "--port", str(port)]
    settings = {"FORECASTER_DEADLINE_SECONDS": str(deadline), "FORECASTER_MAX_BATCH": "16"}
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    try:
        with running(command, settings, ROOT, log) as process:
            wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
            server = Server(port, process)
            body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
            request = head(f"Content-Length: {len(body)}", "Connection: close") + body
            received = asyncio.run(at_once(port, request, count))
            assert len(server.post("/predict", json.loads(body))["predictions"]) == 1
            assert server.get("/readyz") == {"status": "ready"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    statuses = Counter(answer[9:12] for answer, _ in received)
    assert set(statuses) == {b"200", b"503"}, statuses
    assert statuses[b"200"] >= 16, "those that run at once"
    again = [re.search(rb"retry-after: (\d+)\r\n", answer) for answer, _ in received]
    waits = {int(found[1]) for found in again if found}
    assert sum(found is not None for found in again) == statuses[b"503"]
    assert 1 <= min(waits) < 10 < max(waits) <= LATEST, "they are not all to come back at once"
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def impatient(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Path]]:
    """A service that waits for requests for 2 s, and its log."""
    port, place = free_port(), tmp_path_factory.mktemp("impatient")
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    settings = {"FORECASTER_RECEIVE_SECONDS": "2"}
    with running(command, settings, place, place / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, place / "log")
        yield Server(port, process), place / "log"


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_hundreds_of_slow_clients_are_closed_and_nobody_waits_for_them(
    impatient: tuple[Server, Path],
) -> None:
    server, log = impatient
    example = server.get(f"/models/{NAME}/example")
    looked_at = psutil.Process(server.process.pid)
    files = looked_at.num_fds()
    kinds = (
        b"",
        READY[:20],
        head("Content-Length: 100") + b"{",
        head("Transfer-Encoding: chunked"),
    )
    with ExitStack() as stack:
        slow = []
        for number in range(400):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            stack.enter_context(connection)
            connection.sendall(kinds[number % len(kinds)])
            slow.append(connection)
        assert server.get("/livez") == {"status": "alive"}
        assert len(server.post("/predict", example)["predictions"]) == 1
        answers = [connection.recv(2**16)[:13] for connection in slow]
    assert set(answers[::4]) == {b""}
    assert set(answers) == {b"", b"HTTP/1.1 408 "}
    wait_until(lambda: looked_at.num_fds() <= files + 2)
    assert "Traceback" not in log.read_text()


def test_hundreds_of_clients_leave_and_others_are_answered(
    impatient: tuple[Server, Path],
) -> None:
    server, log = impatient
    example = server.get(f"/models/{NAME}/example")
    looked_at = psutil.Process(server.process.pid)
    files, body = looked_at.num_fds(), json.dumps(example).encode()
    whole = head(f"Content-Length: {len(body)}") + body
    with ThreadPoolExecutor(1) as pool:
        mate = pool.submit(lambda: [server.post("/predict", example) for _ in range(20)])
        for number in range(400):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(whole[: (50, len(whole) - 9, len(whole))[number % 3]])
        answers = mate.result()
    for answer in answers:
        (forecast,) = answer["predictions"]
        np.testing.assert_allclose(
            forecast["mean"], answers[0]["predictions"][0]["mean"], rtol=1e-5, atol=1e-5
        )
    wait_until(lambda: looked_at.num_fds() <= files + 2)
    assert server.get("/readyz") == {"status": "ready"}
    assert server.post("/predict", example)["timing"]["batch_size"] == 1
    assert not re.search("Traceback|never retrieved|[Ee]xception ignored", log.read_text())
