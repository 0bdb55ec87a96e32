"""The traps of a request: never a 500, and answers that are small, quick and echo nothing.

What is wrong is told by its place and by a word for programs; the sentence beside them may change.
"""

import json
import time
from copy import deepcopy
from typing import Any

import pytest

from tests.service.toy import PAST, refused, start


def told(problem):
    """The first flaw of a request: where, and what."""
    if "errors" not in problem:
        return ""
    flaw = problem["errors"][0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in flaw["loc"])
    return f"{where.removeprefix('.')} {flaw['type']}".strip()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\xfe",
        '{"target": [1]}'.encode("utf-16"),
        b'\xef\xbb\xbf{"target": [1]}',
        b'{"item_id": "\\ud800", "target": [1]}',
        b'{"target": [' + b"1" * 5000 + b"]}",
        b"[" * 100_000,
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b'{"target": [1], "t\\u0061rget": [2]}',
        b'{"inputs": [{"target": [1], "start": "a", "start": "b"}]}',
    ],
)
def test_what_is_not_json_is_400(client, content):
    refused(client, content, 400)


BODIES = {
    '{"inputs": NaN}': "inputs list_type",
    '{"inputs": []}': "inputs too_short",
    "[]": "model_type",
    "{}": "target missing",
    '{"target": [[]]}': "target[0] too_short",
    '{"target": [[1, 2], [3, NaN]]}': "target[1][1] finite_number",
    '{"target": [1, [2]]}': "target[1] float_type",
    '{"target": [[1], 2]}': "target[1] list_type",
    '{"target": [[1, "3.5"]]}': "target[0][1] float_type",
    '{"target": {"0": 1}}': "target list_type",
    '{"target": [%s]}' % ("1" * 400): "target[0] float_type",
    '{"target": [1], "past_covariates": {"a": [1, "2"]}}': "past_covariates.a[1] float_type",
    '{"target": [1], "past_covariates": {"": [1]}}': "past_covariates string_too_short",
    '{"target": [1], "future_covariates": {"a": 1}}': "future_covariates.a list_type",
    '{"target": [1], "static_covariates": {"a": null}}': "static_covariates.a attribute",
    '{"target": [1], "static_covariates": {"a": Infinity}}': "static_covariates.a finite_number",
    '{"target": [1], "prediction_lenght": 3}': "prediction_lenght extra_forbidden",
    '{"inputs": [{"target": [1], "strat": "x"}]}': "inputs[0].strat extra_forbidden",
    '{"target": [1], "item_id": "../../etc/passwd"}': "item_id item_id",
    '{"target": [1], "model": "file:///etc/passwd"}': "model string_pattern_mismatch",
    '{"target": [1], "freq": "hhhh"}': "freq string_pattern_mismatch",
    '{"target": [1], "start": 1767225600}': "start string_type",
}


@pytest.mark.parametrize(("content", "flaw"), BODIES.items())
def test_what_is_no_request_is_422(client, content, flaw):
    assert told(refused(client, content)) == flaw


