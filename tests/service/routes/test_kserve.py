from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.bundles import warning
from tests.service.toy import COLUMNS, HORIZON, KINDS, NAME, make_bundle, start

Body = dict[str, Any]
PATH = "/v1/timeseries/forecast"


def asked(full: Body, **changes: Any) -> Body:
    """A request of /predict in the format of KServe's clients."""
    (series,) = full["inputs"]
    many = isinstance(series["target"][0], list)
    theirs = {
        "type": f"{'multi' if many else 'uni'}variate_time_series",
        "name": series["item_id"],
        "series": series["target"],
        "frequency": "H",
        "start_timestamp": series["start"],
    }
    return {
        "model": NAME,
        "inputs": [{**theirs, **changes}],
        "options": {"horizon": HORIZON, "quantiles": [0.9, 0.1]},
    }


def refused(client: TestClient, body: Any) -> Any:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 422, answer.text
    return answer.json()


def test_the_numbers_are_those_of_predict(client: TestClient, full: Body) -> None:
    body = asked(full)
    body["metadata"] = {"anything": [{"a": None}]}
    answer = client.post(PATH, json=body, headers={"X-Request-ID": "abc-1"}).json()
    full["parameters"]["quantile_levels"] = [0.1, 0.9]
    ours = client.post("/predict", json=full).json()["predictions"][0]
    assert answer.pop("created_at") > 1.7e9
    assert answer == {
        "id": "abc-1",
        "status": "completed",
        "error": None,
        "model": NAME,
        "outputs": [
            {
                "type": "time_series_forecast",
                "id": "abc-1-0",
                "status": "completed",
                "content": [
                    {
                        "type": "multivariate_time_series",
                        "name": "example",
                        "mean_forecast": ours["mean"],
                        "frequency": "H",
                        "start_timestamp": ours["start"],
                        "quantiles": ours["quantiles"],
                    }
                ],
                "error": None,
            }
        ],
        "warnings": [],
        "notices": [],
    }


def test_without_quantiles_there_are_none(client: TestClient, full: Body) -> None:
    body = asked(full)
    body["options"] = {"horizon": 2.0}  # an integer, for JSON
    body["inputs"] *= 2
    answer = client.post(PATH, json=body).json()
    assert [output["id"][-2:] for output in answer["outputs"]] == ["-0", "-1"]
    for output in answer["outputs"]:
        (content,) = output["content"]
        assert content["quantiles"] is None
        assert np.array(content["mean_forecast"]).shape == (2, len(COLUMNS))


def test_one_number_per_step_and_a_median(tmp_path: Path) -> None:
    kind = {**KINDS["panel"], "loss": "pinball"}
    make_bundle(tmp_path / "b", model="tokens", **kind)
    with start(model=str(tmp_path / "b")) as client:
        full = client.get(f"/models/{NAME}/example").json()
        (series,) = full["inputs"]
        series["target"] = [row[0] for row in series["target"]]
        answer = client.post(PATH, json=asked(full, name="new")).json()
        ours = client.post("/predict", json={"inputs": [{**series, "item_id": "new"}]}).json()
    (content,) = answer["outputs"][0]["content"]
    assert content["type"] == "univariate_time_series"
    assert content["mean_forecast"] == ours["predictions"][0]["median"]
    assert answer["warnings"] == ours["warnings"]
    assert [each["code"] for each in answer["notices"]] == ["own_scale", "median"]
    assert answer["notices"] == ours["notices"]


def test_what_stands_out_is_told(tmp_path: Path) -> None:
    warning(make_bundle(tmp_path)).save(tmp_path)
    with start(model=str(tmp_path)) as client:
        full = client.get(f"/models/{NAME}/example").json()
        answer = client.post(PATH, json=asked(full)).json()
        full["parameters"]["quantile_levels"] = [0.1, 0.9]
        ours = client.post("/predict", json=full).json()
    codes = [each["code"] for each in answer["notices"]]
    assert codes == ["lost_to_floor", "coverage", "first_step", "unlike_training"]
    assert (answer["notices"], answer["warnings"]) == (ours["notices"], ours["warnings"])


