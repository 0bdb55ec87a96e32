"""Unexpected bytes: mutated bodies of real requests, and mutated requests on a socket.

The mutations are the same in every run.
"""

import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.service.processes import free_port, running, wait_for
from tests.service.toy import HORIZON, KINDS, NAME, PAST, make_bundle, start

# A thread of the service or of a library may use `random` while edits are drawn. Hypothesis blames
# the edits, and warns again as it prints their strategy, which holds long tokens.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]

JSON = {"Content-Type": "application/json"}
TOKENS = [
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0.0", b"1e-400", b"9" * 20, b"9" * 400,
    b"9" * 5000, b"null", b"true", b'""', b"{}", b"[]", b"[[]]", b",", b":", b'"', b"\\",
    b'"\\ud800"', b'"\\u0000"', b'"\\udfff\\ud800"', b"\x00", b"\xff", b"\xc0\x80",
    b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", "\u2028\u202e\U0001f600".encode(),
    b"[" * 300, b"[" * 100_000, b'{"a":' * 300, b"/* */", b"'", b"0x1", b"+1", b"01", b"1.",
    b'"target":[1],', b'"inputs":[{}],', b'"start":"9999-12-31T23:00:00",', b'"params":{},',
    b'"quantile_levels":[5e-324,1],', b'"prediction_length":1e0,', b'"model":"../x",',
    b"0001-01-01T00:00:00", b"+99:99", b"-12-31T24:00:00", b"W01-1",
]  # fmt: skip
TOKENS_OF_HTTP = [
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"\r\n\r\n", b"Content-Length: 0\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: \x0bchunked\r\n", b"Expect: x\r\n",
    b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"HTTP/0.9",
    b"HTTP/2.0", b"%00", b"%2e%2e/", b"//", b"?a=b#c", b"http://example.com/", b"CONNECT ",
    b"X-Request-ID: \xff\r\n", b"Host: \x01\r\n", b"X: " + b"a" * 70_000 + b"\r\n", b"PRI * ",
    b"Content-Encoding: gzip\r\n", b"Accept: \xe2\x98\x83\r\n", b"0\r\n\r\n", b"\xff" * 9,
]  # fmt: skip
CODECS = ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037"]
EXPECTED = {200, 400, 404, 413, 415, 422, 503}

Edit: TypeAlias = tuple[str, float, float, bytes]


def edits(tokens: list[bytes]) -> st.SearchStrategy[list[Edit]]:
    """One to three changes: the kind, the place, how much of the rest, and the new bytes."""
    place = st.floats(0, 1)
    what = st.sampled_from(
        ["replace"] * 4 + ["copy"] * 4 + ["flip", "cut", "double", "insert", "end", "recode"]
    )
    token = st.one_of(st.sampled_from(tokens), st.binary(min_size=1, max_size=4))
    return st.lists(st.tuples(what, place, place, token), min_size=1, max_size=3)


def value(data: bytes, place: float) -> tuple[int, int]:
    """The place of a string or a number."""
    found = re.compile(rb'"[^"]*"|[-+.\w]+').search(data, int(place * len(data)))
    return found.span() if found else (0, 0)


def mutated(data: bytes, changes: list[Edit]) -> bytes:
    for what, place, length, token in changes:
        at = int(place * len(data))
        end = at + 1 + int(length**4 * (len(data) - at))  # mostly a few bytes
        match what:
            case "flip":
                byte = bytes([data[at] ^ (1 << int(length * 7.9))]) if at < len(data) else b""
                data = data[:at] + byte + data[at + 1 :]
            case "cut":
                data = data[:at] + data[end:]
            case "double":
                data = data[:end] + data[at:]
            case "insert":
                data = data[:at] + token + data[at:]
            case "replace" | "copy":  # a whole value, by a new or another one
                first, last = value(data, place)
                other = slice(*value(data, length))
                data = data[:first] + (token if what == "replace" else data[other]) + data[last:]
            case "end":
                data = data[:at]
            case "recode":
                text = data.decode("utf-8", "replace")
                data = text.encode(CODECS[int(length * 4.9)], "replace")
    return data


