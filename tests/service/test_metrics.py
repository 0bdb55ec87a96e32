from typing import Any

from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from forecaster_service.metrics import MODEL, Metrics, labels
from forecaster_service.schemas import ModelIdentity

Body = dict[str, Any]


def read(client: TestClient) -> dict[tuple[str, str, str], float]:
    """Samples by name, route or "", and status or ""; summed over the models."""
    found: dict[tuple[str, str, str], float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            if "le" not in sample.labels:
                key = sample.name, sample.labels.get("route", ""), sample.labels.get("status", "")
                found[key] = found.get(key, 0) + sample.value
    return found


def test_requests_and_batches_are_counted(client: TestClient, full: Body) -> None:
    before = read(client)

    def more(name: str, route: str = "", status: str = "") -> float:
        key = f"forecaster_{name}", route, status
        return after.get(key, 0) - before.get(key, 0)

    body = {**full, "inputs": [{**full["inputs"][0], "item_id": name} for name in "abc"]}
    client.post("/predict", json=body)
    client.post("/predict", json={})
    client.post("/predict", json={**full, "model": "other"})
    client.get("/secret/7f3a")
    after = read(client)
    for status in ("200", "422", "404"):
        assert more("requests_total", "/predict", status) == 1
    assert more("requests_total", "other", "404") == 1
    assert more("request_seconds_count", "/predict") == 3
    assert more("request_seconds_sum", "/predict") > more("inference_seconds_sum") > 0
    assert more("queue_seconds_count") == more("inference_seconds_count") == 1
    assert (more("batch_series_count"), more("batch_series_sum")) == (1, 3)


def test_models_are_labels_and_what_clients_send_is_not(client: TestClient, full: Body) -> None:
    identity = client.post("/predict", json=full).json()["model"]
    client.post("/predict?key=swordfish", json={**full, "model": "swordfish"})
    client.get("/swordfish", headers={"X-Request-ID": "swordfish"})
    client.get("/models/swordfish/example")
    client.request("SWORDFISH", "/predict")
    text = client.get("/metrics").text
    assert "swordfish" not in text.lower()
    expected = {
        name: identity[key] or ""
        for name, key in zip(MODEL, ("name", "version", "digest", "attn"), strict=True)
    }
    families = text_string_to_metric_families(text)
    found = [sample.labels for family in families for sample in family.samples]
    assert expected in found


def test_labels() -> None:
    model = ModelIdentity(
        name="n", version="7", alias=None, run_id=None, attn="prob", attn_weight=1, digest="d"
    )
    assert labels(model) == ("n", "7", "d", "prob")
    assert labels(None) == ("", "", "", "")
    assert Metrics().registry is not Metrics().registry
