import pandas as pd
import pytest

from forecaster.datasets.reader.clock import find_clock
from forecaster.datasets.reader.files import frame_table


@pytest.mark.parametrize(
    "column",
    [
        pd.date_range("2020", periods=3, freq="h"),
        pd.date_range("2020", periods=3, freq="h").as_unit("ns"),
        pd.date_range("2020", periods=3, freq="h").astype(str),
        pd.date_range("2020", periods=3, freq="h").astype(object),
        ["2020-1-1", "2020/01/01 01:00", "2020-01-01T02"],
        ["01.01.2020 0:00:00", "01.01.2020 1:00:00", "13.01.2020 2:00:00"],
        ["1/1/2020", "1/1/2020 01:00", "1/13/2020 02:00"],
        pd.date_range("2020", periods=3, freq="h", tz="UTC").tz_convert("Asia/Tokyo"),
        ["2020-01-01T00:00Z", "2020-01-01T00:00-01:00", "2020-01-01T00:00-02:00"],
    ],
)
def test_stamps_of_many_kinds(column):
    table = frame_table(pd.DataFrame({"t": column}), "t", "here")
    clock = find_clock(table, "t")
    (rows,) = table.rows(["t"])
    hours = clock.read(rows, table) // 3_600_000_000
    assert (hours - hours[0]).tolist()[:2] == [0, 1]
    assert str(pd.Timestamp(int(hours[0]), unit="h")) == "2020-01-01 00:00:00"
    zoned = getattr(column, "tz", None) is not None or str(column[0]).endswith("Z")
    assert clock.zoned == zoned