def fuzzed(examples: int, tokens: list[bytes]) -> Callable[[Any], Any]:
    """Calls a function with `examples` lists of edits."""

    def decorate(function: Any) -> Any:
        limits = settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        return limits(given(changes=edits(tokens))(function))

    return decorate


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads everything that a request can contain."""
    folder = tmp_path_factory.mktemp("rich") / "bundle"
    make_bundle(folder, model="tokens", **KINDS["all"])
    return folder


@pytest.fixture(scope="module")
def service(rich: Path) -> Iterator[TestClient]:
    with start(model=str(rich)) as client:
        yield client


def requests(example: Any) -> dict[str, bytes]:
    """Requests that the model accepts, by path; "/v1/predict" has the flat form."""
    (series,) = example["inputs"]
    columns = series["target"], series["past_covariates"], series["future_covariates"]
    rows = []
    for step in range(PAST + HORIZON):
        past = step < PAST
        values = columns[0][step] if past else [None] * len(series["columns"])
        read = {**dict(zip(series["columns"], values, strict=True)), **series["static_covariates"]}
        for name, before in columns[1].items():
            ahead = columns[2].get(name, [None] * HORIZON)
            read[name] = before[step] if past else ahead[step - PAST]
        stamp = f"2026-01-{1 + step // 24:02}T{step % 24:02}:00"
        rows.append({"time": stamp, "town": series["item_id"], **read})
    bodies = {
        "/predict": example,
        "/v1/predict": {**series, **example["parameters"]},
        "/invocations": {"dataframe_records": rows, "params": {"horizon": 2}},
    }
    return {path: json.dumps(body).encode() for path, body in bodies.items()}


def kserve(example: Any) -> bytes:
    (series,) = example["inputs"]
    theirs = {
        "type": "multivariate_time_series", "name": "x", "series": series["target"],
        "frequency": "H", "start_timestamp": series["start"],
    }  # fmt: skip
    options = {"horizon": 2, "quantiles": [0.1]}
    return json.dumps({"model": NAME, "inputs": [theirs], "options": options}).encode()


def check(client: TestClient, path: str, body: bytes, examples: int) -> None:
    """Mutations of a body get expected answers, and small ones for errors."""
    statuses = Counter[int]()

    @fuzzed(examples, TOKENS)
    def try_it(changes: list[Edit]) -> None:
        answer = client.post(path, content=mutated(body, changes), headers=JSON)
        assert answer.status_code in EXPECTED, answer.text
        statuses[answer.status_code] += 1
        found = json.loads(answer.content, parse_constant=pytest.fail)
        if answer.status_code != 200:
            assert answer.headers["content-type"] == "application/problem+json"
            assert found["status"] == answer.status_code
            assert len(answer.content) < 8000

    assert client.post(path, content=body, headers=JSON).status_code == 200
    try_it()
    assert {200, 400, 422} <= set(statuses), statuses  # some changes are harmless
    assert client.post(path, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize(
    "examples", [60, pytest.param(500, marks=pytest.mark.slow)], ids=["few", "many"]
)
class TestBodies:
    @pytest.mark.parametrize("path", ["/predict", "/v1/predict", "/invocations"])
    def test_of_a_model_that_reads_all(self, service: TestClient, path: str, examples: int) -> None:
        example = service.get(f"/models/{NAME}/example").json()
        check(service, path, requests(example)[path], examples)

    def test_of_kserve(self, client: TestClient, examples: int) -> None:
        example = client.get(f"/models/{NAME}/example").json()
        check(client, "/v1/timeseries/forecast", kserve(example), examples)


def statuses_of(received: bytes) -> list[int]:
    """The statuses of all answers that were received, which follow one another without a gap."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        line = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert line, received[:200]
        found.append(int(line[1]))
        length = re.search(rb"(?i)\ncontent-length: (\d+)", head)
        received = rest[int(length[1]) :] if length else rest
    return found


@pytest.mark.slow
def test_a_server_survives_them_on_the_wire(rich: Path, tmp_path: Path) -> None:
    """Mutated requests never get a 5xx other than 503, do not confuse later ones on the same
    connection, and leave the server as it was."""
    port, log = free_port(), tmp_path / "log"
    command = ["forecaster", "serve", "--model", str(rich), "--port", str(port)]
    with running(command, {}, tmp_path, log) as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        connection = HTTPConnection("127.0.0.1", port, timeout=60)

        def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
            connection.request(method, path, body, JSON)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        good = requests(ask("GET", f"/models/{NAME}/example")[1])
        expected = ask("POST", "/predict", good["/predict"])[1]["predictions"]
        raw = Counter[int]()

        @fuzzed(200, TOKENS)
        def bodies(changes: list[Edit]) -> None:
            assert ask("POST", "/predict", mutated(good["/predict"], changes))[0] in EXPECTED
            status, answer = ask("POST", "/predict", good["/predict"])
            assert (status, answer["predictions"]) == (200, expected)

        @fuzzed(200, TOKENS_OF_HTTP)
        def heads(changes: list[Edit]) -> None:
            head = (
                f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(good['/predict'])}\r\nConnection: close\r\n\r\n"
            )
            data = mutated(head.encode(), changes) + good["/predict"]
            received = b""
            with socket.create_connection(("127.0.0.1", port), timeout=0.2) as wire:
                try:
                    wire.sendall(data)
                    while chunk := wire.recv(2**16):
                        received += chunk
                except (TimeoutError, ConnectionError):
                    pass  # the server waits for more, or has closed the connection
            for status in statuses_of(received):
                assert status < 500 or status == 503, received[:500]
                raw[status] += 1

        bodies()
        heads()
        assert {200, 400} <= set(raw), raw
        assert process.poll() is None
        status, answer = ask("POST", "/predict", good["/predict"])
        assert (status, answer["predictions"]) == (200, expected)
        connection.close()
    assert "Traceback" not in log.read_text()
