"""Intervals that follow the values in a ledger."""

from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import UsageError
from forecaster.forecast import kept
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.recalibrated import recalibrate
from forecaster.record.ledger import Ledger, read
from tests.bundles import unsaved
from tests.service.toy import COLUMNS, make_bundle

quiet = Mock()


@pytest.fixture
def folder(tmp_path):
    """A ledger of twelve forecasts, and of values twice as far off as the band is wide."""
    make_bundle(tmp_path / "m")
    tell(tmp_path, range(12))
    return tmp_path


def tell(folder, days):
    model, ledger = Predictor.load(folder / "m", "cpu"), Ledger(folder / "l")
    history = model.example
    for day in days:
        own = history.assign(time=history["time"] + pd.Timedelta(days=day))
        model.predict(own, ledger=ledger)
    ledger.flush()
    rows = read(folder / "l", "forecasts")
    rows = rows[rows["origin"].isin(rows["origin"].unique()[-len(days) :])]
    came = rows[["series", "target", "time"]].assign(value=rows["forecast"] + 2 * rows["q0.9"],
                                                     seen=pd.Timestamp.now())  # fmt: skip
    ledger.add("actuals", came)
    ledger.flush()


def test_bands_become_wider_and_nothing_else_changes(folder):
    before = Predictor.load(folder / "m", "cpu")
    done = recalibrate(before.bundle, folder / "l", folder / "new", quiet)
    after = Predictor.load(folder / "new", "cpu")
    after.check()
    assert after.digest == done.digest != before.digest
    assert kept.trained(after.bundle) == before.digest
    widths = done.about["calibration"]["widths"]
    assert "widths follow the values until" in done.about["intervals"]
    old, new = (each.predict(each.example, levels=(0.1, 0.9)) for each in (before, after))
    for name in COLUMNS:
        np.testing.assert_array_equal(old[name], new[name])
        assert widths[name]["0.8"] > 0
        for level in (0.1, 0.9):
            now, was = (each[f"{name} {level}"] - each[name] for each in (new, old))
            np.testing.assert_allclose(now, np.exp(widths[name]["0.8"]) * was, rtol=1e-5)
    assert set(read(folder / "l", "calibrations")["digest"]) == {after.digest}


def test_the_same_ledger_gives_the_same_model_and_more_of_it_goes_on(folder):
    first = Predictor.load(folder / "m", "cpu").bundle
    one, two = (recalibrate(first, folder / "l", folder / n, quiet) for n in "ab")
    assert one.digest == two.digest
    said = []
    same = recalibrate(one, folder / "l", folder / "a", said.append)
    assert (same.digest, said) == (one.digest, ["the intervals stay as they are"])
    one.save(folder / "m")
    tell(folder, range(12, 20))
    more = recalibrate(one, folder / "l", folder / "m", quiet)
    for name in COLUMNS:
        grown = [each.about["calibration"]["widths"][name]["0.8"] for each in (one, more)]
        assert grown[1] > grown[0] > 0
        own, were = (each.intervals.offsets[:, COLUMNS.index(name)] for each in (more, first))
        np.testing.assert_allclose(own, np.exp(grown[1]) * were)
    assert more.about["intervals"].count("widths follow") == 1
    assert more.about["calibration"]["model"] == first.digest


def test_where_there_is_nothing_to_follow(tmp_path):
    (tmp_path / "l").mkdir()
    for bundle, words in (
        (make_bundle(tmp_path / "m"), "has no value of a step that this model forecast"),
        (unsaved(), "has no intervals"),
    ):
        with pytest.raises(UsageError, match=words):
            recalibrate(bundle, tmp_path / "l", tmp_path / "x", quiet)
    assert not (tmp_path / "x").exists()
