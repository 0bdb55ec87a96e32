from contextlib import contextmanager

import numpy as np
import pytest

from forecaster.base.errors import StorageError
from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import read
from forecaster_service import keeping
from tests.service.processes import until
from tests.service.test_access import KEY, KEYS, OTHER, bearer
from tests.service.toy import COLUMNS, NAME, start


@contextmanager
def keeps(folder, ledger, **settings):
    """Anna's client of a service with a ledger, who may say what came."""
    settings = {"api_keys": KEYS, "actuals_keys": ("anna",), **settings}
    with start(model=str(folder), ledger=ledger, **settings) as client:
        client.headers = bearer(KEY)
        yield client


def example(client):
    return client.get(f"/models/{NAME}/example").json()


def ask(client, *keys):
    return [client.post("/predict", json=example(client), headers=bearer(key)) for key in keys]


def test_forecasts_are_kept_and_the_histories_of_those_who_may(folder, tmp_path):
    with keeps(folder, tmp_path / "l") as client:
        answer, _ = ask(client, KEY, OTHER)
    model = Predictor.load(folder, "cpu")
    kept, actual = read(tmp_path / "l", "forecasts"), read(tmp_path / "l", "actuals")
    targets, horizon = len(model.schema.targets), model.bundle.horizon
    assert len(kept) == 2 * horizon * targets
    assert set(kept["digest"]) == {model.digest}
    first = kept[: horizon * targets]
    told = np.array(answer.json()["predictions"][0]["mean"]).reshape(-1)
    np.testing.assert_allclose(first["forecast"], told, rtol=1e-6)
    assert (first["step"].to_numpy() == np.repeat(np.arange(1, horizon + 1), targets)).all()
    assert {f"q{level:g}" for level in model.levels} <= set(kept)
    assert (kept["q0.1"] <= kept["forecast"]).all()
    assert actual["time"].max() == kept["origin"].max()
    assert actual["time"].nunique() == min(horizon, model.bundle.past), "anna's alone"
    assert len(actual) == actual["time"].nunique() * targets


def test_without_such_a_key_or_a_ledger_nobody_says_what_came(folder, tmp_path):
    with keeps(folder, tmp_path / "l", actuals_keys=()) as client:
        ask(client, KEY, OTHER)
        refused = client.post("/actuals", json={"inputs": []})
        assert refused.status_code == 403
        assert "FORECASTER_ACTUALS_KEYS" in refused.json()["detail"]
    assert read(tmp_path / "l", "actuals").empty
    with start(model=str(folder)) as client:
        for answer in (client.get(f"/models/{NAME}/live"), client.post("/actuals", json={})):
            assert answer.status_code == 404
            assert "FORECASTER_LEDGER" in answer.json()["detail"]


def test_what_came_is_scored_and_shown(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "SECONDS", 0.1)
    with keeps(folder, tmp_path / "l", ledger_seconds=0.1) as client:
        assert client.get(f"/models/{NAME}/live").json()["looked"] is None
        told = client.post("/predict", json=example(client)).json()["predictions"][0]
        values = [[None if step == 5 else each + 2 for each in row]
                  for step, row in enumerate(told["mean"])]  # fmt: skip
        came = {key: told[key] for key in ("item_id", "start", "columns")} | {"target": values}
        said = client.post("/actuals", json={"inputs": [came], "model": NAME})
        assert (said.status_code, said.json()) == (202, {"values": 15})
        until(lambda: client.get(f"/models/{NAME}/live").json()["scored"] == 15)
        found = client.get(f"/models/{NAME}/live").json()
        assert (found["scored"], found["waiting"], found["test_scaled"]) == (15, 3, 0.4)
        assert found["periods"][-1]["mae"] == pytest.approx(2)
        assert found["periods"][-1]["bias"] == pytest.approx(-2)
        assert [each["target"] for each in found["by"]["target"]][-3:] == sorted(COLUMNS)
        assert len(list((tmp_path / "l/live").iterdir())) == 1
        lines = client.get("/metrics").text.splitlines()
        (line,) = (e for e in lines if e.startswith("forecaster_live_mae{") and '"all"' in e)
        assert float(line.split()[-1]) == pytest.approx(2)


def test_values_that_do_not_fit_or_have_no_room_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("forecaster.record.ledger.MOST_WAITING", 2)
    with keeps(folder, tmp_path / "l") as client:

        def say(**series):
            series = {"start": "2026-01-01", "target": [[1, 2, 3]], **series}
            return client.post("/actuals", json={"inputs": [series]})

        for series, where in (
            ({"start": "2026-01-01T00:00Z"}, "start"),
            ({"target": [[1, 2]]}, "target"),
            ({"target": [[1, 2, 3], [1, 2]]}, "target"),
            ({"target": [1], "columns": ["wnd"]}, "columns"),
            ({"target": [1], "future": 2}, "future"),
        ):
            said = say(**series)
            assert said.status_code == 422
            assert said.json()["errors"][0]["loc"] == ["inputs", 0, where]
        said = say()
        assert (said.status_code, said.headers["retry-after"]) == (503, "10")
    assert not (tmp_path / "l/actuals").exists()


def test_no_request_fails_where_nothing_can_be_kept(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(keeping, "SECONDS", 0.05)
    with keeps(folder, tmp_path / "file") as client:
        assert ask(client, KEY)[0].status_code == 200
        until(lambda: client.app.state.store.keeper.lost > 0)
        assert ask(client, KEY)[0].status_code == 200
        assert "forecaster_ledger_rows_lost_total 0.0" not in client.get("/metrics").text


def test_too_many_answers_at_once_are_counted_as_lost(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "MOST", 1)
    with keeps(folder, tmp_path / "l") as client:
        ask(client, KEY, OTHER)
    assert read(tmp_path / "l", "forecasts")["made"].nunique() == 1


def test_a_look_that_fails_is_tried_again_only_later(folder, tmp_path, monkeypatch):
    tried = list[str]()

    def fail(folder, model):
        tried.append(model.digest)
        raise StorageError("no room")

    monkeypatch.setattr(keeping, "_ask", fail)
    with keeps(folder, tmp_path / "l") as client:
        keeper = client.app.state.store.keeper
        keeper.look()
        assert not tried, "there is nothing to look at"
        ask(client, KEY)
        keeper.write()
        for _ in range(3):
            keeper.look()
        assert len(tried) == 1


def test_what_comes_during_a_look_is_looked_at_next(folder, tmp_path, monkeypatch):
    with keeps(folder, tmp_path / "l", ledger_seconds=1e-9) as client:
        keeper, looks = client.app.state.store.keeper, list[int]()

        def meanwhile(ledger, model):
            looks.append(len(read(ledger, "forecasts")))
            if len(looks) == 1:
                ask(client, KEY)
                keeper.write()  # as another process may
            return b"{}"

        monkeypatch.setattr(keeping, "_ask", meanwhile)
        ask(client, KEY)
        keeper.write()
        for _ in range(3):
            keeper.look()
        assert looks == [looks[0], 2 * looks[0]]
