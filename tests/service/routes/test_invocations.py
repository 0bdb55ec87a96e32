"""Scoring requests; test_pyfunc_model.py compares the answers with those of MLflow itself."""

import json

import pandas as pd
import pytest

from forecaster.forecast.predictor import Predictor
from forecaster_service import forecasting
from forecaster_service.routes import invocations
from tests.bundles import warning
from tests.service.toy import COLUMNS, HORIZON, KINDS, PAST, make_bundle, refused, start

PATH = "/invocations"


@pytest.fixture(scope="module")
def split(folder):
    """A history as pandas writes it."""
    example = Predictor.load(folder, "cpu").example
    return json.loads(example.to_json(orient="split", index=False, date_format="iso"))


def test_a_notice_names_the_place_of_its_series(tmp_path):
    warning(make_bundle(tmp_path, model="tokens", **KINDS["wide"]), past=9.0).save(tmp_path)
    with start(model=str(tmp_path)) as client:
        example = Predictor.load(tmp_path, "cpu").example
        rows = example.assign(time=example["time"].astype(str)).to_dict("records")
        notices = client.post("/invocations", json={"dataframe_records": rows}).json()["notices"]
    told = [each["input"] for each in notices if each["code"] == "unlike_training"]
    assert told == list(range(len(KINDS["wide"]["items"])))


def test_stamps_and_columns_may_come_in_any_order(client, split):
    expected = client.post("/invocations", json={"dataframe_split": split}).json()
    turned = {"columns": split["columns"][::-1], "data": [row[::-1] for row in split["data"]]}
    assert client.post("/invocations", json={"dataframe_split": turned}).json() == expected


def test_histories_are_neither_padded_nor_stretched(client, split):
    short = {**split, "data": split["data"][1:]}
    empty = {**split, "data": [[row[0], *[None] * len(COLUMNS)] for row in split["data"]]}
    for table, params, words in (
        (short, {}, "the history has 23 rows, the model needs 24"),
        (split, {"horizon": HORIZON + 1}, "got horizon=7"),
        (empty, {}, "no value at all"),
    ):
        body = {"dataframe_split": table, "params": params}
        assert words in refused(client, body, path=PATH)["detail"]


class TestBounds:
    def test_a_gap_costs_no_memory(self, serve, monkeypatch):
        client, *_ = serve("wide", "tokens")
        monkeypatch.setattr(invocations, "MOST_CELLS", 30_000)
        times = pd.date_range("2026-01-01", periods=PAST, freq="h").astype(str).tolist()
        table = dict.fromkeys(KINDS["wide"]["items"], [1.0] * (PAST + 1))
        for first, words in (("2024", "25 rows for"), ("1926", "876,623 steps of h lie between")):
            table["time"] = [f"{first}-01-01 00:00:00", *times]
            assert words in refused(client, {"inputs": table}, path=PATH)["detail"]

    def test_names_of_many_rows(self, client, monkeypatch):
        monkeypatch.setattr(invocations, "MOST_CELLS", 10_000)
        records = [{f"c{number}": 1} for number in range(101)]
        detail = refused(client, {"dataframe_records": records}, path=PATH)["detail"]
        assert "101 names in 101 rows are more than 10,000 cells" in detail

    def test_long_names_make_no_long_answer(self, client):
        names = ["ü" * 250 + str(number) for number in range(99)]
        table = {"dataframe_split": {"columns": names, "data": [[1.0] * 99]}}
        assert len(refused(client, table, path=PATH)["detail"]) == 1000

    def test_rows_and_series(self, tmp_path):
        """Of rows as objects there may be more than series."""
        make_bundle(tmp_path, model="tokens", **KINDS["panel"])
        one = Predictor.load(tmp_path, "cpu").example
        with start(model=str(tmp_path), max_series=3, max_rows=1000) as client:
            for count, words in ((3, ""), (4, "3 series, got 4"), (50, "at most 1,000 rows")):
                many = pd.concat([one.assign(town=f"t{number}") for number in range(count)])
                rows = json.loads(many.to_json(orient="records", date_format="iso"))
                answer = client.post("/invocations", json={"dataframe_records": rows})
                assert answer.status_code == (422 if words else 200)
                assert words in answer.text

    def test_quantiles(self, client, split, monkeypatch):
        monkeypatch.setattr(forecasting, "MOST_QUANTILES", len(COLUMNS) * HORIZON)
        body = {"dataframe_split": split, "params": {"quantile_levels": [0.1, 0.9]}}
        assert "steps and columns, got 36:" in refused(client, body, path=PATH)["detail"]
