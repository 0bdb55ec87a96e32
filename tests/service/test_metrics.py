import time

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


def test_requests_forecasts_and_notices_are_counted(folder):
    with start(model=str(folder)) as client:
        full = client.get(f"/models/{NAME}/example").json()
        series = full["inputs"][0]
        hole = {**series, "target": [[None, *series["target"][0][1:]], *series["target"][1:]]}
        full["inputs"] = [hole, series, hole]
        answer = client.post("/predict", json=full).json()
        found = {name.removeprefix("forecaster_"): each for name, each in figures(client).items()}
        assert client.post("/predict", json={**hole, **full["parameters"]}).status_code == 200
        later = figures(client)
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
    assert only(later["forecaster_forecasts_total"]) == 4
    notices = {dict(of)["code"]: value for of, value in later["forecaster_notices_total"].items()}
    assert notices["missing_masked"] == 3


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
    assert {("other", "404"), ("/predict", "404")} <= counted


def test_the_service_tells_how_it_is_and_what_waits(full, folder):
    def tells(**expected):
        found = figures(client)
        for name, value in expected.items():
            assert only(found[f"forecaster_{name}"]) == value, name
        return found

    with start(model=str(folder), max_queue=1, deadline_seconds=5) as client:
        found = tells(
            ready=1, queue_series=0, queue_limit_series=1, expected_wait_seconds=0,
            deadline_seconds=5, connections=0, device_busy=0, requests_in_flight=1, build_info=1,
        )  # fmt: skip
        assert only(found["process_resident_memory_bytes"]) > 2**24
        assert 0 < only(found["process_open_fds"]) < only(found["process_max_fds"])
        assert time.time() - only(found["process_start_time_seconds"]) < 86_400
        batcher = client.app.state.store.batcher
        batcher.pace.note("x", 1, 7.0)
        batcher._waiting["x"] = 1
        tells(ready=0, queue_series=1, expected_wait_seconds=7)
        assert client.post("/predict", json=full).status_code == 503
        del batcher._waiting["x"]
        found = tells(ready=1)
        assert found["forecaster_refusals_total"] == {frozenset({("reason", "queue")}): 1}


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
        assert loaded[none] == only(found["forecaster_ready"]) == 0
        client.app.state.store.poll()
        found = figures(client)
        looked = found["forecaster_model_looked_timestamp_seconds"]
        assert looked[here] > loaded[here] > looked[none] == 0
        assert found["forecaster_model_reload_failures_total"] == {here: 0, none: 2}