GONE = object()
PAST_, AHEAD, STATIC = "past_covariates", "future_covariates", "static_covariates"
SERIES: list[tuple[str, str, Any, str]] = [
    ("plain", "columns", ["load", "wind"], "columns names"),
    ("plain", "columns", ["load", "wind", "wind"], "columns names"),
    ("plain", "columns", ['a[{"', "b\\", 'c":"'], "columns names"),
    ("plain", "target", [[1.0] * 3] * 5 + [[1.0] * 2] * 19, "target[5] column_count"),
    ("plain", "target", [1.0] * PAST, "target[0] column_count"),
    ("plain", "target", [[1.0] * 3] * (PAST - 1), "target too_short"),
    ("plain", "target", [[1.0, None, 3.0]] * PAST, "target no_value"),
    ("plain", "target", [[1e300, 0.0, 0.0]] * PAST, ""),
    ("plain", "start", GONE, "start start"),
    ("plain", "start", "2026-02-30T00:00:00", "start start"),
    ("plain", "start", "2026-01-01T00:00:00Z", "start start"),
    ("plain", "start", "9999-12-31T23:00:00", "start start"),
    ("plain", f"{AHEAD}.holiday", [1], f"{AHEAD} names"),
    ("plain", f"{STATIC}.holiday", 1, f"{STATIC} names"),
    ("panel", "item_id", "../c", "item_id item_id"),
    ("panel", "item_id", "a" * 129, "item_id item_id"),
    ("two ids", "item_id", "South/Basel", "item_id item_id"),
    ("wide", "columns", ["Bern", "None"], "columns names"),
    ("past", f"{PAST_}.wind", [1.0] * 23, f"{PAST_}.wind length"),
    ("past", f"{PAST_}.wind", [None] * 24, f"{PAST_}.wind no_value"),
    ("past", f"{PAST_}.wind", GONE, "columns names"),
    ("past", f"{PAST_}.wnd", [1.0] * 24, f"{PAST_} names"),
    ("ahead", f"{AHEAD}.holiday", [0.0] * 7, f"{AHEAD}.holiday length"),
    ("ahead", f"{AHEAD}.holiday", [None] + [0.0] * 5, f"{AHEAD}.holiday[0] incomplete"),
    ("ahead", f"{AHEAD}.holiday", GONE, f"{AHEAD} names"),
    ("ahead", f"{PAST_}.holiday", GONE, f"{PAST_} names"),
    ("ahead", f"{PAST_}.holiday", [0.0] * 23, f"{PAST_}.holiday length"),
    ("ahead", f"{PAST_}.holiday", [0.0] * 3 + [None] * 21, f"{PAST_}.holiday[3] incomplete"),
    ("ahead", f"{AHEAD}.holiday", [1e300] * 6, ""),
    ("words", f"{AHEAD}.sky", ["clear"] * 5 + ["hail"], f"{AHEAD}.sky[5] category"),
    ("words", f"{AHEAD}.sky", [1.0] * 6, f"{AHEAD}.sky[0] category"),
    ("words", f"{AHEAD}.sky", ["rain", 1] * 3, f"{AHEAD}.sky[1] string_type"),
    ("words", f"{AHEAD}.holiday", ["no"] * 6, f"{AHEAD}.holiday[0] category"),
    ("attributes", f"{STATIC}.kind", "inn", f"{STATIC}.kind attribute"),
    ("attributes", f"{STATIC}.kind", GONE, f"{STATIC} names"),
    ("attributes", f"{STATIC}.size", "100", f"{STATIC}.size attribute"),
    ("attributes", f"{STATIC}.size", 1e300, ""),
]  # fmt: skip
PARAMETERS: list[tuple[str, Any, str]] = [
    ("prediction_length", 0, "greater_than_equal"),
    *[("prediction_length", value, "beyond_horizon") for value in (7, 10**30, 1e300)],
    *[("prediction_length", value, "int_type") for value in (2.5, True, "3")],
    *[("freq", value, "other_freq") for value in ("D", "2h", "0h", "xyz")],
    *[("quantile_levels", [0.5, value], "no_quantiles") for value in (0.05, 0.95)],
    *[("samples", value, kind) for value, kind in ((0, "greater_than_equal"), (2.5, "int_type"))],
    ("total", "year", "literal_error"),
    ("by", "all", "no_by"),
]


@pytest.mark.parametrize(("kind", "place", "value", "flaw"), SERIES)
def test_a_series_that_does_not_fit_the_model(serve, kind, place, value, flaw):
    """Alone at the top, and as the second of a request."""
    client, _, good = serve(kind)
    bad = deepcopy(good)
    role, _, name = place.rpartition(".")
    at = bad[role] if role else bad
    if value is GONE:
        del at[name]
    else:
        at[name] = value
    assert told(refused(client, bad)) == flaw
    assert told(refused(client, {"inputs": [good, bad]})) == (flaw and f"inputs[1].{flaw}")


@pytest.mark.parametrize(("name", "value", "kind"), PARAMETERS)
def test_a_parameter_that_does_not_fit_the_model(client, flat, full, name, value, kind):
    full["parameters"][name] = value
    assert told(refused(client, {**flat, name: value})) == f"{name} {kind}"
    assert told(refused(client, full)) == f"parameters.{name} {kind}"


def test_a_wrong_name_or_key_is_told_the_right_one(client, full, flat):
    flat["columns"] = ["load", "wind", "Zurich °C"]
    for body, *words in (
        (flat, "load, wind, Zürich °C", "name 3", "Did you mean 'Zürich °C'?", "missing"),
        ({"target": [1], "prediction_lenght": 3}, "Did you mean 'prediction_length'?"),
        ({**full, "parameters": {"quantiles": []}}, "Did you mean 'quantile_levels'?"),
    ):
        detail = refused(client, body)["detail"]
        assert all(each in detail for each in words)


