import pandas as pd

from forecaster.datasets.reader.files import frame_table
from forecaster.datasets.reader.kinds import kinds


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
    found = kinds(frame_table(frame, "time", "here"))
    assert [*found.values()] == [
        "number", "number", "number", "flag", "flag", "stamp", "stamp", "stamp", "stamp", "clock",
        "clock", "text", "empty", "other",
    ]  # fmt: skip
