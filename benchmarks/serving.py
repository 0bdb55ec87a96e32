"""Requests per second and latency of the service on loopback, against the model alone.

    python benchmarks/serving.py --model runs/ETTh1-168-prob-s0-1f2e3d4c
    python benchmarks/serving.py --model BUNDLE --mlflow models:/NAME/1
    python -m benchmarks.serving --model BUNDLE --overload 5000 --rate 300
    python benchmarks/serving.py --model BUNDLE --workers 2
    python -m benchmarks.serving --model BUNDLE --plain

Each client sends its next request as soon as it has an answer, with one series per request. The
model alone is called in this process, one series at a time and in a loop of its best batch, before
and after each turn of a server; ratios are to the mean of both, because the speed of a machine
changes within seconds. With --mlflow, `mlflow models serve` takes turns with the service for the
same model. The results are medians of the rounds. With --overload, the given number of requests
arrives at --rate, by default twice the rate that the service reaches with 64 clients, whether they
are answered or not: once on a new connection each, once on connections that are kept. With
--workers, a service with that many processes takes turns with a single process; the results include
the processor time of a forecast, and that of the clients. With --plain, the server of
plain_server.py takes turns with the service; the results include the ratio of their rates in the
same turn. The results are kept in benchmarks/results/.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
import uvloop
from attention import keep
from tqdm import tqdm

from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question
from forecaster.study import bench
from forecaster.study.bench import Setup

CONCURRENCY = (1, 32, 64)
SHARED = (1, 8, 32)
"""Numbers of clients where two servers take turns."""
BAND = [0.1, 0.5, 0.9]
"""The quantiles that a plain server is asked for."""
BATCHES = (1, 2, 4, 8, 16, 32, 64)
SETTLING = 0.5
"""The first seconds of load, not counted; neither is the time until every client has an answer."""
ALONE = 0.7
"""Seconds for which the model alone runs before and after each turn of a server."""
Figures = dict[str, float]


@dataclass(frozen=True)
class Server:
    """A process that answers on `port`, since `ready` seconds after its start."""

    port: int
    pid: int
    ready: float

    def resident(self) -> float:
        """Resident memory in MiB."""
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if "VmRSS" in line) / 1024

    def proportional(self) -> list[float]:
        """Proportional memory (PSS) in MiB of the process and of each of its children."""
        own = psutil.Process(self.pid)
        return [round(each.memory_full_info().pss / 2**20) for each in [own, *own.children()]]

    def busy(self) -> float:
        """Processor seconds that its processes have used."""
        own = psutil.Process(self.pid)
        took = [each.cpu_times() for each in [own, *own.children()]]
        return sum(each.user + each.system for each in took)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text: str = answer.read().decode()
            return text

    def batches(self) -> tuple[float, float]:
        """The series that it has forecast, and in how many batches."""
        text = self.metrics()
        series, runs = (
            sum(map(float, re.findall(rf"(?m)^forecaster_batch_series_{name}.* (\S+)$", text)))
            for name in ("sum", "count")
        )
        return series, runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a bundle's folder")
    parser.add_argument("--mlflow", help="the MLflow URI of the same model")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="for each measurement of a server"
    )
    parser.add_argument("--overload", type=int, default=0, help="requests")
    parser.add_argument("--rate", type=float, default=0, help="of these, per second")
    parser.add_argument("--workers", type=int, default=0, help="processes")
    parser.add_argument("--plain", action="store_true", help="take turns with plain_server.py")
    arguments = parser.parse_args()
    forecaster = Predictor.load(arguments.model)
    config = forecaster.bundle.config
    document = {
        "kind": "serving",
        **bench.about(Setup(threads=torch.get_num_threads(), device=forecaster.device)),
        "model": config.model.name,
        "width": config.model.options["width"],
        "attn": config.attn.name,
        "past": forecaster.bundle.past,
        "horizon": forecaster.bundle.horizon,
        "columns": len(forecaster.schema.columns),
    }
    found: dict[str, Any]
    with ExitStack() as stack:
        command = ["forecaster", "serve", "--model", arguments.model, "--port"]
        server = stack.enter_context(serving(command, "/readyz"))
        url = f"http://127.0.0.1:{server.port}/models/{forecaster.bundle.name}/example"
        with urllib.request.urlopen(url) as answer:
            request = post("/predict", answer.read())
        if arguments.workers:
            command = ["forecaster", "serve", "--model", arguments.model]
            command += ["--workers", str(arguments.workers), "--port"]
            several = stack.enter_context(serving(command, "/readyz"))
            servers = {1: (server, request), arguments.workers: (several, request)}
            found = in_turns("processes", servers, arguments)
            found["mib_one"], found["mib_several"] = server.proportional(), several.proportional()
        elif arguments.plain:
            peer = stack.enter_context(plain(Path(arguments.model)))
            asked = json.loads(request.partition(b"\r\n\r\n")[2])["inputs"][0]
            body = {"start": asked["start"], "target": asked["target"], "quantile_levels": BAND}
            request = post("/predict", json.dumps(body).encode())
            found = in_turns("what", {"service": (server, request), "plain": (peer, request)},
                             arguments)  # fmt: skip
        elif arguments.overload:
            found = overload(server, request, arguments)
        else:
            servers = {"service": (server, request)}
            if arguments.mlflow:
                command = ["mlflow", "models", "serve", "--env-manager", "local"]
                frame = forecaster.example.to_json(orient="split", index=False, date_format="iso")
                servers["mlflow models serve"] = (
                    stack.enter_context(serving([*command, "-m", arguments.mlflow, "-p"], "/ping")),
                    post("/invocations", f'{{"dataframe_split": {frame}}}'.encode()),
                )
            found = {"rows": side_by_side(forecaster, servers, arguments)}
        found["ready_seconds"] = round(server.ready, 2)
    given = (each for each in ("workers", "plain", "overload") if getattr(arguments, each))
    what = next(given, "serving")
    keep(f"{what}-{config.model.name}-{config.attn.name}-{forecaster.device}",
         document | {"kind": what} | found)  # fmt: skip


def side_by_side(
    forecaster: Predictor,
    servers: dict[str, tuple[Server, bytes]],
    arguments: argparse.Namespace,
) -> list[dict[str, Any]]:
    """The medians of all rounds, for each server and each number of clients or series at once."""
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    best = max(BATCHES, key=lambda batch: alone(forecaster, batch, 2)["per_second"])
    for _ in tqdm(range(arguments.rounds), "rounds"):
        for clients in CONCURRENCY:
            batch = 1 if clients == 1 else best
            for what, (server, request) in servers.items():
                alone(forecaster, batch, ALONE)  # after light load a machine is faster for a moment
                before = alone(forecaster, batch, ALONE)
                figure = uvloop.run(load(server.port, request, clients, arguments.seconds))
                del figure["answered"]
                models = [before, alone(forecaster, batch, ALONE)]
                found["model alone", batch] += models
                for key in ("p50_ms", "per_second"):
                    figure[f"{key}_by_alone"] = figure[key] / mean(row[key] for row in models)
                found[what, clients].append(figure)
    return [
        {
            "what": what,
            "at_once": count,
            **{key: round(median(row[key] for row in rows), 3) for key in rows[0]},
        }
        for (what, count), rows in found.items()
    ]


def in_turns(
    name: str, servers: dict[Any, tuple[Server, bytes]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """The medians of all rounds, by server, called `name` in a row, and number of clients; among
    them its rate by that of the last server in the same round."""
    found: dict[tuple[Any, int], list[Figures]] = defaultdict(list)
    for _ in tqdm(range(arguments.rounds), "rounds"):
        for clients in SHARED:
            turns = {}
            for what, (server, request) in servers.items():
                busy, own, began = server.busy(), time.process_time(), time.perf_counter()
                figure = turns[what] = uvloop.run(
                    load(server.port, request, clients, arguments.seconds)
                )
                lasted, own = time.perf_counter() - began, time.process_time() - own
                busy, done = server.busy() - busy, figure.pop("answered")
                figure["service_ms"], figure["client_ms"] = 1e3 * busy / done, 1e3 * own / done
                figure["cores"], figure["client_cores"] = busy / lasted, own / lasted
            last = figure["per_second"]
            for what, figure in turns.items():
                figure["per_second_by_last"] = figure["per_second"] / last
                found[what, clients].append(figure)
    rows = [
        {
            name: what,
            "at_once": clients,
            **{key: round(median(row[key] for row in rows), 3) for key in rows[0]},
        }
        for (what, clients), rows in found.items()
    ]
    return {"rows": rows, "cores": os.cpu_count(), "load_after": round(os.getloadavg()[0], 2)}


@contextmanager
def plain(bundle: Path) -> Iterator[Server]:
    """The server of plain_server.py with the ONNX export of a bundle."""
    with tempfile.TemporaryDirectory() as folder:
        export = ["forecaster", "export", "--model", bundle, "--format", "onnx", "--output"]
        subprocess.run([*export, f"{folder}/plain"], check=True, stdout=subprocess.DEVNULL)
        command = ["uvicorn", "--app-dir", str(Path(__file__).parent), "plain_server:app"]
        with serving(
            [*command, "--no-access-log", "--port"], "/readyz", MODEL=f"{folder}/plain"
        ) as server:
            yield server


def alone(forecaster: Predictor, batch: int, seconds: float) -> Figures:
    """The model without HTTP, `batch` series at a time."""
    past, schema = forecaster.bundle.past, forecaster.schema
    if schema.known.columns or schema.known.attributes or schema.wide:
        sys.exit("this measures only models of one table, without covariates and attributes")
    history = forecaster.example[list(schema.columns)].to_numpy()[None, :past]
    starts = pd.DatetimeIndex(forecaster.example[schema.time][:1])
    question = Question(history.repeat(batch, axis=0), starts.repeat(batch))
    took: list[float] = []
    while len(took) < 3 or sum(took) < seconds:
        began = time.perf_counter()
        forecaster.forecast_quantiles(question)
        took.append(time.perf_counter() - began)
    return figures(took, batch, sum(took))


async def load(port: int, request: bytes, clients: int, seconds: float) -> Figures:
    """The figures of the requests that are answered within `seconds` after the load has settled."""
    started, begin, silent = time.perf_counter(), float("inf"), clients
    took: list[float] = []
    answers = 0

    async def client() -> None:
        nonlocal begin, silent, answers
        connection = await asyncio.open_connection("127.0.0.1", port)
        heard = False
        while True:
            asked = time.perf_counter()
            head = await ask(connection, request)
            assert head.startswith(b"HTTP/1.1 200"), head.decode()
            answered, answers = time.perf_counter(), answers + 1
            silent, heard = silent - (not heard), True
            if not silent and begin == float("inf"):
                begin = max(answered, started + SETTLING)
            if answered > begin + seconds:
                break
            if answered > begin:
                took.append(answered - asked)
        await hang_up(connection)

    await asyncio.gather(*(client() for _ in range(clients)))
    return {**figures(took, 1, seconds), "answered": answers}


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(connection: Connection, request: bytes) -> bytes:
    """Send a request and read the whole answer; returns its head."""
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
    await reader.readexactly(int(length))
    return head


async def hang_up(connection: Connection) -> None:
    connection[1].close()
    await connection[1].wait_closed()


def overload(server: Server, request: bytes, arguments: argparse.Namespace) -> dict[str, Any]:
    """The outcome of too many requests: on a new connection each, as a proxy without keep-alive
    opens them, and on connections that are kept."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sustainable = uvloop.run(load(server.port, request, 64, 10))["per_second"]
    rate = arguments.rate or 2 * sustainable
    usual = uvloop.run(load(server.port, request, 1, 5))["p99_ms"] / 1e3
    before, rows = server.resident(), []
    for kept in (False, True):
        found = uvloop.run(flood(server, request, arguments.overload, rate, usual, kept))
        rows.append({"connections": "kept" if kept else "new", **found})
    return {
        "requests": arguments.overload,
        "sustainable_per_second": round(sustainable, 1),
        "mib_before": round(before, 1),
        "mib_after": round(server.resident(), 1),
        "rows": rows,
    }


