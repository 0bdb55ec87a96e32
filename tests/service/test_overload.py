"""A service under more than it can take: memory, logs, connections, and requests through nginx."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.service.containers import nginx
from tests.service.processes import Server, free_port, running, wait_for
from tests.service.toy import NAME

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
LONG = 31 * MIB // 2
SLOW = 0.004
"""Seconds that the device needs for a series: 250 a second, where the test sends twice as many."""


def post(length: int, *more: str) -> bytes:
    lines = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return "\r\n".join((*lines, f"Content-Length: {length}", *more, "", "")).encode()


@contextmanager
def serving(folder: Path, place: Path, *prefix: str, **settings: str) -> Iterator[Server]:
    """A service of that bundle, whose log is in `place`."""
    port = free_port()
    command = [*(prefix or ("forecaster",)), "serve", "--model", str(folder), "--port", str(port)]
    environment = {f"FORECASTER_{name.upper()}": value for name, value in settings.items()}
    with running(command, environment, ROOT, place / "log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, place / "log")
        yield Server(port, process)


def figure(server: Server, name: str) -> float:
    """The sum of the samples of a metric without labels or with any."""
    text = server.raw([b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"])[0]
    found = re.findall(rf"(?m)^forecaster_{name}(?:{{.*}})? (\S+)$".encode(), text)
    assert found, text[:300]
    return sum(map(float, found))


def test_bodies_that_are_held_back_do_not_fill_the_memory(folder: Path, tmp_path: Path) -> None:
    """130 connections that keep back the last byte of 15.5 MiB; others are answered meanwhile."""
    with serving(folder, tmp_path) as server, ExitStack() as stack:
        memory = psutil.Process(server.process.pid).memory_info
        example = server.get(f"/models/{NAME}/example")
        server.post("/predict", example)
        before, most = memory().rss, 0
        body, waiting = b" " * (LONG - 1), []
        for _ in range(130):
            connection = socket.create_connection(("127.0.0.1", server.port))
            stack.enter_context(connection).setblocking(False)
            waiting.append([connection, memoryview(post(LONG) + body)])
        end = time.monotonic() + 12
        while time.monotonic() < end:
            for each in waiting:
                try:
                    each[1] = each[1][each[0].send(each[1][: 2**18]) :] if each[1] else each[1]
                except BlockingIOError:
                    pass
                except ConnectionError:
                    each[1] = memoryview(b"")
            most = max(most, memory().rss - before)
            assert figure(server, "body_bytes") <= 128 * MIB
            assert len(server.post("/predict", example)["predictions"]) == 1
        assert most < 400 * MIB, f"{most / MIB:.0f} MiB"
        assert most > 64 * MIB, "some are held"
        stack.close()
        end = time.monotonic() + 60
        while memory().rss - before > 100 * MIB:
            assert time.monotonic() < end, f"{(memory().rss - before) / MIB:.0f} MiB"
            time.sleep(0.1)
        while figure(server, "body_bytes"):
            assert time.monotonic() < end
        assert len(server.post("/predict", example)["predictions"]) == 1


def test_large_tables_that_are_refused_hold_nobody_up(folder: Path, tmp_path: Path) -> None:
    """Twelve at once, each of 15 MB and with a bad last cell."""
    cells = b",".join([b"[1.25,2.5,3.75]"] * (LONG // 16))
    body = b'{"start": "2026-01-01T00:00:00", "target": [' + cells + b',[1,2,"x"]]}'
    with serving(folder, tmp_path) as server, ThreadPoolExecutor(12) as pool:
        memory = psutil.Process(server.process.pid).memory_info
        example = server.get(f"/models/{NAME}/example")
        before, most, slowest = memory().rss, 0, 0.0
        request = post(len(body), "Connection: close") + body

        def ask(_: int) -> bytes:
            with socket.create_connection(("127.0.0.1", server.port), 120) as connection:
                connection.sendall(request)
                return connection.recv(2**16)[9:12]

        answers = [pool.submit(ask, number) for number in range(12)]
        while not all(each.done() for each in answers):
            began = time.monotonic()
            server.get("/livez")
            server.post("/predict", example)
            slowest = max(slowest, time.monotonic() - began)
            most = max(most, memory().rss - before)
        assert {each.result() for each in answers} <= {b"422", b"503"}
        assert most < 600 * MIB, f"{most / MIB:.0f} MiB"
        assert slowest < 5


@pytest.mark.parametrize("where", ["a pipe that nobody reads", "a full disk"])
def test_a_log_that_takes_nothing_costs_lines(folder: Path, where: str) -> None:
    port, (read, write) = free_port(), os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    stderr = full if where == "a full disk" else write
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        empty = Path(os.devnull)
        wait_for(f"http://127.0.0.1:{port}/readyz", process, empty)
        server = Server(port, process)
        request = b"GET /models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for _ in range(400 if where == "a full disk" else 6000):  # each has a line of 200 bytes
            assert server.raw([request])[0].startswith(b"HTTP/1.1 200")
        assert figure(server, "log_lines_lost_total") > 100
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (143, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        for file in (read, write, full):
            os.close(file)


def test_connections_that_wait_are_answered_before_the_end(folder: Path, tmp_path: Path) -> None:
    with serving(folder, tmp_path, drain_seconds="0") as server, ExitStack() as stack:
        body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
        server.process.send_signal(signal.SIGSTOP)
        clients = []
        for _ in range(50):  # the system accepts them; the service has not seen them yet
            connection = socket.create_connection(("127.0.0.1", server.port), 60)
            stack.enter_context(connection).sendall(post(len(body)) + body)
            clients.append(connection)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        assert Counter(each.recv(2**16)[9:12] for each in clients) == {b"200": 50}
        assert server.process.wait(20) in (143, -signal.SIGTERM)


def test_few_descriptors_disconnect_nobody_who_asks(folder: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys; from forecaster.cli import main;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); main()"
    )
    with serving(folder, tmp_path, sys.executable, "-c", code) as server, ExitStack() as stack:
        example = json.dumps(server.get(f"/models/{NAME}/example")).encode()
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))

        def ask(_: int) -> bytes:
            with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
                connection.sendall(post(len(example), "Connection: close") + example)
                return connection.recv(2**16)[9:12]

        with ThreadPoolExecutor(60) as pool:
            assert Counter(pool.map(ask, range(300))) == {b"200": 300}


async def ask(port: int, request: bytes, source: str) -> tuple[bytes, bytes]:
    """The head and the body of the answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(request)
    received = await reader.read(-1)
    writer.close()
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