def test_each_bad_series_is_told(client, full):
    good = full["inputs"][0]
    short, unnamed = {**good, "target": good["target"][:5]}, {**good, "columns": ["a"]}
    problem = refused(client, {"inputs": [good, short, good, unnamed] * 15})
    assert (problem["error_count"], len(problem["errors"])) == (30, 20)
    places = [error["loc"] for error in problem["errors"][:2]]
    assert places == [["inputs", 1, "target"], ["inputs", 3, "columns"]]
    assert problem["detail"].startswith("inputs[1].target: expected at least 24 rows, got 5")
    assert problem["detail"].endswith(" (and 29 more, see errors)")


@pytest.mark.parametrize("secret", ["s3cret-" * 20, "<script>"])
def test_nothing_that_came_in_goes_out(client, flat, secret):
    for body in (
        {secret: 1},
        {**flat, "item_id": secret + "/"},
        {**flat, "columns": [secret] * 3},
        {**flat, "start": secret},
        {**flat, "target": [secret]},
        {**flat, "past_covariates": {secret: ["x"]}},
        {**flat, "past_covariates": {"a": [secret]}},
        {**flat, "static_covariates": {secret * 60: 1}},
        {**flat, "model": secret + "!"},
        {"inputs": [flat, {secret: secret}], "parameters": {secret: secret}},
    ):
        assert secret[:7] not in json.dumps(refused(client, body), ensure_ascii=False)


def many(count, item):
    return b",".join([item] * count)


def keys(count):
    return b",".join(b'"%d":1' % number for number in range(count))


LONG = {
    b'{"inputs": [' + many(10**6, b'{"target":[1]}') + b"]}": "too_many_series",
    b'{"inputs": [' + many(1001, b"1") + b"]}": "too_many_series",
    b'{"target": [' + many(1_009_000, b"[1]") + b"]}": "too_many_rows",
    b'{"target": [' + many(50_000, b"[true,null]") + b"]}": "target[0][0] float_type",
    b'{"target": [1], "quantile_levels": [' + many(10**5, b"0.5") + b"]}": "quantile_levels",
    b'{"target": [1], "columns": [' + many(10**6, b'"c"') + b"]}": "too_many_strings",
    b'{"target": [1],' + keys(300_000) + b"}": "too_many_keys",
    b'{"target": [1],' + keys(100_000) + b"}": "extra_forbidden",
    b'{"target": [1], "past_covariates": {' + keys(10_001) + b"}}": "past_covariates",
    b'{"inputs": [%s]}' % many(1000, b'{"target":[1],"static_covariates":{%s}}' % keys(100)): "",
}


@pytest.mark.parametrize(("content", "flaw"), LONG.items(), ids=map(str, range(len(LONG))))
def test_large_and_wrong_is_cheap(client, content, flaw):
    began = time.process_time()
    assert flaw in told(refused(client, content))
    assert time.process_time() - began < 3  # of processor, whatever else runs


def test_other_content_types_are_415(client, flat):
    for coding in ("gzip", "gzip, identity"):
        refused(client, flat, 415, **{"Content-Encoding": coding})
    for kind in ("text/plain", "multipart/form-data", "", "*/*"):
        refused(client, flat, 415, **{"Content-Type": kind})
    headers = {"Content-Type": "Application/JSON; charset=utf-8", "Content-Encoding": "identity"}
    answer = client.post("/predict", content=json.dumps(flat), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_long_bodies_are_413(folder, flat, chunked):
    content = json.dumps(flat).encode()
    for most, status in ((len(content), 200), (len(content) - 1, 413)):
        with start(model=str(folder), max_body_bytes=most) as client:
            sent = iter([content[:500], content[500:]]) if chunked else content
            kind = {"Content-Type": "application/json"}
            answer = client.post("/predict", content=sent, headers=kind)
        assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"


def test_longest_series_in_many(folder, flat):
    with start(model=str(folder), max_series=2, max_rows=2 * PAST) as client:
        series = {key: flat[key] for key in ("start", "target", "columns")}
        assert client.post("/predict", json={"inputs": [series] * 2}).status_code == 200
        small = {**series, "target": series["target"][:1]}
        assert told(refused(client, {"inputs": [small] * 3})) == "too_many_series"
        numbers = [1.0] * (2 * PAST + 1)
        for change in ({"target": numbers}, {PAST_: {"x": numbers}}, {AHEAD: {"x": numbers}}):
            assert told(refused(client, {"inputs": [series | change]})) == "too_many_rows"
