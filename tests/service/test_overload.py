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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.service.containers import nginx
from tests.service.processes import Server, free_port, get, head, serving, until, wait_for
from tests.service.toy import NAME

pytestmark = pytest.mark.slow

MIB = 2**20
LONG = 31 * MIB // 2
SLOW = 0.004
"""Seconds that the device needs for a series: 250 a second, where the test sends twice as many."""


def post(body, *more):
    return head(f"Content-Length: {len(body)}", *more) + body


def status(port, request):
    """The status of the answer to a request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.sendall(request)
        return connection.recv(2**16)[9:12]


def test_bodies_that_are_held_back_do_not_fill_the_memory(server):
    """130 connections that keep back the last byte of 15.5 MiB; others are answered meanwhile."""
    with ExitStack() as stack:
        memory = psutil.Process(server.process.pid).memory_info
        example = server.get(f"/models/{NAME}/example")
        server.post("/predict", example)
        before, most, waiting = memory().rss, 0, []
        for _ in range(130):
            connection = socket.create_connection(("127.0.0.1", server.port))
            stack.enter_context(connection).setblocking(False)
            waiting.append([connection, memoryview(post(b" " * LONG)[:-1])])
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for each in waiting:
                try:
                    each[1] = each[1][each[0].send(each[1][: 2**18]) :] if each[1] else each[1]
                except BlockingIOError:
                    pass
                except ConnectionError:
                    each[1] = memoryview(b"")
            most = max(most, memory().rss - before)
            assert server.figure("body_bytes") <= 128 * MIB
            assert len(server.post("/predict", example)["predictions"]) == 1
        assert 64 * MIB < most < 400 * MIB, f"some are held: {most / MIB:.0f} MiB"
        stack.close()
        until(lambda: memory().rss - before < 100 * MIB and not server.figure("body_bytes"))
        assert len(server.post("/predict", example)["predictions"]) == 1


def test_large_tables_that_are_refused_hold_nobody_up(server):
    """Twelve at once, each of 15 MB and with a bad last cell."""
    cells = b",".join([b"[1.25,2.5,3.75]"] * (LONG // 16))
    body = b'{"start": "2026-01-01T00:00:00", "target": [' + cells + b',[1,2,"x"]]}'
    with ThreadPoolExecutor(12) as pool:
        memory = psutil.Process(server.process.pid).memory_info
        example = server.get(f"/models/{NAME}/example")
        before, most, slowest = memory().rss, 0, 0.0
        request = post(body, "Connection: close")
        answers = [pool.submit(status, server.port, request) for _ in range(12)]
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
def test_a_log_that_takes_nothing_costs_lines(folder, where):
    port, (read, write) = free_port(), os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    command = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    stderr = full if where == "a full disk" else write
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, Path(os.devnull))
        server = Server(port, process)
        several = head(start=("GET /nothing HTTP/1.1", "Host: localhost")) * 300
        for _ in range(20):  # more than the lines that may wait
            assert server.raw([several, get("/models")])[0].count(b"HTTP/1.1 404") == 300
        assert server.figure("log_lines_lost_total") > 100
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (143, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        for file in (read, write, full):
            os.close(file)


def test_connections_that_wait_are_answered_before_the_end(folder, tmp_path):
    with serving(folder, tmp_path, drain_seconds=0) as server, ExitStack() as stack:
        request = post(json.dumps(server.get(f"/models/{NAME}/example")).encode())
        server.process.send_signal(signal.SIGSTOP)
        clients = []
        for _ in range(50):  # the system accepts them; the service has not seen them yet
            connection = socket.create_connection(("127.0.0.1", server.port), 60)
            stack.enter_context(connection).sendall(request)
            clients.append(connection)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        assert Counter(each.recv(2**16)[9:12] for each in clients) == {b"200": 50}
        assert server.process.wait(20) in (143, -signal.SIGTERM)


def test_few_descriptors_disconnect_nobody_who_asks(folder, tmp_path):
    code = (
        "import resource, sys; from forecaster.cli import main;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); main()"
    )
    with (
        serving(folder, tmp_path, program=(sys.executable, "-c", code)) as server,
        ExitStack() as stack,
        ThreadPoolExecutor(60) as pool,
    ):
        body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
        request = post(body, "Connection: close")
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        found = pool.map(lambda _: status(server.port, request), range(200))
        assert Counter(found) == {b"200": 200}


async def ask(port, request, source):
    """The answer to a request on a connection of its own, and how long it took."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(request)
        received = await reader.read(-1)
    finally:
        writer.close()
    return received, time.monotonic() - began


async def flood(port, inner, request, rate, seconds):
    """The answers to requests at `rate` for `seconds` from 50 addresses through `port`, with their
    times; the times of probes; and the figures of the service on `inner` meanwhile."""
    probes = []
    figures = []
    busy = re.compile(rb"(?m)^forecaster_(?:queue_series|expected_wait_seconds) (\S+)$")

    async def probe():
        while True:
            for path in ("/livez", "/readyz"):
                answer, took = await ask(port, get(path), "127.0.2.1")
                assert answer[9:12] == b"200" or path == "/readyz"
                probes.append(took)
            text, _ = await ask(inner, get("/metrics"), "127.0.2.1")
            figures.append(tuple(map(float, busy.findall(text))))
            await asyncio.sleep(0.2)

    probing, begun, tasks = asyncio.create_task(probe()), time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(ask(port, request, f"127.0.1.{number % 50 + 1}")))
    answers = await asyncio.gather(*tasks)
    probing.cancel()
    return answers, probes, figures


def test_twice_what_can_be_served_through_nginx(folder, tmp_path):
    """Ten seconds; docs/operate.md has the figures of a longer flood without nginx."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    slowed = (sys.executable, str(Path(__file__).with_name("slowed.py")), str(SLOW))
    settings = {"threads": 1, "max_queue": 150, "trusted_proxies": "127.0.0.1"}
    try:
        with (
            serving(folder, tmp_path, program=slowed, **settings) as server,
            nginx(port := free_port(), server.port),
        ):
            body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
            request = post(body, "Connection: close")
            memory = psutil.Process(server.process.pid).memory_info
            before = memory().rss
            found = asyncio.run(flood(port, server.port, request, 2 / SLOW * 0.8, 10))
            answers, probes, figures = found
            batches = server.figure("batch_series_sum") / server.figure("batch_series_count")
            assert memory().rss - before < 150 * MIB
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    statuses = Counter(answer[9:12] for answer, _ in answers)
    assert set(statuses) == {b"200", b"503"}, statuses
    assert statuses[b"200"] > 300
    for answer, _ in answers:
        assert answer[9:12] == b"200" or re.search(rb"(?i)\r\nretry-after: [1-9]\d?\r\n", answer)
    served = sorted(took for answer, took in answers if answer[9:12] == b"200")
    assert served[int(len(served) * 0.99)] < 6
    assert max(probes) < 1
    assert batches >= 2
    busy = [queue > 0 and wait > 0 for queue, wait in figures]
    assert sum(busy) > len(busy) / 2, figures
