"""The traps of a JSON body: never a 500, and answers that are small, quick and echo nothing."""

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.toy import PAST, start

JSON = {"Content-Type": "application/json"}
Body = dict[str, Any]


def post(client: TestClient, content: bytes | str, **headers: str) -> tuple[int, dict[str, Any]]:
    answer = client.post("/predict", content=content, headers={**JSON, **headers})
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert len(answer.content) < 6000
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    return answer.status_code, problem


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"target=1",
        b'{"target": [1, 2,]}',
        b"\xff\xfe",
        b'{"item_id": "\xff"}',
        '{"target": [1]}'.encode("utf-16"),
        b'\xef\xbb\xbf{"target": [1]}',
        b'{"item_id": "\\ud800", "target": [1]}',
        b'{"target": [' + b"1" * 5000 + b"]}",
        b"[" * 100_000,
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b'{"target": [1], "target": [2]}',
        b'{"target": [1], "t\\u0061rget": [2]}',
        b'{"inputs": [{"target": [1], "start": "a", "start": "b"}]}',
        b'{"target": [[{"a": 1, "a": 2}]]}',
    ],
)
def test_what_is_not_json_is_400(client: TestClient, content: bytes) -> None:
    assert post(client, content)[0] == 400


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"inputs": NaN}', ["inputs"]),
        ('{"inputs": []}', ["inputs"]),
        ("[]", ["JSON object"]),
        ("null", ["JSON object"]),
        ("3", ["JSON object"]),
        ("{}", ["target: this key is missing"]),
        ('{"target": []}', ["target"]),
        ('{"target": [[]]}', ["target[0]: "]),
        ('{"target": [[1, 2], [3, NaN]]}', ["target[1][1]: expected a finite number"]),
        ('{"target": [[1, 2], [3, -Infinity]]}', ["target[1][1]: expected a finite number"]),
        ('{"target": [[1, 2], [1e999, 4]]}', ["target[1][0]: expected a finite number"]),
        ('{"target": [[1, 2], null]}', ["target[1]: ", ", got null"]),
        ('{"target": null}', ["target"]),
        (
            '{"target": [1], "past_covariates": {"a": [1, "2"]}}',
            ["past_covariates.a[1]: expected a number"],
        ),
        ('{"target": [1], "past_covariates": {"a": [1, NaN]}}', ["a[1]: expected a finite"]),
        ('{"target": [1], "past_covariates": {"a": [[1]]}}', ["a[0]: expected a number"]),
        ('{"target": [1], "past_covariates": {"a": 1}}', ["past_covariates.a"]),
        ('{"target": [1], "past_covariates": {"target": [true]}}', ["past_covariates.target[0]"]),
        ('{"target": [1], "past_covariates": {"": [1]}}', ["past_covariates: "]),
        ('{"target": [1], "past_covariates": [1]}', ["past_covariates: expected a JSON object"]),
        ('{"target": [1], "future_covariates": {"a": []}}', ["future_covariates.a"]),
        ('{"target": [1], "static_covariates": {"a": null}}', ["a: expected a number or a word"]),
        ('{"target": [1], "static_covariates": {"a": Infinity}}', ["a: expected a finite number"]),
        (
            '{"inputs": [{"target": [1], "past_covariates": {"b": ["x"]}}]}',
            ["inputs[0].past_covariates: expected none"],
        ),
        ('{"target": [1, [2]]}', ["target[1]: expected a number"]),
        ('{"target": [[1], 2]}', ["target[1]: "]),
        ('{"target": [true, "3.5"]}', ["target[0]: expected a number"]),
        ('{"target": [[1, "3.5"]]}', ["target[0][1]: expected a number"]),
        ('{"target": {"0": 1}}', ["target"]),
        ('{"target": [[{"a": 1}]]}', ["target[0][0]: "]),
        (f'{{"target": [{"1" * 400}]}}', ["target[0]: expected a number"]),
        ('{"target": [1], "prediction_length": NaN}', ["prediction_length"]),
        ('{"target": [1], "prediction_lenght": 3}', ["Did you mean 'prediction_length'?"]),
        ('{"target": [1], "flat": 3}', ["flat: unknown key"]),
        ('{"inputs": [{"target": [1], "strat": "x"}]}', ["Did you mean 'start'?"]),
        ('{"inputs": [{"target": [1]}], "parameters": {"quantiles": []}}', ["quantile_levels"]),
        ('{"inputs": [{"target": [1]}], "target": [1]}', ["target: unknown key"]),
        ('{"target": [1], "item_id": "../../etc/passwd"}', ["item_id"]),
        ('{"target": [1], "item_id": "a\\u0000b"}', ["item_id"]),
        ('{"target": [1], "model": "file:///etc/passwd"}', ["model"]),
        ('{"target": [1], "model": "http://127.0.0.1:1/"}', ["model"]),
        ('{"target": [1], "freq": "' + "h" * 100 + '"}', ["freq"]),
        ('{"target": [1], "start": 1767225600}', ["start"]),
    ],
)
def test_what_is_no_request_is_422(client: TestClient, content: str, words: list[str]) -> None:
    status, problem = post(client, content)
    assert status == 422, problem
    assert problem["error_count"] >= 1
    for word in words:
        assert word in problem["detail"]


