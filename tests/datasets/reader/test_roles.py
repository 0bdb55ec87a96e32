import pandas as pd
import pytest

from forecaster.base.errors import UsageError
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


def find(reading, told=False):
    said: list[str] = []
    return Roles(frame_table(FRAME, "day", "here"), None, said).find(reading, told), said


def test_what_is_not_said_is_found_and_said():
    found, said = find(Reading(id=("shop",)))
    assert (found.time, found.id, found.targets) == ("day", ("shop",), ("sold",))
    assert said[0] == "The time is column 'day'."


def test_a_model_tells_all_so_nothing_is_looked_for():
    told = Reading(time="day", targets=("sold",))
    assert find(told, told=True) == (told, [])


def test_a_column_has_one_role():
    with pytest.raises(UsageError, match="column 'sold' is given two roles"):
        find(Reading(targets=("sold",), past_covariates=("sold",)))


def test_blanks_around_a_name_need_not_be_typed():
    table = frame_table(FRAME.rename(columns={"sold": " sold", "shop": "shop "}), "day", "here")
    found = Roles(table, None, []).find(Reading(id=("shop",), targets=("sold",)), told=False)
    assert (found.id, found.targets) == (("shop",), ("sold",))
