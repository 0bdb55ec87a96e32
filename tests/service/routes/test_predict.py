from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from forecaster.forecast.predictor import Predictor, keep
from tests.bundles import blended, warning
from tests.service.toy import COLUMNS, HORIZON, NAME, PAST, make_bundle, mean, refused, start


def test_answer_has_the_shape_of_the_contract(client, full, folder):
    answer = client.post("/predict", json=full, headers={"X-Request-ID": "abc-1"}).json()
    prediction = answer["predictions"][0]
    assert answer["id"] == "abc-1"
    assert (answer["warnings"], answer["notices"]) == ([], [])
    assert answer["model"] == {
        "name": NAME, "version": None, "alias": None, "run_id": "0" * 32, "attn": "prob",
        "attn_weight": 1.0, "digest": Predictor.load(folder).bundle.digest,
    }  # fmt: skip
    assert answer["timing"]["batch_size"] == 1
    assert answer["timing"]["inference_ms"] > 0
    assert answer["timing"]["queue_ms"] >= 0
    last = datetime.fromisoformat(full["inputs"][0]["start"]) + timedelta(hours=PAST - 1)
    assert datetime.fromisoformat(prediction["start"]) == last + timedelta(hours=1)
    assert (prediction["item_id"], prediction["freq"]) == ("example", "h")
    assert prediction["columns"] == list(COLUMNS)
    assert np.array(prediction["mean"]).shape == (HORIZON, len(COLUMNS))


@pytest.mark.parametrize("path", ["/predict", "/v1/predict"])
def test_same_request_same_bits_in_both_forms(client, full, flat, path):
    answers = [client.post(path, json=body).json() for body in (full, full, flat)]
    assert answers[0]["predictions"] == answers[1]["predictions"] == answers[2]["predictions"]


def test_columns_by_name_in_any_order(client, flat):
    order = [2, 0, 1]
    target = np.array(flat["target"])[:, order].tolist()
    shuffled = {**flat, "columns": [COLUMNS[i] for i in order], "target": target}
    np.testing.assert_array_equal(mean(client, shuffled), mean(client, flat))
    unnamed = {key: value for key, value in flat.items() if key != "columns"}
    np.testing.assert_array_equal(mean(client, unnamed), mean(client, flat))


@pytest.fixture(scope="module")
def blend(tmp_path_factory):
    """A blend of a network of 24 steps, a cycle mean of 8 and the last value."""
    folder = tmp_path_factory.mktemp("blend")
    bundle = blended(make_bundle(folder, freq="h"), network=0.5, cycle=0.3, last=0.2)
    keep(bundle, folder)
    with start(model=str(folder)) as client:
        yield client


@pytest.fixture
def body(blend):
    """A request for it whose history is not a pure wave."""
    found = blend.get(f"/models/{NAME}/example").json()
    series = found["inputs"][0]
    values = np.random.default_rng(0).normal(10, 5, size=np.shape(series["target"]))
    series["target"] = values.round(3).tolist()
    return found


class TestShortHistories:
    @staticmethod
    def cut(body, *rows, **parameters):
        """The series cut to its newest rows, one input for each number of rows."""
        (series,) = body["inputs"]
        begin = datetime.fromisoformat(series["start"])
        inputs = [
            {
                **series,
                "target": series["target"][PAST - count :],
                "start": (begin + timedelta(hours=PAST - count)).isoformat(),
            }
            for count in rows
        ]
        return {"inputs": inputs, "parameters": {**body["parameters"], **parameters}}

    def test_the_card_tells_how_much_it_takes(self, blend):
        card = blend.get(f"/models/{NAME}").json()
        assert (card["look_back"], card["needs"], card["least"]) == (PAST, PAST, 1)
        assert card == blend.get("/models").json()["models"][0]
        assert card["attn_weight"] == 0.5
        assert [(part["name"], part["kind"]) for part in card["made_of"]] == [
            ("network", "network"), ("cycle mean", "cycle-mean"), ("last value", "last-value"),
        ]  # fmt: skip
        assert card["test"]["network"]["verdict"] == "The network is 50% of it."

    def test_the_parts_that_need_no_more_forecast(self, blend, body):
        request = self.cut(body, PAST, 10, 3, short_history="drop", quantile_levels=[0.1, 0.9])
        answer = blend.post("/predict", json=request).json()
        whole, some, little = answer["predictions"]
        assert {each["start"] for each in answer["predictions"]} == {whole["start"]}
        target = np.array(body["inputs"][0]["target"])
        cycle = target[-8:].reshape(2, 4, -1).mean(axis=0)[[0, 1, 2, 3, 0, 1]]
        np.testing.assert_allclose(some["mean"], 0.6 * cycle + 0.4 * target[-1], rtol=1e-5)
        np.testing.assert_allclose(little["mean"], np.tile(target[-1], (HORIZON, 1)), rtol=1e-5)
        for each in (whole, some, little):  # the calibrated offsets of the toy
            above = np.array(each["quantiles"]["0.9"]) - each["mean"]
            np.testing.assert_allclose(above[:, 0], 2.0 * np.arange(1, HORIZON + 1), rtol=1e-4)
        notices = [each for each in answer["notices"] if each["code"] == "short_history"]
        assert [each["input"] for each in notices] == [1, 2]
        assert notices[0]["text"] == (
            f"the history has 10 of the {PAST} rows that the model needs: forecast by "
            "60 % cycle mean + 40 % last value alone; the intervals are as wide as those of the "
            "whole model"
        )
        assert "100 % last value alone" in notices[1]["text"]

    def test_a_network_without_a_share(self, tmp_path, body):
        """It serves, needs only what the other parts need, and longer histories change nothing."""
        bundle = blended(make_bundle(tmp_path), cycle=0.75, last=0.25)
        keep(bundle, tmp_path)
        with start(model=str(tmp_path)) as client:
            card = client.get(f"/models/{NAME}").json()
            assert (card["look_back"], card["needs"], card["least"]) == (PAST, 8, 1)
            assert (card["attn"], card["attn_weight"]) == ("prob", 0)
            answer = client.post("/predict", json=self.cut(body, PAST, 8)).json()
            assert answer["model"]["attn_weight"] == 0
            whole, short = answer["predictions"]
            np.testing.assert_allclose(short["mean"], whole["mean"], rtol=1e-6)
            assert answer["notices"] == []
            detail = refused(client, self.cut(body, 7))["detail"]
            assert "expected at least 8 rows, got 7" in detail