def test_first_of_the_traps_names_the_place(client: TestClient, flat: Body) -> None:
    flat["target"][7][1] = "1.5"
    _, problem = post(client, json.dumps(flat))
    assert problem["errors"] == [
        {
            "loc": ["target", 7, 1],
            "msg": "expected a number",
            "type": "float_type",
        }
    ]


@pytest.mark.parametrize("secret", ["s3cret-" * 20, "<script>", "päss wörd", "\u2028"])
def test_nothing_that_came_in_goes_out(client: TestClient, flat: Body, secret: str) -> None:
    for body in (
        {secret: 1},
        {**flat, "item_id": secret + "/"},
        {**flat, "columns": [secret] * 3},
        {**flat, "start": secret},
        {**flat, "freq": secret},
        {**flat, "target": [secret]},
        {**flat, "target": {secret: secret}},
        {**flat, "past_covariates": {secret: [1]}},
        {**flat, "past_covariates": {secret: ["x"]}},
        {**flat, "past_covariates": {"a": [secret]}},
        {**flat, "future_covariates": {secret: [secret]}},
        {**flat, "static_covariates": {secret: secret}},
        {**flat, "static_covariates": {secret: None}},
        {**flat, "static_covariates": {secret * 60: 1}},
        {**flat, "model": secret + "!"},
        {"inputs": [flat, {secret: secret}], "parameters": {secret: secret}},
    ):
        answer = client.post("/predict", json=body)
        assert answer.status_code == 422
        assert secret[:7] not in json.dumps(answer.json(), ensure_ascii=False)


