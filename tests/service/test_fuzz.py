"""Unexpected bytes: mutated bodies of real requests, and mutated requests on a socket.

The mutations are the same in every run; FORECASTER_TRIES sets how many there are.
"""

import json
import os
import re
import socket
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.service.processes import head, serving
from tests.service.routes.test_read import as_workbook
from tests.service.toy import NAME
from tests.test_client import history

# A thread of the service or of a library may use `random` while edits are drawn. Hypothesis blames
# the edits, and warns again as it prints their strategy, which holds long tokens.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]

TRIES = int(os.environ.get("FORECASTER_TRIES", "100"))
JSON, CSV = ({"Content-Type": kind} for kind in ("application/json", "text/csv"))
TOKENS = [
    b"NaN", b"Infinity", b"1e999", b"-0.0", b"1e-400", b"9" * 20, b"9" * 5000, b"null", b"true",
    b'""', b"{}", b"[]", b"[[]]", b",", b":", b'"', b"\\", b'"\\ud800"', b'"\\u0000"', b"\x00",
    b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "\u2028\u202e\U0001f600".encode(), b"[" * 300,
    b"[" * 100_000, b'{"a":' * 300, b"/* */", b"0x1", b"01", b"1.", b'"target":[1],',
    b'"inputs":[{}],', b'"start":"9999-12-31T23:00:00",', b'"model":"../x",',
    b'"quantile_levels":[5e-324,1],', b'"samples":0,', b'"total":"week","by":"x",',
    b'"prediction_length":1e0,', b"+99:99", b"-12-31T24:00:00",
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
EXPECTED = {200, 400, 404, 413, 415, 422, 503}
VALUE = re.compile(rb'"[^"]*"|[-+.\w]+')


def mutated(data, changes):
    """For each change, some bytes replaced by a token, or a whole value by a token or a copy of
    another value."""
    for what, place, length, token in changes:
        first = int(place * len(data))
        last = first + int(length**4 * (len(data) - first))  # mostly a few bytes
        if what != "bytes" and (found := VALUE.search(data, first)):
            first, last = found.span()
        if what == "copy" and (other := VALUE.search(data, int(length * len(data)))):
            token = other[0]
        data = data[:first] + token + data[last:]
    return data


def fuzzed(tokens):
    """Calls a function with many lists of one to three edits."""
    what, place = st.sampled_from(["bytes", "value", "copy", "copy"]), st.floats(0, 1)
    token = st.one_of(st.sampled_from(tokens), st.binary(max_size=4))
    edits = st.lists(st.tuples(what, place, place, token), min_size=1, max_size=3)
    limits = settings(
        max_examples=TRIES,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda function: limits(given(changes=edits)(function))


def requests(example):
    """Requests that the model accepts, by path; "/v1/predict" has the flat form."""
    (series,) = example["inputs"]
    return {
        "/predict": example,
        "/v1/predict": {**series, **example["parameters"]},
    }


@pytest.mark.parametrize("path", ["/predict", "/v1/predict", "/read", "/read?"])
def test_mutated_bodies_get_expected_answers(serve, path):
    """The last one is a workbook."""
    asked, forecaster, _ = serve("all", "tokens")
    kind = CSV if path.startswith("/read") else JSON
    answer = asked.get(f"/models/{NAME}/example", headers={"Accept": kind["Content-Type"]})
    body, statuses = answer.content, Counter[int]()
    if path.endswith("?"):
        body = as_workbook(history(forecaster.bundle))
    if kind is JSON:
        body = json.dumps(requests(answer.json())[path]).encode()

    def post(changes):
        answer = asked.post(path, content=mutated(body, changes), headers=kind)
        assert answer.status_code in EXPECTED, answer.text
        statuses[answer.status_code] += 1
        found = json.loads(answer.content, parse_constant=pytest.fail)
        if answer.status_code != 200:
            assert answer.headers["content-type"] == "application/problem+json"
            assert found["status"] == answer.status_code
            assert len(answer.content) < 8000

    fuzzed(TOKENS)(post)()
    if kind is JSON:  # which edits are drawn depends on what is imported: one is no frequency
        post([("value", (body.rindex(b":") + 1.5) / len(body), 0.0, b'"x"')])
    assert {200, 422, 400 if kind is JSON else 422} <= set(statuses), statuses
    assert asked.post(path, content=body, headers=kind).status_code == 200


@pytest.mark.slow
def test_a_server_survives_them_on_the_wire(folder, tmp_path):
    """Mutated requests never get a 5xx other than 503, and leave the server as it was."""
    with serving(folder, tmp_path) as server:
        example = server.get(f"/models/{NAME}/example")
        expected = server.post("/predict", example)["predictions"]
        good = json.dumps(example).encode()
        whole = head(f"Content-Length: {len(good)}", "Connection: close")
        raw = Counter[int]()

        @fuzzed(TOKENS_OF_HTTP)
        def heads(changes):
            received = b""
            with (
                socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as wire,
                suppress(TimeoutError, ConnectionError),  # it waits for more, or has closed
            ):
                wire.sendall(mutated(whole, changes) + good)
                while chunk := wire.recv(2**16):
                    received += chunk
            statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
            assert all(status < 500 or status == 503 for status in statuses), received[:500]
            raw.update(statuses)

        heads()
        assert {200, 400} <= set(raw), raw
        assert server.process.poll() is None
        assert server.post("/predict", example)["predictions"] == expected
    assert "Traceback" not in server.log.read_text()
