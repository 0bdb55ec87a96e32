import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forecaster_service.metrics import MODEL
from tests.service.toy import NAME, make_bundle, start


def figures(client):
    """All samples by name and labels."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def only(found):
    (value,) = found.values()
    return value


def test_requests_and_batches_are_counted(folder):
    with start(model=str(folder)) as client:
        full = client.get(f"/models/{NAME}/example").json()
        answer = client.post("/predict", json={**full, "inputs": full["inputs"] * 3}).json()
        found = {name.removeprefix("forecaster_"): each for name, each in figures(client).items()}
    values = [answer["model"][key] or "" for key in ("name", "version", "digest", "attn")]
    model = dict(zip(MODEL, values, strict=True))
    asked = {"route": "/predict", **model}
    assert found["requests_total"][frozenset({"status": "200", **asked}.items())] == 1
    assert found["request_seconds_count"][frozenset(asked.items())] == 1
    of_model = frozenset(model.items())
    assert found["queue_seconds_count"] == {of_model: 1}
    assert found["inference_seconds_count"] == {of_model: 2}, "with the example, before it served"
    assert found["batch_series_count"] == {of_model: 2}
    assert found["batch_series_sum"] == {of_model: 1 + 3}


def test_what_clients_send_is_no_label(client, full):
    client.post("/predict?key=swordfish", json={**full, "model": "swordfish"})
    client.get("/swordfish", headers={"X-Request-ID": "swordfish"})
    client.get("/models/swordfish/example")
    client.request("SWORDFISH", "/predict")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "swordfish" not in answer.text.lower()
    found = figures(client)["forecaster_requests_total"]
    counted = {(dict(each)["route"], dict(each)["status"]) for each in found}
    assert {("other", "404"), ("/predict", "404"), ("other", "404")} <= counted


def test_the_service_tells_how_it_is(client):
    found = {name: only(each) for name, each in figures(client).items() if len(each) == 1}
    expected = {
        "ready": 1,
        "queue_series": 0,
        "queue_limit_series": 512,
        "expected_wait_seconds": 0,
        "deadline_seconds": 30,
        "connections": 0,
        "device_busy": 0,
        "requests_in_flight": 1,
        "build_info": 1,
    }
    assert {name: found[f"forecaster_{name}"] for name in expected} == expected
    assert found["process_resident_memory_bytes"] > 2**24
    assert 0 < found["process_open_fds"] < found["process_max_fds"]
    assert time.time() - found["process_start_time_seconds"] < 86_400


def test_what_waits_is_told(full, folder):
    with start(model=str(folder), max_queue=1, deadline_seconds=5) as client:
        store = client.app.state.store
        store.batcher.pace.note("x", 1, 7.0)
        store.batcher._waiting["x"] = 1
        found = figures(client)
        refused = client.post("/predict", json=full)
        del store.batcher._waiting["x"]
        assert only(found["forecaster_ready"]) == 0
        assert only(found["forecaster_queue_series"]) == 1
        assert only(found["forecaster_expected_wait_seconds"]) == 7
        assert refused.status_code == 503
        found = figures(client)
        assert found["forecaster_refusals_total"] == {frozenset({("reason", "queue")}): 1}
        assert only(found["forecaster_ready"]) == 1


def test_models_their_loads_and_failures(tmp_path):
    bundle = make_bundle(tmp_path / "here")
    began = time.time()
    with start(model=f"{tmp_path / 'here'},{tmp_path / 'none'}", poll_seconds=1000) as client:
        found = figures(client)
        info = {"source": "here", "model": NAME, "version": "", "digest": bundle.digest}
        info |= {"attention": "prob", "device": "cpu"}
        assert found["forecaster_model_info"] == {frozenset(info.items()): 1}
        here, none = (frozenset({("source", each)}) for each in ("here", "none"))
        assert found["forecaster_model_loads_total"] == {here: 1, none: 0}
        assert found["forecaster_model_reload_failures_total"] == {here: 0, none: 1}
        loaded = found["forecaster_model_loaded_timestamp_seconds"]
        assert began <= loaded[here] <= time.time()
        assert loaded[none] == 0
        assert only(found["forecaster_ready"]) == 0
        client.app.state.store.poll()
        found = figures(client)
        assert found["forecaster_model_looked_timestamp_seconds"][here] > loaded[here]
        assert found["forecaster_model_looked_timestamp_seconds"][none] == 0
        assert found["forecaster_model_reload_failures_total"] == {here: 0, none: 2}


@pytest.mark.parametrize(("count", "bad"), [(1, 1), (3, 2)])
def test_forecasts_and_their_notices_are_counted(folder, count, bad):
    with start(model=str(folder)) as client:
        body = client.get(f"/models/{NAME}/example").json()
        (series,) = body["inputs"]
        hole = {**series, "target": [[None, *series["target"][0][1:]], *series["target"][1:]]}
        inputs = [hole] * bad + [series] * (count - bad)
        assert client.post("/predict", json={**body, "inputs": inputs}).status_code == 200
        if count == 1:
            assert client.post("/predict", json={**hole, **body["parameters"]}).status_code == 200
            count, bad = 2, 2
        found = figures(client)
    notices = {
        dict(labels)["code"]: value for labels, value in found["forecaster_notices_total"].items()
    }
    assert only(found["forecaster_forecasts_total"]) == count
    assert notices["missing_masked"] == bad
