from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import read
from forecaster_service import keeping
from tests.service.test_access import KEY, KEYS, OTHER, bearer
from tests.service.toy import start


def ask(folder: Path, ledger: Path, **settings: Any) -> list[dict[str, Any]]:
    """The answers to anna and bob, about one history."""
    with start(model=str(folder), ledger=ledger, api_keys=KEYS, **settings) as client:
        name = client.get("/models", headers=bearer(KEY)).json()["models"][0]["name"]
        example = client.get(f"/models/{name}/example", headers=bearer(KEY)).json()
        return [
            client.post("/predict", json=example, headers=bearer(key)).json()
            for key in (KEY, OTHER)
        ]


def test_forecasts_are_kept_and_the_histories_of_those_who_may(
    folder: Path, tmp_path: Path
) -> None:
    answers = ask(folder, tmp_path / "l", actuals_keys=("anna",))
    model = Predictor.load(folder, "cpu")
    kept, actual = read(tmp_path / "l", "forecasts"), read(tmp_path / "l", "actuals")
    targets, horizon = len(model.schema.targets), model.bundle.horizon
    assert len(kept) == 2 * horizon * targets
    assert set(kept["digest"]) == {model.digest}
    first = kept[: horizon * targets]
    told = np.array(answers[0]["predictions"][0]["mean"]).reshape(-1)
    np.testing.assert_allclose(first["forecast"], told, rtol=1e-6)
    assert (first["step"].to_numpy() == np.repeat(np.arange(1, horizon + 1), targets)).all()
    assert {f"q{level:g}" for level in model.levels} <= set(kept)
    assert (kept["q0.1"] <= kept["forecast"]).all()
    assert actual["time"].nunique() == min(horizon, model.bundle.past), "anna's alone"
    assert actual["time"].max() == kept["origin"].max()
    assert len(actual) == actual["time"].nunique() * targets


def test_without_such_a_key_nobody_says_what_came(folder: Path, tmp_path: Path) -> None:
    ask(folder, tmp_path / "l")
    assert read(tmp_path / "l", "actuals").empty


def test_no_request_fails_where_nothing_can_be_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(keeping, "SECONDS", 0.05)
    with start(model=str(folder), ledger=tmp_path / "file") as client:
        name = client.get("/models").json()["models"][0]["name"]
        example = client.get(f"/models/{name}/example").json()
        assert client.post("/predict", json=example).status_code == 200
        keeper = client.app.state.store.keeper  # type: ignore[attr-defined]
        keeper.write()
        assert keeper.lost > 0
        assert client.post("/predict", json=example).status_code == 200
        text = client.get("/metrics").text
    assert "forecaster_ledger_rows_lost_total 0.0" not in text


def test_too_many_answers_at_once_are_counted_as_lost(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MOST", 1)
    ask(folder, tmp_path / "l")
    kept = read(tmp_path / "l", "forecasts")
    assert kept["made"].nunique() == 1