def million(item: bytes) -> bytes:
    return b",".join([item] * 1_000_000)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"inputs": [' + million(b'{"target":[1]}') + b"]}", "at most 1,000 series"),
        (b'{"inputs": [' + b",".join([b'{"target":[1]}'] * 1001) + b"]}", "at most 1,000 series"),
        (b'{"inputs": [' + b",".join([b"1"] * 1001) + b"]}", "at most 1,000 series"),
        (b'{"target": [' + million(b"[1]") + b",[1]" * 9000 + b"]}", "at most 1,000,000 rows"),
        (b'{"target": [' + b",".join([b'"x"'] * 100_000) + b"]}", "target[0]: "),
        (b'{"target": [' + b",".join([b"[null,null]"] * 50_000) + b"]}", "got 2 in row 1"),
        (b'{"target": [' + b",".join([b"[true,null]"] * 50_000) + b"]}", "target[0][0]: "),
        (b'{"target": [1], "quantile_levels": [' + b"0.5," * 100_000 + b"1]}", "quantile_levels"),
        (b'{"target": [1], "columns": [' + million(b'"c"') + b',""]}', "at most 1,000,000 strings"),
        (b'{"target": [1], "columns": [' + b'"c",' * 10_000 + b'"c"]}', "columns"),
        (
            b'{"target": [1],' + b",".join(b'"%d":1' % i for i in range(300_000)) + b"}",
            "at most 110,000 keys",
        ),
        (
            b'{"target": [1],' + b",".join(b'"%d":1' % i for i in range(9_000)) + b"}",
            "and 8999 more",
        ),
        (
            b'{"target": [1],' + b",".join(b'"%d":1' % i for i in range(100_000)) + b"}",
            "and 99999 more",
        ),
        (
            b'{"inputs": ['
            + b",".join(
                b'{"target":[1],"static_covariates":{%s}}'
                % b",".join(b'"%d":null' % i for i in range(100))
                for _ in range(1000)
            )
            + b"]}",
            "and 99 more",
        ),
        (
            b'{"target": [1], "past_covariates": {'
            + b",".join(b'"%d":[1]' % i for i in range(10_001))
            + b"}}",
            "past_covariates",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_large_and_wrong_is_cheap(client: TestClient, content: bytes, words: str) -> None:
    began = time.perf_counter()
    status, problem = post(client, content)
    assert status == 422
    assert words in problem["detail"]
    assert time.perf_counter() - began < 3  # tens of milliseconds on an idle machine


def test_brackets_in_names_are_no_rows(client: TestClient, flat: Body) -> None:
    flat["columns"] = ['a[{"', "b\\", 'c":"']
    _, problem = post(client, json.dumps(flat))
    assert "name 1 is unknown" in problem["detail"]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_compressed_bodies_are_415(client: TestClient, coding: str) -> None:
    assert post(client, b"\x1f\x8b", **{"Content-Encoding": coding})[0] == 415


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "*/*"])
def test_other_content_types_are_415(client: TestClient, flat: Body, kind: str) -> None:
    status, problem = post(client, json.dumps(flat), **{"Content-Type": kind})
    assert (status, "application/json" in problem["detail"]) == (415, True)


def test_content_type_may_name_the_charset(client: TestClient, flat: Body) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8", "Content-Encoding": "identity"}
    answer = client.post("/predict", content=json.dumps(flat), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_long_bodies_are_413(folder: Any, flat: Body, chunked: bool) -> None:
    content = json.dumps(flat).encode()
    halves = [content[:500], content[500:]]
    with start(model=str(folder), max_body_bytes=len(content)) as client:
        sent: Any = iter(halves) if chunked else content
        assert client.post("/predict", content=sent, headers=JSON).status_code == 200
    with start(model=str(folder), max_body_bytes=len(content) - 1) as client:
        sent = iter(halves) if chunked else content
        answer = client.post("/predict", content=sent, headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert f"{len(content) - 1:,} bytes" in answer.json()["detail"]


def test_longest_series_in_many(folder: Any, flat: Body) -> None:
    with start(model=str(folder), max_series=2, max_rows=2 * PAST) as client:
        series = {key: flat[key] for key in ("start", "target", "columns")}
        assert client.post("/predict", json={"inputs": [series] * 2}).status_code == 200
        assert post(client, json.dumps({"inputs": [series] * 3}))[0] == 422
        long = {**series, "target": flat["target"] * 3}
        assert "at most 48 rows" in post(client, json.dumps(long))[1]["detail"]
        for field in ("target", "past_covariates", "future_covariates"):
            numbers = [1.0] * (2 * PAST + 1)
            body = {"inputs": [series | {field: numbers if field == "target" else {"x": numbers}}]}
            assert "at most 48 rows" in post(client, json.dumps(body))[1]["detail"]
