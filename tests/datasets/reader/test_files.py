import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UnavailableError
from forecaster.base.installation import SUFFIXES, names_a_file
from forecaster.datasets.reader import FILE, history, read, read_frame
from forecaster.datasets.reader.files import Rows, frame_table, open_table
from forecaster.datasets.reading import Reading

TABLE = pd.DataFrame(
    {
        "t": pd.date_range("2020-01-01", periods=60, freq="h"),
        "a": np.arange(60) / 7,
        "b": np.arange(60) * 3,
    }
)


def test_a_table_is_read_again_and_again_and_numbers_its_rows(tmp_path, monkeypatch):
    for name, rows in (("a.csv", 5), ("b.csv", 3)):
        pd.DataFrame({"x": range(rows), "y": "w"}).to_csv(tmp_path / name, index=False)
    (tmp_path / "notes.txt").write_text("not a table")
    monkeypatch.setattr("forecaster.datasets.reader.formats.BLOCK", 10)
    table = open_table(str(tmp_path))
    for _ in range(2):
        read = [(r.file, r.before, r.cells["x"].to_pylist()) for r in table.rows(["x"])]
        numbers = [(file, before + i, x) for file, before, xs in read for i, x in enumerate(xs)]
        assert numbers == [(file, i, str(i)) for file in (0, 1) for i in range((5, 3)[file])]
    assert len(read) > 2
    assert table.row(Rows(1, 0, None), 2) == f"{tmp_path / 'b.csv'}, row 3"


class TestColumns:
    def test_names_with_blanks_around_them(self, tmp_path):
        file = tmp_path / "x.csv"
        TABLE.to_csv(file, index=False, header=["t", " a", "b "])
        own = read(str(file), Reading(targets=("a",)))
        facts = Reading(time="t", targets=("a",), freq="h", timezone="naive")
        for blanks in (["t", "a", "b"], [" t", " a ", "b"]):
            frame = TABLE.set_axis(blanks, axis=1)
            assert history(frame, facts).series.columns == own.series.columns == ("a",)
        TABLE.to_csv(file, index=False, header=["t", "a", " a"])
        with pytest.raises(DataError, match="column 'a' appears twice"):
            read(str(file))
        with pytest.raises(DataError, match="here: column 'a' appears twice"):
            _ = frame_table(TABLE.set_axis(["t", "a", "a"], axis=1), "t", "here").columns

    @pytest.mark.parametrize("names", [("t,a", "u,b"), ("t,a", "t,b"), ("t,a", "t,a,b")])
    def test_files_of_other_columns_are_refused(self, tmp_path, names):
        for number, header in enumerate(names):
            row = ",".join(["2020-01-01", *"12"][: header.count(",") + 1])
            (tmp_path / f"{number}.csv").write_text(f"{header}\n{row}\n")
        with pytest.raises(DataError, match=r"1\.csv has other columns than .*0\.csv"):
            read(str(tmp_path))


class TestFolder:
    @pytest.mark.parametrize(
        ("pattern", "names", "read"),
        [
            ("", ["a.csv", "b.txt", "c.xlsx", ".d.csv", "_e.csv"], ["a.csv"]),
            ("", ["a.md", "b.TXT", "c.xlsx"], ["b.TXT", "c.xlsx"]),
            ("", ["10.csv", "1b.csv", "1.csv", "01.csv"], ["01.csv", "1.csv", "1b.csv", "10.csv"]),
            ("p*.csv", ["p10.csv", "p2.csv", "p01.csv", "x.csv"], ["p01.csv", "p2.csv", "p10.csv"]),
        ],
    )
    def test_which_files_are_read_and_in_which_order(self, tmp_path, pattern, names, read):
        for name in names:
            (tmp_path / name).write_text("t,a\n2020-01-01,1\n")
        parts = open_table(str(tmp_path / pattern)).parts
        assert [part.name for part in parts] == [str(tmp_path / name) for name in read]

    def test_names_of_files(self, tmp_path, monkeypatch):
        assert all(names_a_file(f"sales{suffix.upper()}") for suffix in SUFFIXES)
        monkeypatch.chdir(tmp_path)
        assert not names_a_file("sales.dat")
        (tmp_path / "sales.dat").touch()
        assert names_a_file("sales.dat")

    def test_the_files_of_folders_are_read_by_a_pattern(self, tmp_path):
        for number, rows in TABLE.groupby(np.arange(len(TABLE)) // 6):
            folder = tmp_path / f"day={rows['t'].iloc[0].day}" / f"part={number}"
            folder.mkdir(parents=True)
            rows.to_csv(folder / "x.csv", index=False)
        with pytest.raises(UnavailableError, match=r"holds no data file; .* by a pattern"):
            read(str(tmp_path))
        for nothing in ("none.csv", "*.csv"):
            with pytest.raises(UnavailableError):
                read(str(tmp_path / nothing))
        own = read(f"{tmp_path}/*/*/*.csv")
        assert own.series.digest == read_frame(TABLE, where="it").series.digest

    @pytest.mark.parametrize(
        "names", [("a.1.csv", "a.2.csv"), ("a.csv", "a.parquet"), ("x=1/a.csv", "x=2/a.csv")]
    )
    def test_two_series_never_have_one_name(self, tmp_path, names):
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            to = TABLE.to_parquet if name.endswith("parquet") else TABLE.to_csv
            to(tmp_path / name, index=False)
        place = tmp_path / "*" / "*.csv" if "/" in names[0] else tmp_path
        items = read(str(place), Reading(id=(FILE,))).series.items
        assert items.names == names