def test_longer_is_cut_with_a_warning(client, flat):
    before = [[0.0, 50.0, -50.0]] * 10
    started = datetime.fromisoformat(flat["start"]) - timedelta(hours=10)
    body = {**flat, "start": started.isoformat(), "target": before + flat["target"]}
    np.testing.assert_array_equal(mean(client, body), mean(client, flat))
    answer = client.post("/predict", json=body).json()
    assert answer["warnings"] == ["the newest 24 of 34 rows were used"]
    (notice,) = answer["notices"]
    assert notice == {"code": "history_cut", "input": None, "text": answer["warnings"][0]}
    answer = client.post("/predict", json={"inputs": [{**body} | {"item_id": "b"}]})
    assert answer.status_code == 422  # prediction_length and freq belong to the parameters


def test_what_stands_out_is_told_in_either_form(tmp_path):
    warning(make_bundle(tmp_path), past=9.0).save(tmp_path)
    with start(model=str(tmp_path)) as client:
        full = client.get(f"/models/{NAME}/example").json()
        full["parameters"]["quantile_levels"] = [0.1, 0.9]
        full["inputs"] *= 2
        two = client.post("/predict", json=full).json()
        one = client.post("/predict", json={**full["inputs"][0], **full["parameters"]}).json()
    assert [(each["code"], each["input"]) for each in two["notices"]] == [
        ("lost_to_floor", None), ("coverage", None), ("first_step", 0), ("unlike_training", 0),
        ("first_step", 1), ("unlike_training", 1),
    ]  # fmt: skip
    assert two["warnings"][0] == two["notices"][0]["text"]
    assert two["warnings"][5] == f"inputs[1]: {two['notices'][5]['text']}"
    assert [(each["code"], each["input"]) for each in one["notices"]] == [
        (code, None) for code in ("lost_to_floor", "coverage", "first_step", "unlike_training")
    ]


def test_prediction_length(client, flat):
    short = mean(client, {**flat, "prediction_length": 2})
    np.testing.assert_array_equal(short, mean(client, flat)[:2])
    np.testing.assert_array_equal(short, mean(client, {**flat, "prediction_length": 2.0}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("freq", value) for value in ("h", "H", "1h", "60min", None)],
        *[("start", value) for value in ("0001-01-01", "9999-12-30T17:00:00")],
    ],
)
def test_old_names_of_the_step_and_the_first_and_last_times(client, flat, name, value):
    answer = client.post("/predict", json={**flat, name: value}).json()
    assert answer["predictions"][0]["freq"] == "h"
    assert np.isfinite(answer["predictions"][0]["mean"]).all()


def test_start_in_a_zone_becomes_utc(tmp_path):
    make_bundle(tmp_path, ("load",), timezone="UTC")
    with start(model=str(tmp_path)) as client:
        body = {"target": [float(i % 7) for i in range(PAST)], "start": "2026-01-01T02:00:00+02:00"}
        prediction = client.post("/predict", json=body).json()["predictions"][0]
        assert prediction["start"] == "2026-01-02T00:00:00+00:00"
        naive = {**body, "start": "2026-01-01T00:00:00"}
        assert client.post("/predict", json=naive).json()["predictions"][0] == prediction
        early = {**body, "start": "0001-01-01T00:00:00+14:00"}
        assert "ISO 8601" in refused(client, early)["detail"]


def test_calendar_steps_start_on_the_calendar(tmp_path):
    make_bundle(tmp_path, ("load",), freq="ME")
    body = {"target": [float(i) for i in range(PAST + 3)], "start": "2020-01-31"}
    with start(model=str(tmp_path)) as client:
        answer = client.post("/predict", json=body).json()
        assert answer["predictions"][0]["start"] == "2022-04-30T00:00:00"
        assert "steps of ME" in refused(client, {**body, "start": "2020-01-15"})["detail"]


