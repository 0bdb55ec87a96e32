from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO

import numpy as np
import pandas as pd

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


def test_same_request_same_bits_in_both_forms_and_at_both_paths(client, full, flat):
    asked = (("/predict", full), ("/predict", full), ("/predict", flat), ("/v1/predict", flat))
    first, *others = [client.post(path, json=body).json()["predictions"] for path, body in asked]
    assert others == [first] * 3


class TestShortHistories:
    @staticmethod
    def cut(full, *rows, **parameters):
        """The series, no pure wave, cut to its newest rows: one input for each number of rows."""
        begin = datetime.fromisoformat(full["inputs"][0]["start"])
        target = np.random.default_rng(0).normal(10, 5, size=(PAST, len(COLUMNS))).tolist()
        inputs = [
            {
                "target": target[PAST - count :],
                "start": (begin + timedelta(hours=PAST - count)).isoformat(),
            }
            for count in rows
        ]
        return {"inputs": inputs, "parameters": {**full["parameters"], **parameters}}

    def test_the_parts_that_need_no_more_forecast(self, tmp_path, full):
        bundle = blended(make_bundle(tmp_path), network=0.5, cycle=0.3, last=0.2)
        keep(bundle, tmp_path)
        request = self.cut(full, PAST, 10, 3, short_history="drop", quantile_levels=[0.1, 0.9])
        with start(model=str(tmp_path)) as client:
            card = client.get(f"/models/{NAME}").json()
            answer = client.post("/predict", json=request).json()
        assert (card["needs"], card["least"], card["attn_weight"]) == (PAST, 1, 0.5)
        assert [part["name"] for part in card["made_of"]] == ["network", "cycle mean", "last value"]
        assert card["test"]["network"]["verdict"] == "The network is 50% of it."
        whole, some, little = answer["predictions"]
        assert {each["start"] for each in answer["predictions"]} == {whole["start"]}
        target = np.array(request["inputs"][0]["target"])
        cycle = target[-8:].reshape(2, 4, -1).mean(axis=0)[[0, 1, 2, 3, 0, 1]]
        np.testing.assert_allclose(some["mean"], 0.6 * cycle + 0.4 * target[-1], rtol=1e-5)
        np.testing.assert_allclose(little["mean"], np.tile(target[-1], (HORIZON, 1)), rtol=1e-5)
        for each in (whole, some, little):  # the calibrated offsets of the toy
            above = np.array(each["quantiles"]["0.9"]) - each["mean"]
            np.testing.assert_allclose(above[:, 0], 2.0 * np.arange(1, HORIZON + 1), rtol=1e-4)
        notices = [each for each in answer["notices"] if each["code"] == "short_history"]
        assert [each["input"] for each in notices] == [1, 2]
        assert "10 of the 24 rows" in notices[0]["text"]
        assert "60 % cycle mean + 40 % last value alone" in notices[0]["text"]

    def test_a_network_without_a_share(self, tmp_path, full):
        """It serves, needs only what the other parts need, and longer histories change nothing."""
        bundle = blended(make_bundle(tmp_path), cycle=0.75, last=0.25)
        keep(bundle, tmp_path)
        with start(model=str(tmp_path)) as client:
            card = client.get(f"/models/{NAME}").json()
            assert (card["needs"], card["least"], card["attn_weight"]) == (8, 1, 0)
            answer = client.post("/predict", json=self.cut(full, PAST, 8)).json()
            whole, short = answer["predictions"]
            np.testing.assert_allclose(short["mean"], whole["mean"], rtol=1e-6)
            assert answer["notices"] == []
            detail = refused(client, self.cut(full, 7))["detail"]
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


def test_what_stands_out_is_told_in_either_form(tmp_path):
    warning(make_bundle(tmp_path), past=9.0).save(tmp_path)
    with start(model=str(tmp_path)) as client:
        full = client.get(f"/models/{NAME}/example").json()
        full["parameters"]["quantile_levels"] = [0.1, 0.9]
        full["inputs"] *= 2
        two = client.post("/predict", json=full).json()
        one = client.post("/predict", json={**full["inputs"][0], **full["parameters"]}).json()
    whole, each = ["lost_to_floor", "coverage"], ["first_step", "unlike_training"]
    told = [(notice["code"], notice["input"]) for notice in two["notices"]]
    assert told == [*zip(whole + each + each, (None, None, 0, 0, 1, 1), strict=True)]
    assert two["warnings"][0] == two["notices"][0]["text"]
    assert two["warnings"][5] == f"inputs[1]: {two['notices'][5]['text']}"
    told = [(notice["code"], notice["input"]) for notice in one["notices"]]
    assert told == [(code, None) for code in whole + each]


def test_fewer_steps_old_names_of_the_step_and_the_first_and_last_times(client, flat):
    whole = mean(client, flat)
    for length in (2, 2.0):
        short = mean(client, {**flat, "prediction_length": length})
        np.testing.assert_array_equal(short, whole[:2])
    for freq in ("h", "H", "1h", "60min", None):
        np.testing.assert_array_equal(mean(client, {**flat, "freq": freq}), whole)
    for begin in ("0001-01-01", "9999-12-30T17:00:00"):
        assert np.isfinite(mean(client, {**flat, "start": begin})).all()


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
    answer = client.post("/predict", json={**flat, "quantile_levels": []})
    assert "quantiles" not in answer.json()["predictions"][0]


