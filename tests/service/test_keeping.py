from contextlib import contextmanager

import numpy as np

from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import read
from forecaster_service import store as module
from tests.service.processes import until
from tests.service.test_access import KEY, KEYS, OTHER, bearer
from tests.service.toy import NAME, start


@contextmanager
def keeps(folder, ledger, **settings):
    """Anna's client of a service with a ledger, whose histories are kept."""
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
    assert set(kept["model"]) == {model.digest}
    first = kept[: horizon * targets]
    told = np.array(answer.json()["predictions"][0]["mean"]).reshape(-1)
    np.testing.assert_allclose(first["forecast"], told, rtol=1e-6)
    assert (first["step"].to_numpy() == np.repeat(np.arange(1, horizon + 1), targets)).all()
    assert {f"q{level:g}" for level in model.levels} <= set(kept)
    assert (kept["q0.1"] <= kept["forecast"]).all()
    assert actual["time"].max() == kept["origin"].max()
    assert actual["time"].nunique() == min(horizon, model.bundle.past), "anna's alone"
    assert len(actual) == actual["time"].nunique() * targets


def test_a_table_has_no_quantile_that_was_not_asked(folder, tmp_path):
    """The ledger gets those of all levels."""
    with keeps(folder, tmp_path / "l") as client:
        answer = client.post("/predict", json=example(client), headers={"Accept": "text/csv"})
        targets = client.get("/models").json()["models"][0]["targets"]
    header, *rows = (line.split(",") for line in answer.text.splitlines())
    assert header[2:] == targets
    assert {len(row) for row in rows} == {len(header)}


def test_without_such_a_key_no_history_is_kept(folder, tmp_path):
    with keeps(folder, tmp_path / "l", actuals_keys=()) as client:
        ask(client, KEY, OTHER)
    assert read(tmp_path / "l", "actuals").empty


def test_no_request_fails_where_nothing_can_be_kept(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "KEEPING_SECONDS", 0.05)
    with keeps(folder, tmp_path / "file") as client:
        assert ask(client, KEY)[0].status_code == 200
        until(lambda: client.app.state.store.keeper.lost > 0)
        assert ask(client, KEY)[0].status_code == 200
        assert "forecaster_ledger_rows_lost_total 0.0" not in client.get("/metrics").text


def test_too_many_answers_at_once_are_counted_as_lost(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 1)
    with keeps(folder, tmp_path / "l") as client:
        ask(client, KEY, OTHER)
    assert read(tmp_path / "l", "forecasts")["made"].nunique() == 1
