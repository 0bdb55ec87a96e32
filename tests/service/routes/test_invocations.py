"""Scoring requests; test_pyfunc_model.py compares the answers with those of MLflow itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fastapi.testclient import TestClient

from forecaster.forecast.predictor import Predictor
from forecaster_service import forecasting
from forecaster_service.routes import invocations
from tests.bundles import warning
from tests.service.toy import COLUMNS, HORIZON, KINDS, NAME, PAST, make_bundle, start

Table = dict[str, Any]


@pytest.fixture(scope="module")
def forecaster(folder: Path) -> Predictor:
    return Predictor.load(folder, "cpu")


@pytest.fixture
def split(forecaster: Predictor) -> Table:
    """A history as pandas writes it."""
    table: Table = json.loads(
        forecaster.example.to_json(orient="split", index=False, date_format="iso")
    )
    return table


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with a model of a wide panel."""
    folder = tmp_path_factory.mktemp("panel") / "bundle"
    make_bundle(folder, model="tokens", **KINDS["wide"])
    with start(model=str(folder), max_series=3) as client:
        yield client


def refused(client: TestClient, body: Any) -> Any:
    answer = client.post("/invocations", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 6000
    return answer.json()


def test_the_table_is_that_of_the_library(
    client: TestClient, forecaster: Predictor, split: Table
) -> None:
    params = {"horizon": 2, "quantile_levels": [0.9, 0.1]}
    body = {"dataframe_split": split, "params": params}
    answer = client.post("/invocations", json=body).json()
    assert list(answer) == ["predictions", "notices"]
    assert answer["notices"] == []
    expected = forecaster.predict(forecaster.example, 2, (0.1, 0.9))
    got = pd.DataFrame(answer["predictions"])
    assert list(got["time"]) == [stamp.isoformat() for stamp in expected["time"]]
    pd.testing.assert_frame_equal(got.drop(columns="time"), expected.drop(columns="time"))


def test_what_stands_out_is_told_as_predict_tells_it(
    tmp_path: Path, split: Table, forecaster: Predictor
) -> None:
    warning(make_bundle(tmp_path), past=9.0).save(tmp_path)
    params = {"quantile_levels": [0.1, 0.9]}
    with start(model=str(tmp_path)) as client:
        answer = client.post("/invocations", json={"dataframe_split": split, "params": params})
        asked = client.get(f"/models/{NAME}/example").json()
        asked["parameters"] |= params
        expected = client.post("/predict", json={**asked["inputs"][0], **asked["parameters"]})
    notices = answer.json()["notices"]
    assert notices == expected.json()["notices"]
    assert [each["code"] for each in notices] == [
        "lost_to_floor", "coverage", "first_step", "unlike_training",
    ]  # fmt: skip


def test_a_notice_names_the_place_of_its_series(tmp_path: Path) -> None:
    warning(make_bundle(tmp_path, model="tokens", **KINDS["wide"]), past=9.0).save(tmp_path)
    with start(model=str(tmp_path)) as client:
        example = Predictor.load(tmp_path, "cpu").example
        names = [name for name in example.columns if name != "time"]
        rows = example.assign(time=example["time"].astype(str)).to_dict("records")
        notices = client.post("/invocations", json={"dataframe_records": rows}).json()["notices"]
    told = [each["input"] for each in notices if each["code"] == "unlike_training"]
    assert told == list(range(len(names)))


def test_it_is_counted_as_predict_is(client: TestClient, split: Table) -> None:
    client.post("/invocations", json={"dataframe_split": split})
    line = f'model="{NAME}",route="/invocations",status="200"'
    assert line in client.get("/metrics").text


def test_without_a_model_the_body_is_not_read() -> None:
    with start() as empty:
        answer = empty.post("/invocations", content=b"not JSON")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")


def test_stamps_and_columns_may_come_in_any_order(client: TestClient, split: Table) -> None:
    expected = client.post("/invocations", json={"dataframe_split": split}).json()
    turned = {"columns": split["columns"][::-1], "data": [row[::-1] for row in split["data"]]}
    assert client.post("/invocations", json={"dataframe_split": turned}).json() == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "exactly one of dataframe_split, dataframe_records, inputs, instances"),
        ({"inputs": None}, "exactly one of"),
        ([], "expected a JSON object"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": {"a": [1], "b": [1, 2]}}, "the same number of values in each column"),
        ({"inputs": {"a": [1, "x", {}]}}, "inputs.a[2]: expected a finite number, a word"),
        ({"inputs": {"a": [1, float("nan")]}}, "inputs.a[1]: expected"),
        ({"dataframe_records": [{"a": 1}, {"a": [1]}]}, "dataframe_records[1].a: expected"),
        ({"dataframe_records": [1]}, "dataframe_records[0]: expected a JSON object"),
        ({"instances": [{"a": 1}], "parms": {}}, "Did you mean 'params'?"),
        ({"instances": [{"a": 1}], "inputs": [{"a": 1}]}, "exactly one of"),
        ({"dataframe_split": {"columns": ["a"], "data": [[1], [2, 3]]}}, "data[1]: expected 1"),
        ({"dataframe_split": {"columns": ["a"], "data": [[[1]]]}}, "data[0][0]: expected"),
        ({"dataframe_split": {"columns": ["a"], "data": [[1]], "x": 1}}, "columns, data, index"),
        ({"dataframe_split": {"columns": ["a", "a"], "data": [[1, 2]]}}, "appears twice"),
        ({"dataframe_split": {"columns": ["a"], "data": [[1]]}}, "not found. Expected 'time'"),
        ({"instances": [{"a": 1}], "params": {"horizon": 0}}, "params.horizon"),
        ({"instances": [{"a": 1}], "params": {"quantile_levels": [0.01]}}, "from 0.1 to 0.9"),
    ],
)
def test_what_is_no_table_of_the_model(client: TestClient, body: Any, words: str) -> None:
    answer = client.post(
        "/invocations", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("load", "much", "expected a number, got 'much'"),
        ("load", 1e400, "finite"),
        ("time", 10**30, "row 6"),
        ("time", "yesterday", "row 6"),
        ("time", "2026-01-01T07:00:00Z", "time zone"),
        ("time", "9999-12-31T23:00:00", "row"),
        ("time", None, "row 6"),
        ("time", True, "row 6"),
    ],
)
def test_cells_that_do_not_fit(
    client: TestClient, split: Table, column: str, cell: Any, words: str
) -> None:
    split["data"][5][split["columns"].index(column)] = cell
    body = json.dumps({"dataframe_split": split}).replace("1e+400", "1e400")
    answer = client.post("/invocations", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_histories_are_neither_padded_nor_stretched(client: TestClient, split: Table) -> None:
    short = {**split, "data": split["data"][1:]}
    detail = refused(client, {"dataframe_split": short})["detail"]
    assert detail == "the history has 23 rows, the model needs 24: give at least 24 rows"
    body = {"dataframe_split": split, "params": {"horizon": HORIZON + 1}}
    assert "1 to 6 steps, got horizon=7" in refused(client, body)["detail"]
    empty = {**split, "data": [[None if isinstance(x, float) else x for x in row]
                               for row in split["data"]]}  # fmt: skip
    assert "no value at all" in refused(client, {"dataframe_split": empty})["detail"]


class TestBounds:
    @pytest.mark.parametrize(
        ("first", "words"),
        [("2024", "25 rows for"), ("1926", "876,623 steps of h lie between")],
    )
    def test_a_gap_costs_no_memory(
        self, panel: TestClient, monkeypatch: Any, first: str, words: str
    ) -> None:
        monkeypatch.setattr(invocations, "MOST_CELLS", 30_000)
        times = pd.date_range("2026-01-01", periods=PAST, freq="h").astype(str).tolist()
        table = {"time": [f"{first}-01-01 00:00:00", *times]} | {
            name: [1.0] * (PAST + 1) for name in KINDS["wide"]["items"]
        }
        assert words in refused(panel, {"inputs": table})["detail"]

    def test_names_of_many_rows(self, client: TestClient, monkeypatch: Any) -> None:
        monkeypatch.setattr(invocations, "MOST_CELLS", 10_000)
        records = [{f"c{number}": 1} for number in range(101)]
        detail = refused(client, {"dataframe_records": records})["detail"]
        assert "101 names in 101 rows are more than 10,000 cells" in detail

    def test_long_names_make_no_long_answer(self, client: TestClient) -> None:
        table = {"dataframe_split": {"columns": ["ü" * 250 + str(i) for i in range(99)],
                                     "data": [[1.0] * 99]}}  # fmt: skip
        detail = refused(client, table)["detail"]
        assert "not found. Expected 'time'" in detail
        assert len(detail) == 1000

    def test_rows_may_be_more_than_series(self, folder: Path, split: Table) -> None:
        records = [dict(zip(split["columns"], row, strict=True)) for row in split["data"]]
        with start(model=str(folder), max_series=1, max_rows=1000) as client:
            body = {"dataframe_records": records}
            assert client.post("/invocations", json=body).status_code == 200
            body = {"dataframe_records": records * 50}
            assert "at most 1,000 rows" in refused(client, body)["detail"]

    def test_series(self, tmp_path: Path) -> None:
        make_bundle(tmp_path / "b", model="tokens", **KINDS["panel"])
        with start(model=str(tmp_path / "b"), max_series=3) as client:
            one = Predictor.load(tmp_path / "b", "cpu").example
            for count, status in ((3, 200), (4, 422)):
                many = pd.concat([one.assign(town=f"t{number}") for number in range(count)])
                table = json.loads(many.to_json(orient="split", index=False, date_format="iso"))
                answer = client.post("/invocations", json={"dataframe_split": table})
                assert answer.status_code == status
            assert "at most 3 series, got 4" in answer.json()["detail"]

    def test_quantiles(self, client: TestClient, split: Table, monkeypatch: Any) -> None:
        monkeypatch.setattr(forecasting, "MOST_QUANTILES", len(COLUMNS) * HORIZON)
        body = {"dataframe_split": split, "params": {"quantile_levels": [0.1]}}
        assert client.post("/invocations", json=body).status_code == 200
        body["params"] = {"quantile_levels": [0.1, 0.9]}
        assert "steps and columns, got 36:" in refused(client, body)["detail"]


def test_ping_tells_what_readyz_does(client: TestClient) -> None:
    answer = client.get("/ping")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    with start() as empty:
        answer = empty.get("/ping")
        assert answer.status_code == 503
        assert answer.json()["detail"] == empty.get("/readyz").json()["detail"]
