import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader import read_frame
from forecaster.datasets.reader.files import frame_table
from forecaster.datasets.reader.roles import Roles
from forecaster.datasets.reading import Reading

FRAME = pd.DataFrame(
    {
        "shop": ["a", "a", "b", "b"],
        "day": ["2024-01-01", "2024-01-02"] * 2,
        "sold": [1, 2, 3, 4],
        "note": ["x", "y", "x", "y"],
    }
)


def find(reading):
    said = []
    return Roles(frame_table(FRAME, "day", "here"), said).find(reading), said


def test_what_is_not_said_is_found_and_said():
    found, said = find(Reading(id=("shop",)))
    assert (found.time, found.id, found.targets) == ("day", ("shop",), ("sold",))
    assert said[0] == "The time is column 'day'."
    told = Reading(time="day", targets=("sold",), timezone="naive")
    assert find(told) == (told, []), "a model tells all"


def test_a_column_that_does_not_exist_is_guessed():
    for said, words in (
        (Reading(targets=("solt",)), "column 'solt' not found. Did you mean 'sold'? "),
        (Reading(time="dai"), "Did you mean 'day'?"),
        (Reading(targets=("sold",), future_covariates=("nots",)), "Did you mean 'note'?"),
        (Reading(targets=("zzzz",)), "column 'zzzz' not found. Expected "),
    ):
        with pytest.raises(DataError) as error:
            find(said)
        assert words in str(error.value)


def test_the_kinds_of_columns():
    frame = pd.DataFrame(
        {
            "number": ["1", "2", "x"],
            "real": [1.5, None, 2],
            "price": ["1.234,5 €", "-", "7"],
            "flag": ["true", "FALSE", None],
            "yes": [True, False, True],
            "stamp": ["2020-01-01", "2020-1-2", "soon"],
            "day": ["13.1.2020", "14.1.2020", None],
            "time": pd.date_range("2020", periods=3),
            "quarter": ["1998 Q1", "1998 Q2", None],
            "clock": ["05:00", "6:00 PM", None],
            "half": ["05:00", "noon", None],
            "text": ["a", "b", "1"],
            "empty": ["", "NA", None],
            "other": [[1], [2], [3]],
        }
    )
    found = Roles(frame_table(frame, "time", "here"), []).kinds
    assert [*found.values()] == [
        "number", "number", "number", "flag", "flag", "stamp", "stamp", "stamp", "stamp", "clock",
        "clock", "text", "empty", "other",
    ]  # fmt: skip


def test_an_id_is_found_in_a_frame_of_many_pieces_but_no_number_of_the_row():
    days = pd.date_range("2026-01-01", periods=4)
    parts = [pd.DataFrame({"shop": shop, "when": days, "y": range(4)}) for shop in "abc"]
    assert read_frame(pd.concat(parts), where="it").reading.id == ("shop",)
    table = frame_table(FRAME[:2].assign(id=[1, 2])[["id", "day", "sold"]], "day", "here")
    assert Roles(table, []).find(Reading()).id == ()
