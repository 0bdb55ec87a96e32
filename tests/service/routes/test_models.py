from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from forecaster.predict import Forecaster
from tests.service.toy import COLUMNS, HORIZON, NAME, PAST, make_bundle, start


def test_card_tells_what_a_client_needs(client: TestClient, folder: Path) -> None:
    (card,) = client.get("/models").json()["models"]
    assert card == {
        "name": NAME,
        "version": None,
        "alias": None,
        "run_id": "0" * 32,
        "attn": "prob",
        "digest": Forecaster.load(folder).bundle.digest,
        "effective": "sparse",
        "device": "cpu",
        "columns": list(COLUMNS),
        "targets": list(COLUMNS),
        "freq": "h",
        "timezone": "naive",
        "look_back": PAST,
        "horizon": HORIZON,
        "forecast": "mean",
        "quantile_levels": [0.1, 0.5, 0.9],
        "intervals": "made up",
        "test": {"mse": 0.5, "mae": 0.4, "windows": 10},
        "refit": False,
    }


@pytest.mark.parametrize("timezone", ["naive", "UTC"])
@pytest.mark.parametrize("freq", ["h", "15min", "W-MON", "MS"])
def test_example_can_be_posted(tmp_path: Path, freq: str, timezone: str) -> None:
    make_bundle(tmp_path, ("load", "wind"), freq, timezone)
    with start(model=str(tmp_path)) as client:
        example = client.get(f"/models/{NAME}/example")
        answer = client.post(
            "/predict", content=example.content, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["predictions"][0]["mean"]) == HORIZON
    assert answer.json()["warnings"] == []


@pytest.mark.parametrize(
    "name", ["other", "..", "%2e%2e", "../../etc/passwd", "file:%2f%2f", "a%00b", "%23"]
)
def test_other_names_are_404(client: TestClient, name: str) -> None:
    answer = client.get(f"/models/{name}/example")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