async def flood(
    server: Server, request: bytes, count: int, rate: float, usual: float, kept: bool
) -> dict[str, Any]:
    """Send `count` requests at `rate` per second, each on a connection of its own, or a free one
    of those that are `kept`, beside probes and a look at the metrics."""
    free: list[Connection] = []
    statuses: Counter[str] = Counter()
    took: list[float] = []
    again: list[int] = []
    probes: dict[str, list[float]] = {"/livez": [], "/readyz": []}
    waits: list[bool] = []
    peak, batches = server.resident(), server.batches()

    async def connection() -> Connection:
        return free.pop() if free else await asyncio.open_connection("127.0.0.1", server.port)

    async def one() -> None:
        began = time.perf_counter()
        own = await connection()
        head = await ask(own, request)
        status = head.split(b" ", 2)[1].decode()
        statuses[status] += 1
        if status == "200":
            took.append(time.perf_counter() - began)
        if found := re.search(rb"\r\nretry-after: (\d+)", head.lower()):
            again.append(int(found[1]))
        if kept and b"\r\nconnection: close" not in head.lower():
            free.append(own)
        else:
            await hang_up(own)

    async def probe() -> None:
        nonlocal peak
        while True:
            for path, times in probes.items():
                began = time.perf_counter()
                own = await asyncio.open_connection("127.0.0.1", server.port)
                await ask(own, get(path))
                times.append(time.perf_counter() - began)
                await hang_up(own)
            text = await asyncio.to_thread(server.metrics)
            names = ("queue_series", "expected_wait_seconds")
            waits.append(
                all(re.search(rf"(?m)^forecaster_{name} (?!0\.0$)", text) for name in names)
            )
            peak = max(peak, server.resident())
            await asyncio.sleep(0.25)

    probing, begun = asyncio.create_task(probe()), time.perf_counter()
    asked = []
    for number in tqdm(range(count), "requests"):
        await asyncio.sleep(max(0, begun + number / rate - time.perf_counter()))
        asked.append(asyncio.create_task(one()))
    end = time.perf_counter()
    lasted = end - begun
    while True:  # until a single request is answered as fast as without load
        own = await asyncio.open_connection("127.0.0.1", server.port)
        began = time.perf_counter()
        head = await ask(own, request)
        await hang_up(own)
        if head.startswith(b"HTTP/1.1 200") and time.perf_counter() - began <= 2 * usual:
            break
    recovered = time.perf_counter() - end
    await asyncio.gather(*asked)
    probing.cancel()
    for each in free:
        await hang_up(each)
    series, runs = (now - then for now, then in zip(server.batches(), batches, strict=True))
    return {
        "asked_per_second": round(count / lasted, 1),
        "statuses": dict(statuses),
        "with_retry_after": len(again),
        "retry_after_most": max(again, default=0),
        "accepted": figures(took, 1, lasted),
        "accepted_most_ms": round(max(took) * 1e3, 1),
        "probes_most_ms": {path: round(max(times) * 1e3, 1) for path, times in probes.items()},
        "looks": len(waits),
        "looks_with_a_wait": sum(waits),
        "mean_batch": round(series / runs, 1),
        "recovered_seconds": round(recovered, 2),
        "mib_peak": round(peak, 1),
    }


def figures(took: Sequence[float], each: int, seconds: float) -> Figures:
    p50, p99 = (float(value) * 1e3 for value in np.quantile(took, [0.5, 0.99]))
    rate = len(took) * each / seconds
    return {"p50_ms": round(p50, 2), "p99_ms": round(p99, 2), "per_second": round(rate, 1)}


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def serving(command: Sequence[str], ready: str, **environment: str) -> Iterator[Server]:
    """Start a server with its port as the last argument, and wait until it answers on `ready`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    quiet, began = subprocess.DEVNULL, time.perf_counter()
    process = subprocess.Popen(
        [*command, str(port)],
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    try:
        while process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5):
                    yield Server(port, process.pid, time.perf_counter() - began)
                    break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit(f"{' '.join(command)} {port} ended with status {process.returncode}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


if __name__ == "__main__":
    main()
