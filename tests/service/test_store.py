import subprocess
import sys
from pathlib import Path

import pytest

from forecaster.errors import UnavailableError
from forecaster.predict import Forecaster
from service.problems import Problem
from service.settings import Settings
from service.store import Store
from tests.service.toy import NAME

ASK = """
import sys
from tests.service.toy import NAME, start
with start(model=sys.argv[1]) as client:
    body = client.get(f"/models/{NAME}/example").json()
    assert client.post("/predict", json=body).status_code == 200
roots = {name.partition(".")[0] for name in sys.modules}
ours = {"forecaster.train", "forecaster.experiment", "forecaster.evaluate", "forecaster.track"}
print(sorted(roots & {"lightning", "pytorch_lightning", "mlflow"}), sorted(ours & set(sys.modules)))
"""


def test_answering_imports_neither_lightning_nor_mlflow(folder: Path) -> None:
    command = [sys.executable, "-c", ASK, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_an_unforeseen_failure_is_told_by_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("swordfish")

    monkeypatch.setattr(Forecaster, "load", fail)
    store = Store(Settings(model="x"))
    store.load()
    assert store.status == "failed"
    assert "swordfish" not in store.reason
    assert "swordfish" in capsys.readouterr().err


def test_a_model_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise UnavailableError("the registry at /secret is away")

    monkeypatch.setattr(Forecaster, "load", fail)
    store = Store(Settings(model="x"))
    store.load()
    with pytest.raises(Problem) as caught:
        store.get(None)
    assert caught.value.status_code == 503
    assert "could not be found" in caught.value.detail
    assert "/secret" not in caught.value.detail


def test_a_model_that_cannot_forecast_is_not_ready(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise UnavailableError("no forecast")

    monkeypatch.setattr(Forecaster, "forecast", fail)
    store = Store(Settings(model=str(folder)))
    store.load()
    assert (store.status, store.served) == ("failed", None)


def test_names(folder: Path) -> None:
    store = Store(Settings(model=str(folder)))
    store.load()
    assert store.get(None) is store.get(NAME)
    with pytest.raises(Problem, match=NAME):
        store.get("champion")
    store.close()
