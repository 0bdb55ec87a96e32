import pytest

from forecaster.record import BandScores, Record
from tests.bundles import judged


def test_figures_stand_beside_the_fields():
    bands = {"80": {"coverage": 0.75, "columns": {"a": {"coverage": 0.7}}}, "95": None, "crps": 0.3}
    test = judged(mse=0.5, new=1.5, intervals=bands)
    assert (test["mse"], test["new"], test["unknown"]) == (0.5, 1.5, None)
    assert test.measured == {"mse": 0.5, "new": 1.5}
    assert (test.intervals["crps"], list(test.intervals.bands)) == (0.3, ["80"])
    assert isinstance(test.band("80"), BandScores)
    assert test.band("95") is test.band("50") is None
    assert (test.covered("80", "a"), test.covered("80", "b")) == (0.7, None)


def test_what_is_wrong_is_named():
    for state, words in (
        ([], "input should be"),
        ({"new": 1}, "new: extra inputs are not permitted"),
        ({"validation_mse": float("nan")}, "validation_mse: input should be a finite number"),
        ({"parts": {"ridge": {"weight": 1}}}, "parts.ridge.validation_mse: field required"),
    ):
        with pytest.raises(ValueError, match=words):
            Record.read(state)