@pytest.mark.parametrize(
    ("freq", "words"),
    [
        ("h", ["hour", "H", "h"]),
        ("15min", ["15min"]),
        ("min", ["minute", "T"]),
        ("D", ["day", "D"]),
        ("W-SUN", ["week", "W", "W-SUN"]),
        ("ME", ["month", "M"]),
        ("MS", ["month", "M"]),
        ("QS-OCT", ["quarter", "Q"]),
        ("YE-DEC", ["year", "Y"]),
        ("B", ["B"]),
    ],
)
def test_the_words_for_a_time_step(tmp_path: Path, freq: str, words: list[str]) -> None:
    make_bundle(tmp_path / "b", columns=("load",), freq=freq, model="tokens")
    with start(model=str(tmp_path / "b")) as client:
        full = client.get(f"/models/{NAME}/example").json()
        for word in words:
            answer = client.post(PATH, json=asked(full, frequency=word))
            assert answer.status_code == 200, answer.text
            assert answer.json()["outputs"][0]["content"][0]["frequency"] == word
        problem = refused(client, asked(full, frequency="S"))
        assert problem["errors"][0]["loc"] == ["inputs", 0, "frequency"]
        assert f"in steps of {freq}" in problem["detail"]


@pytest.mark.parametrize(
    ("changes", "location", "words"),
    [
        ({"type": "univariate_time_series"}, ["inputs", 0, "type"], "univariate_time_series means"),
        ({"type": "panel"}, ["inputs", 0, "type"], "multivariate_time_series"),
        ({"name": "/"}, ["inputs", 0, "name"], "at most 128 letters"),
        ({"start_timestamp": None}, ["inputs", 0, "start_timestamp"], "the time of the first row"),
        ({"start_timestamp": "x"}, ["inputs", 0, "start_timestamp"], "ISO 8601"),
        ({"series": [[1.0] * 3]}, ["inputs", 0, "series"], "at least 24 rows"),
        ({"series": [[1.0] * 3, [1, "2", 3]]}, ["inputs", 0, "series", 1, 1], "expected a number"),
        ({"series": []}, ["inputs", 0, "series"], ""),
        ({"serie": 1}, ["inputs", 0, "serie"], "Did you mean 'series'?"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_request(
    client: TestClient, full: Body, changes: Body, location: list[str | int], words: str
) -> None:
    problem = refused(client, asked(full, **changes))
    assert problem["errors"][0]["loc"] == location
    assert words in problem["detail"]


@pytest.mark.parametrize(
    ("options", "location"),
    [
        ({"horizon": HORIZON + 1}, ["options", "horizon"]),
        ({"horizon": 0}, ["options", "horizon"]),
        ({"horizon": 1, "quantiles": [0.01]}, ["options", "quantiles"]),
        ({"horizon": 1, "quantile": [0.1]}, ["options", "quantile"]),
        ({}, ["options", "horizon"]),
    ],
)
def test_options(client: TestClient, full: Body, options: Body, location: list[str]) -> None:
    problem = refused(client, {**asked(full), "options": options})
    assert problem["errors"][0]["loc"] == location


@pytest.mark.parametrize("body", [[], {}, 1, {"full": 1}, {"a b": 1}, {"inputs": {}}])
def test_what_is_no_request(client: TestClient, body: Any) -> None:
    assert "model" in str(refused(client, body)) or body in ([], 1)


def test_other_models_and_covariates(client: TestClient, full: Body, tmp_path: Path) -> None:
    assert client.post(PATH, json={**asked(full), "model": "other"}).status_code == 404
    make_bundle(tmp_path / "b", model="tokens", **KINDS["ahead"])
    with start(model=str(tmp_path / "b")) as other:
        example = other.get(f"/models/{NAME}/example").json()
        assert "which only /predict accepts" in refused(other, asked(example))["detail"]
