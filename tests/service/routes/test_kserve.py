import pytest

from tests.service.toy import KINDS, KSERVE, NAME, kserve, make_bundle, start


def test_the_numbers_are_those_of_predict(client, full):
    body = kserve(full)
    body["metadata"] = {"anything": [{"a": None}]}
    answer = client.post(KSERVE, json=body, headers={"X-Request-ID": "abc-1"}).json()
    full["parameters"]["quantile_levels"] = [0.1, 0.9]
    ours = client.post("/predict", json=full).json()["predictions"][0]
    assert answer.pop("created_at") > 1.7e9
    content = {"type": "multivariate_time_series", "name": "example", "frequency": "H"}
    content |= {"start_timestamp": ours["start"], "mean_forecast": ours["mean"]}
    content |= {"quantiles": ours["quantiles"]}
    done = {"status": "completed", "error": None}
    output = {"type": "time_series_forecast", "id": "abc-1-0", "content": [content], **done}
    whole = {"id": "abc-1", "model": NAME, "outputs": [output], "warnings": [], "notices": []}
    assert answer == {**whole, **done}


def test_without_quantiles_there_are_none(client, full):
    body = kserve(full)
    body["options"] = {"horizon": 2.0}  # an integer, for JSON
    body["inputs"] *= 2
    answer = client.post(KSERVE, json=body).json()
    assert [output["id"][-2:] for output in answer["outputs"]] == ["-0", "-1"]
    for output in answer["outputs"]:
        (content,) = output["content"]
        assert (content["quantiles"], len(content["mean_forecast"])) == (None, 2)


def test_one_number_per_step(tmp_path):
    make_bundle(tmp_path / "b", model="tokens", **KINDS["panel"])
    with start(model=str(tmp_path / "b")) as client:
        full = client.get(f"/models/{NAME}/example").json()
        (series,) = full["inputs"]
        series["target"] = [row[0] for row in series["target"]]
        answer = client.post(KSERVE, json=kserve(full, name="new")).json()
        ours = client.post("/predict", json={"inputs": [{**series, "item_id": "new"}]}).json()
    (content,) = answer["outputs"][0]["content"]
    assert content["type"] == "univariate_time_series"
    assert content["mean_forecast"] == ours["predictions"][0]["mean"]
    assert answer["warnings"] == ours["warnings"]
    assert [each["code"] for each in answer["notices"]] == ["own_scale"]
    assert answer["notices"] == ours["notices"]


@pytest.mark.parametrize(
    ("freq", "words"),
    [
        ("h", ["hour", "H", "h"]),
        ("15min", ["15min"]),
        ("min", ["minute", "T"]),
        ("D", ["day", "D"]),
        ("W-SUN", ["week", "W", "W-SUN"]),
        ("ME", ["month", "M"]),
        ("QS-OCT", ["quarter", "Q"]),
        ("YE-DEC", ["year", "Y"]),
    ],
)
def test_the_words_for_a_time_step(tmp_path, freq, words):
    make_bundle(tmp_path / "b", columns=("load",), freq=freq, model="tokens")
    with start(model=str(tmp_path / "b")) as client:
        full = client.get(f"/models/{NAME}/example").json()
        for word in words:
            answer = client.post(KSERVE, json=kserve(full, frequency=word))
            assert answer.status_code == 200, answer.text
            assert answer.json()["outputs"][0]["content"][0]["frequency"] == word


def test_another_model(client, full):
    assert client.post(KSERVE, json={**kserve(full), "model": "other"}).status_code == 404