async def flood(port: int, inner: int, request: bytes, rate: float, seconds: float) -> Any:
    """The answers to requests at `rate` for `seconds` from 50 addresses through `port`, with their
    times; the times of probes; and the figures of the service on `inner` meanwhile."""
    answers: list[tuple[bytes, float]] = []
    probes: list[float] = []
    figures: list[tuple[float, float]] = []
    get = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    async def one(number: int) -> None:
        began = time.monotonic()
        head, _ = await ask(port, request, f"127.0.1.{number % 50 + 1}")
        answers.append((head, time.monotonic() - began))

    async def probe() -> None:
        while True:
            for path in (b"/livez", b"/readyz"):
                began = time.monotonic()
                head, _ = await ask(port, get % path, "127.0.2.1")
                assert head[9:12] == b"200" or path == b"/readyz"
                probes.append(time.monotonic() - began)
            _, text = await ask(inner, get % b"/metrics", "127.0.2.1")
            found = [
                re.search(rb"(?m)^forecaster_%b (\S+)$" % name, text)
                for name in (b"queue_series", b"expected_wait_seconds")
            ]
            figures.append(tuple(float(each[1]) for each in found if each))
            await asyncio.sleep(0.2)

    probing, begun, tasks = asyncio.create_task(probe()), time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    probing.cancel()
    return answers, probes, figures


def test_twice_what_can_be_served_through_nginx(folder: Path, tmp_path: Path) -> None:
    """Ten seconds; docs/operate.md has the figures of a longer flood without nginx."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    slowed = (sys.executable, "-m", "tests.service.slowed", str(SLOW))
    settings = {"threads": "1", "max_queue": "150", "trusted_proxies": "127.0.0.1"}
    try:
        with (
            serving(folder, tmp_path, *slowed, **settings) as server,
            nginx(port := free_port(), server.port),
        ):
            body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
            request = post(len(body), "Connection: close") + body
            found = asyncio.run(flood(port, server.port, request, 2 / SLOW * 0.8, 10))
            answers, probes, figures = found
            batches = figure(server, "batch_series_sum") / figure(server, "batch_series_count")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    statuses = Counter(head[9:12] for head, _ in answers)
    assert set(statuses) == {b"200", b"503"}, statuses
    assert statuses[b"200"] > 300
    for head, _ in answers:
        assert head[9:12] == b"200" or re.search(rb"(?i)\r\nretry-after: [1-9]\d?\r\n", head)
    served = sorted(took for head, took in answers if head[9:12] == b"200")
    assert served[int(len(served) * 0.99)] < 6
    assert max(probes) < 1
    assert batches >= 2
    busy = [queue > 0 and wait > 0 for queue, wait in figures]
    assert sum(busy) > len(busy) / 2, figures