def test_quantiles_by_level_beside_the_mean(client, flat):
    answer = client.post("/predict", json={**flat, "quantile_levels": [0.9, 0.1, 0.7, 0.1]})
    prediction = answer.json()["predictions"][0]
    assert list(prediction["quantiles"]) == ["0.1", "0.7", "0.9"]
    plain, steps = mean(client, flat), np.arange(1, HORIZON + 1)[:, None]
    np.testing.assert_array_equal(prediction["mean"], plain)
    for level, factor in (("0.1", -1), ("0.7", 1), ("0.9", 2)):
        np.testing.assert_allclose(prediction["quantiles"][level], plain + factor * steps)
    assert "median" not in prediction
    for body in (flat, {**flat, "quantile_levels": []}):
        answer = client.post("/predict", json=body)
        assert "quantiles" not in answer.json()["predictions"][0]


def test_an_answer_has_a_largest_number_of_quantiles(client, full, monkeypatch):
    monkeypatch.setattr("forecaster_service.forecasting.MOST_QUANTILES", 2 * HORIZON * 3 * 2)
    full["inputs"] *= 2
    full["parameters"]["quantile_levels"] = [0.1, 0.9]
    assert client.post("/predict", json=full).status_code == 200
    full["parameters"]["quantile_levels"] = [0.1, 0.5, 0.9]
    problem = refused(client, full)
    assert "steps and columns, got 108:" in problem["detail"]
    full["parameters"]["prediction_length"] = 4
    assert client.post("/predict", json=full).status_code == 200


def test_a_model_without_quantiles_says_why(flat, tmp_path):
    bundle = replace(make_bundle(tmp_path), intervals=None)
    about = {**bundle.about, "intervals": "none: nobody calibrated it"}
    keep(replace(bundle, about=about), tmp_path)
    with start(model=str(tmp_path)) as client:
        problem = refused(client, {**flat, "quantile_levels": [0.5]})
        card = client.get("/models").json()["models"][0]
    assert "no quantiles: none: nobody calibrated it" in problem["detail"]
    assert (card["quantile_levels"], card["intervals"]) == ([], "none: nobody calibrated it")


def test_a_model_of_quantiles_answers_the_median_and_says_so(tmp_path):
    make_bundle(tmp_path, ("load",), loss="pinball")
    body = {"target": [float(i % 7) for i in range(PAST)], "start": "2026-01-01"}
    with start(model=str(tmp_path)) as client:
        answer = client.post("/predict", json={**body, "quantile_levels": [0.1, 0.5]}).json()
        card = client.get("/models").json()["models"][0]
    (prediction,) = answer["predictions"]
    assert "mean" not in prediction
    assert prediction["quantiles"]["0.5"] == prediction["median"]
    assert np.all(np.array(prediction["quantiles"]["0.1"]) < prediction["median"])
    assert "median, not mean" in answer["warnings"][0]
    assert (answer["notices"][0]["code"], answer["notices"][0]["input"]) == ("median", None)
    assert (card["forecast"], card["quantile_levels"]) == ("median", [0.1, 0.5, 0.9])


class TestCsv:
    """The answer to Accept: text/csv."""

    def ask(self, client, body):
        answer = client.post("/predict", json=body, headers={"Accept": "text/csv"})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["vary"] == "Accept"
        assert NAME in answer.headers["x-forecaster-model"]
        return pd.read_csv(StringIO(answer.text))

    def test_the_same_numbers_in_the_columns_of_invocations(self, client, full):
        body = {**full, "inputs": [{**full["inputs"][0], "item_id": each} for each in "ab"]}
        body["parameters"] = {"prediction_length": 4, "quantile_levels": [0.9, 0.1]}
        table, answer = self.ask(client, body), client.post("/predict", json=body).json()
        suffixes = ("", " 0.1", " 0.9")
        names = [name + suffix for name in COLUMNS for suffix in suffixes]
        assert list(table) == ["item_id", "time", *names]
        for place, (item, part) in enumerate(table.groupby("item_id")):
            prediction = answer["predictions"][place]
            assert (item, len(part)) == (prediction["item_id"], 4)
            assert part["time"].iloc[0] == prediction["start"]
            assert np.all(np.diff(pd.to_datetime(part["time"])) == np.timedelta64(1, "h"))
            expected = [prediction["mean"], *prediction["quantiles"].values()]
            for suffix, values in zip(suffixes, expected, strict=True):
                found = part[[name + suffix for name in COLUMNS]].to_numpy()
                np.testing.assert_allclose(found, values, rtol=1e-5)

    def test_a_series_without_a_name(self, client, flat):
        flat.pop("item_id")
        table = self.ask(client, flat)
        assert list(table) == ["time", *COLUMNS]
        np.testing.assert_allclose(table[list(COLUMNS)], mean(client, flat), rtol=1e-6)
        series = {name: flat[name] for name in ("start", "target", "columns")}
        several = self.ask(client, {"inputs": [series] * 3})
        assert several["item_id"].unique().tolist() == [0, 1, 2], "told by their places"
