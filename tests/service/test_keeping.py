from time import sleep

import numpy as np
import pytest

from forecaster.base.errors import StorageError
from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import read
from forecaster_service import keeping
from tests.service.processes import until
from tests.service.test_access import KEY, KEYS, OTHER, bearer
from tests.service.toy import COLUMNS, NAME, start


def ask(folder, ledger, **settings):
    """The answers to anna and bob, about one history."""
    with start(model=str(folder), ledger=ledger, api_keys=KEYS, **settings) as client:
        name = client.get("/models", headers=bearer(KEY)).json()["models"][0]["name"]
        example = client.get(f"/models/{name}/example", headers=bearer(KEY)).json()
        return [
            client.post("/predict", json=example, headers=bearer(key)).json()
            for key in (KEY, OTHER)
        ]


def test_forecasts_are_kept_and_the_histories_of_those_who_may(folder, tmp_path):
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


def test_without_such_a_key_nobody_says_what_came(folder, tmp_path):
    ask(folder, tmp_path / "l")
    assert read(tmp_path / "l", "actuals").empty
    with start(model=str(folder), ledger=tmp_path / "l", api_keys=KEYS) as client:
        refused = client.post("/actuals", json={"inputs": []}, headers=bearer(KEY))
        assert refused.status_code == 403
        assert "FORECASTER_ACTUALS_KEYS" in refused.json()["detail"]
    assert read(tmp_path / "l", "actuals").empty


def test_without_a_ledger_there_is_nothing_to_look_at(folder):
    with start(model=str(folder)) as client:
        for answer in (client.get(f"/models/{NAME}/live"), client.post("/actuals", json={})):
            assert answer.status_code == 404
            assert "FORECASTER_LEDGER" in answer.json()["detail"]
        assert "forecaster_live" not in client.get("/metrics").text


def test_what_came_is_scored_and_shown(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "SECONDS", 0.1)
    settings = {"api_keys": KEYS, "actuals_keys": ("anna",), "ledger_seconds": 0.1}
    with start(model=str(folder), ledger=tmp_path / "l", **settings) as client:
        client.headers = bearer(KEY)
        assert client.get(f"/models/{NAME}/live").json()["looked"] is None
        example = client.get(f"/models/{NAME}/example").json()
        told = client.post("/predict", json=example).json()["predictions"][0]
        values = [[None if step == 5 else each + 2 for each in row]
                  for step, row in enumerate(told["mean"])]  # fmt: skip
        came = {
            "item_id": told["item_id"],
            "start": told["start"],
            "columns": [*COLUMNS],
            "target": values,
        }
        said = client.post("/actuals", json={"inputs": [came], "model": NAME})
        assert (said.status_code, said.json()) == (202, {"values": 15})
        found = {"scored": 0}
        for _ in range(200):
            found = client.get(f"/models/{NAME}/live").json()
            if found["scored"] == 15:
                break
            sleep(0.1)
        assert (found["scored"], found["waiting"], found["test_scaled"]) == (15, 3, 0.4)
        assert found["periods"][-1]["mae"] == pytest.approx(2)
        assert found["periods"][-1]["bias"] == pytest.approx(-2)
        assert [each["target"] for each in found["by"]["target"]][-3:] == sorted(COLUMNS)
        assert len(list((tmp_path / "l/live").iterdir())) == 1
        lines = client.get("/metrics").text.splitlines()
        (line,) = (e for e in lines if e.startswith("forecaster_live_mae{") and '"all"' in e)
        assert float(line.split()[-1]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("series", "where"),
    [
        ({"start": "2026-01-01T00:00Z", "target": [[1, 2, 3]]}, ["inputs", 0, "start"]),
        ({"start": "2026-01-01", "target": [[1, 2]]}, ["inputs", 0, "target"]),
        ({"start": "2026-01-01", "target": [[1, 2, 3], [1, 2]]}, ["inputs", 0, "target"]),
        ({"start": "2026-01-01", "target": [1], "columns": ["wnd"]}, ["inputs", 0, "columns"]),
        ({"start": "2026-01-01", "target": [1], "future": 2}, ["inputs", 0, "future"]),
    ],
)
def test_values_that_do_not_fit_are_refused(folder, tmp_path, series, where):
    with start(model=str(folder), ledger=tmp_path / "l", api_keys=KEYS,
               actuals_keys=("anna",)) as client:  # fmt: skip
        said = client.post("/actuals", json={"inputs": [series]}, headers=bearer(KEY))
    assert said.status_code == 422
    assert said.json()["errors"][0]["loc"] == where
    assert not (tmp_path / "l/actuals").exists()


def test_no_request_fails_where_nothing_can_be_kept(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(keeping, "SECONDS", 0.05)
    with start(model=str(folder), ledger=tmp_path / "file") as client:
        name = client.get("/models").json()["models"][0]["name"]
        example = client.get(f"/models/{name}/example").json()
        assert client.post("/predict", json=example).status_code == 200
        keeper = client.app.state.store.keeper
        until(lambda: keeper.lost > 0)
        assert client.post("/predict", json=example).status_code == 200
        text = client.get("/metrics").text
    assert "forecaster_ledger_rows_lost_total 0.0" not in text


def test_too_many_answers_at_once_are_counted_as_lost(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "MOST", 1)
    ask(folder, tmp_path / "l")
    kept = read(tmp_path / "l", "forecasts")
    assert kept["made"].nunique() == 1


def test_values_without_room_are_refused_to_be_sent_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("forecaster.record.ledger.MOST_WAITING", 2)
    settings = {"api_keys": KEYS, "actuals_keys": ("anna",)}
    with start(model=str(folder), ledger=tmp_path / "l", **settings) as client:
        came = {"inputs": [{"start": "2026-01-01", "target": [[1, 2, 3]]}]}
        said = client.post("/actuals", json=came, headers=bearer(KEY))
    assert said.status_code == 503
    assert int(said.headers["retry-after"]) == 10


def test_a_look_that_fails_is_tried_again_only_later(folder, tmp_path, monkeypatch):
    tried = []

    def fail(folder, model):
        tried.append(model.digest)
        raise StorageError("no room")

    monkeypatch.setattr(keeping, "_ask", fail)
    with start(model=str(folder), ledger=tmp_path / "l") as client:
        keeper = client.app.state.store.keeper
        keeper.look()
        assert not tried, "there is nothing to look at"
        example = client.get(f"/models/{NAME}/example").json()
        client.post("/predict", json=example)
        keeper.write()
        for _ in range(3):
            keeper.look()
        assert len(tried) == 1


def test_what_comes_during_a_look_is_looked_at_next(folder, tmp_path, monkeypatch):
    with start(model=str(folder), ledger=tmp_path / "l", ledger_seconds=1e-9) as client:
        keeper = client.app.state.store.keeper
        example = client.get(f"/models/{NAME}/example").json()
        looks = []

        def meanwhile(ledger, model):
            looks.append(len(read(ledger, "forecasts")))
            if len(looks) == 1:
                client.post("/predict", json=example)
                keeper.write()  # as another process may
            return b"{}"

        monkeypatch.setattr(keeping, "_ask", meanwhile)
        client.post("/predict", json=example)
        keeper.write()
        for _ in range(3):
            keeper.look()
        assert looks == [looks[0], 2 * looks[0]]
