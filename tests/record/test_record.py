import json
import zipfile
from typing import Any, get_args, get_type_hints

import pytest

from forecaster import record
from forecaster.record import BandScores, Document, Record
from tests.bundles import judged
from tests.equality.cases import KINDS, RECORDS

DOCUMENTS = [
    each for each in vars(record).values() if isinstance(each, type) and issubclass(each, Document)
]


@pytest.mark.parametrize("kind", KINDS)
def test_that_of_an_older_release_is_read_and_written_as_it_was(kind):
    with zipfile.ZipFile(RECORDS / "bundles" / kind / "bundle.zip") as packed:
        written = json.loads(packed.read("metrics.json"))
    later = {"origins": {}, "parameters": None, "contest": None, "cutoffs": None}
    written["test"] |= {"headline": "", "adds": {}}
    assert Record.read(written).to_dict() == later | written


def test_figures_stand_beside_the_fields():
    bands = {"80": {"coverage": 0.75, "columns": {"a": {"coverage": 0.7}}}, "95": None, "crps": 0.3}
    test = judged(mse=0.5, new=1.5, intervals=bands)
    assert (test["mse"], test["new"], test["unknown"]) == (0.5, 1.5, None)
    assert test.measured == {"mse": 0.5, "new": 1.5}
    assert test.intervals is not None
    assert test.intervals["crps"] == 0.3
    assert list(test.intervals.bands) == ["80"]
    assert isinstance(test.band("80"), BandScores)
    assert test.band("95") is test.band("50") is None
    assert (test.covered("80", "a"), test.covered("80", "b")) == (0.7, None)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([], "input should be"),
        ({"new": 1}, "new: extra inputs are not permitted"),
        ({"validation_mse": float("nan")}, "validation_mse: input should be a finite number"),
        ({"parts": {"ridge": {"weight": 1}}}, "parts.ridge.validation_mse: field required"),
    ],
)
def test_what_is_wrong_is_named(state, words):
    with pytest.raises(ValueError, match=words):
        Record.read(state)


def test_nothing_in_it_is_without_a_type():
    def kinds(found):
        return [found, *(inner for each in get_args(found) for inner in kinds(each))]

    assert len(DOCUMENTS) > 15
    for document in DOCUMENTS:
        hints = get_type_hints(document)
        for name in [*document.model_fields, "__pydantic_extra__"]:
            if document.model_config["extra"] == "allow" or name in document.model_fields:
                assert Any not in kinds(hints[name]), (document, name)