def test_an_answer_has_a_largest_number_of_quantiles(client, full, monkeypatch):
    monkeypatch.setattr("forecaster_service.routes.predict.MOST_NUMBERS", 2 * HORIZON * 3 * 2)
    full["inputs"] *= 2
    full["parameters"]["quantile_levels"] = [0.1, 0.5, 0.9]
    assert "steps and columns, got 108:" in refused(client, full)["detail"]
    full["parameters"]["prediction_length"] = 4
    assert client.post("/predict", json=full).status_code == 200
    full["parameters"]["samples"] = 2
    assert "got 120: ask for fewer levels, samples" in refused(client, full)["detail"]
    full["parameters"] = {"total": "horizon", "prediction_length": 4}
    assert client.post("/predict", json=full).status_code == 200
    monkeypatch.setattr("forecaster_service.routes.predict.MOST_SUMMED", 935)
    assert "at most 935 errors in one answer, got 936" in refused(client, full)["detail"]


def test_paths_and_totals_beside_the_mean(serve):
    """Paths are the same in any request, and their quantiles the bands; totals are sums."""
    client, _, series = serve("attributes")
    other = {**series, "item_id": "Bern", "target": [2 * row[0] for row in series["target"]]}
    other["static_covariates"] = {"size": 1.0, "kind": "in"}
    asked = {"samples": 2000, "quantile_levels": [0.1, 0.9], "prediction_length": 4}
    both = {"inputs": [series, other], "parameters": {**asked, "total": "horizon", "by": "size"}}
    answer = client.post("/predict", json=both).json()
    alone = client.post("/predict", json={**other, **asked}).json()
    assert "totals" not in alone
    drawn = alone["predictions"][0]["samples"], answer["predictions"][1]["samples"]
    np.testing.assert_allclose(*drawn, rtol=1e-5, atol=1e-5)
    for prediction in answer["predictions"]:
        paths, ahead = np.array(prediction["samples"]), np.array(prediction["mean"])
        assert paths.shape == (2000, *ahead.shape)
        ends = np.array([*prediction["quantiles"].values()])
        allowed = 0.02 * np.max(ends[1] - ends[0])
        np.testing.assert_allclose(np.quantile(paths, [0.1, 0.9], axis=0), ends, atol=allowed)
    names, sums = zip(*((each["name"], each["mean"][0]) for each in answer["totals"]), strict=True)
    assert names == (f"{series['static_covariates']['size']:g}", "1")
    np.testing.assert_allclose(sums, [np.sum(one["mean"]) for one in answer["predictions"]])
    assert client.get(f"/models/{NAME}").json()["paths_from"] == 39
    assert "JSON" in refused(client, both, Accept="text/csv")["detail"]
    assert "no whole day" in refused(client, {**series, "total": "day"})["detail"]


def test_a_model_without_quantiles_says_why(flat, tmp_path):
    bundle = replace(make_bundle(tmp_path), intervals=None)
    about = {**bundle.about, "intervals": "none: nobody calibrated it"}
    keep(replace(bundle, about=about), tmp_path)
    with start(model=str(tmp_path)) as client:
        problem = refused(client, {**flat, "quantile_levels": [0.5]})
        card = client.get("/models").json()["models"][0]
    assert "no quantiles: none: nobody calibrated it" in problem["detail"]
    assert (card["quantile_levels"], card["intervals"]) == ([], "none: nobody calibrated it")


class TestCsv:
    """The answer to Accept: text/csv."""

    def ask(self, client, body):
        answer = client.post("/predict", json=body, headers={"Accept": "text/csv"})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["vary"] == "Accept"
        assert NAME in answer.headers["x-forecaster-model"]
        return pd.read_csv(StringIO(answer.text))

    def test_the_same_numbers_in_named_columns(self, client, full):
        body = {**full, "inputs": [{**full["inputs"][0], "item_id": each} for each in "ab"]}
        body["parameters"] = {"prediction_length": 4, "quantile_levels": [0.9, 0.1]}
        table, answer = self.ask(client, body), client.post("/predict", json=body).json()
        names = [name + suffix for name in COLUMNS for suffix in ("", " 0.1", " 0.9")]
        assert list(table) == ["item_id", "time", *names]
        for prediction, (item, part) in zip(
            answer["predictions"], table.groupby("item_id"), strict=True
        ):
            times = pd.date_range(prediction["start"], periods=4, freq="h")
            assert (item, [*pd.to_datetime(part["time"])]) == (prediction["item_id"], [*times])
            expected = np.stack([prediction["mean"], *prediction["quantiles"].values()], axis=-1)
            np.testing.assert_allclose(part[names], expected.reshape(4, -1), rtol=1e-5)

    def test_a_series_without_a_name(self, client, flat):
        flat.pop("item_id")
        table = self.ask(client, flat)
        assert list(table) == ["time", *COLUMNS]
        np.testing.assert_allclose(table[list(COLUMNS)], mean(client, flat), rtol=1e-6)
        series = {name: flat[name] for name in ("start", "target", "columns")}
        several = self.ask(client, {"inputs": [series] * 3})
        assert several["item_id"].unique().tolist() == [0, 1, 2], "told by their places"
