import pytest

from forecaster.base.errors import DataError
from forecaster.record import Record
from forecaster.record.ledger import Ledger
from forecaster.record.look import Promise, look
from tests.bundles import judged
from tests.record.test_live import actuals, forecasts

PROMISE = Promise("sha256:a", 40, 0.4, 0.5)


@pytest.fixture
def folder(tmp_path):
    """A forecast of 40 days, made twice and by two models, with the values of 37 days."""
    ledger = Ledger(tmp_path / "l")
    for rows in (forecasts(), forecasts(), forecasts(model="sha256:b", forecast=99.0)):
        ledger.add("forecasts", rows)
        ledger.flush()
    ledger.add("actuals", actuals()[:-3])
    ledger.flush()
    return tmp_path / "l"


def test_a_look_is_at_one_model(folder):
    found = look(folder, PROMISE)
    assert (len(found.rows), found.waiting, found.alarmed) == (37, 3, False)
    told = found.to_dict("step")
    assert told["test_scaled"] == 0.4
    assert {row["mae"] for row in told["periods"]} == {1.0}
    assert look(folder, Promise("sha256:c", 40)).waiting == 0
    with pytest.raises(DataError, match="is not there"):
        look(folder / "other", PROMISE)


def test_a_model_is_held_to_its_test_split():
    assert Promise.of(Record(), "sha256:a", 6, 24) == Promise("sha256:a", 6)
    assert Promise.of(Record(), "sha256:a", 72, 24) == Promise("sha256:a", 24)
    floors = {"last value": {"mse": 0.9, "mae": 0.8, "skill": 0.4}}
    test = judged(mse=0.5, mae=0.4, windows=9, floors=floors, best_floor="last value", verdict="")
    assert Promise.of(Record(test=test), "sha256:a", 6, 1) == Promise("sha256:a", 6, 0.4, 0.5)
