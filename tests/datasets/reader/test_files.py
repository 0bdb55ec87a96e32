import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UnavailableError
from forecaster.base.installation import SUFFIXES, names_a_file
from forecaster.datasets.reader import FILE, history, read
from forecaster.datasets.reader.files import data_files, frame_table, open_table
from forecaster.datasets.reading import Reading

TABLE = pd.DataFrame(
    {
        "t": pd.date_range("2020-01-01", periods=60, freq="h"),
        "a": np.arange(60) / 7,
        "b": np.arange(60) * 3,
    }
)


@pytest.fixture
def plain(tmp_path_factory):
    file = tmp_path_factory.mktemp("plain") / "sales.csv"
    TABLE.to_csv(file, index=False)
    return read(str(file))


def packed(file, members):
    """Write a zip file of tables, bytes and texts."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            if isinstance(content, pd.DataFrame):
                buffer = io.BytesIO()
                if name.endswith(".parquet"):
                    content.to_parquet(buffer, index=False)
                else:
                    content.to_csv(buffer, index=False)
                content = buffer.getvalue()
            archive.writestr(name, content)
    return str(file)


def test_a_table_is_read_again_and_again_and_numbers_its_rows(tmp_path, monkeypatch):
    for name, rows in (("a.csv", 5), ("b.csv", 3)):
        pd.DataFrame({"x": range(rows), "y": "w"}).to_csv(tmp_path / name, index=False)
    (tmp_path / "notes.txt").write_text("not a table")
    monkeypatch.setattr("forecaster.datasets.reader.formats.BLOCK", 10)
    table = open_table(str(tmp_path))
    for _ in range(2):
        read = [(r.file, r.before, r.cells["x"].to_pylist()) for r in table.rows(["x"])]
        numbers = [(file, before + i, x) for file, before, xs in read for i, x in enumerate(xs)]
        assert numbers == [
            *((0, i, str(i)) for i in range(5)),
            *((1, i, str(i)) for i in range(3)),
        ]
    assert len(read) > 2
    assert table.row(1, 2) == f"{tmp_path / 'b.csv'}, row 3"


def test_a_frame_names_what_it_cannot_give():
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match="here: column 'a' appears twice"):
        frame_table(frame, "t", "here")


class TestNames:
    def test_names_with_blanks_around_them(self, tmp_path):
        TABLE.to_csv(tmp_path / "x.csv", index=False, header=["t", " a", "b "])
        file = str(tmp_path / "x.csv")
        assert read(file).columns == ("a", "b")
        own = read(file, Reading(targets=("a",)))
        facts = Reading(time="t", targets=("a",), freq="h", timezone="naive")
        for blanks in (["t", "a", "b"], [" t", " a ", "b"]):
            frame = TABLE.set_axis(blanks, axis=1)
            assert history(frame, facts).columns == own.columns == ("a",)

    def test_names_differ_by_more_than_blanks(self, tmp_path):
        TABLE.to_csv(tmp_path / "x.csv", index=False, header=["t", "a", " a"])
        with pytest.raises(DataError, match="two columns have one name, but for blanks"):
            read(str(tmp_path / "x.csv"))


class TestFolder:
    def test_files_that_may_be_no_tables_do_not_count_beside_tables(self):
        assert data_files(["a.csv", "b.txt", "c.xlsx", ".d.csv", "_e.csv"]) == ["a.csv"]
        assert data_files(["a.md", "b.TXT", "c.xlsx"]) == ["b.TXT", "c.xlsx"]

    def test_names_of_files(self, tmp_path, monkeypatch):
        for suffix in SUFFIXES:
            assert names_a_file(f"sales{suffix}")
            assert names_a_file(f"sales{suffix.upper()}")
        assert not names_a_file("ETTh1")
        monkeypatch.chdir(tmp_path)
        assert not names_a_file("sales.dat")
        (tmp_path / "sales.dat").touch()
        assert names_a_file("sales.dat")

    @pytest.mark.parametrize("pattern", ["", "part*.csv"])
    def test_the_tenth_comes_after_the_ninth(self, tmp_path, pattern):
        numbers = ("01", "1", "1b", "2", "10")
        for number in reversed(numbers):
            TABLE.to_csv(tmp_path / f"part{number}.csv", index=False)
        names = [part.name for part in open_table(str(tmp_path / pattern)).parts]
        assert names == [str(tmp_path / f"part{number}.csv") for number in numbers]

    def test_a_folder_without_data_says_what_is_wanted(self, tmp_path):
        (tmp_path / "year").mkdir()
        with pytest.raises(UnavailableError, match=r"holds no data file; .*\.xlsx.* by a pattern"):
            read(str(tmp_path))

    def test_the_files_of_folders_are_read_by_a_pattern(self, tmp_path, plain):
        for number, rows in TABLE.groupby(np.arange(len(TABLE)) // 6):
            folder = tmp_path / f"day={rows['t'].iloc[0].day}" / f"part={number}"
            folder.mkdir(parents=True)
            rows.to_csv(folder / "x.csv", index=False)
        own = read(f"{tmp_path}/*/*/*.csv")
        assert own.series.digest == plain.series.digest
        assert "10 files with consecutive times: parts of one series." in own.said


class TestColumns:
    @pytest.mark.parametrize("names", [("t,a", "u,b"), ("t,a", "t,b"), ("t,a", "t,a,b")])
    def test_others_are_refused(self, tmp_path, names):
        for number, header in enumerate(names):
            row = ",".join(["2020-01-01", *"12"][: header.count(",") + 1])
            (tmp_path / f"{number}.csv").write_text(f"{header}\n{row}\n")
        with pytest.raises(DataError, match=r"1\.csv has other columns than .*0\.csv"):
            read(str(tmp_path))


class TestZip:
    @pytest.mark.parametrize("name", ["sales.csv", "data/sales.csv", "sales.parquet"])
    def test_one_file(self, tmp_path, plain, name):
        members = {name: TABLE, "__MACOSX/._sales.csv": "x", "readme.md": "x", "notes.txt": "x"}
        file = packed(tmp_path / "sales.zip", members)
        assert read(file).series.digest == plain.series.digest

    def test_a_packed_file_in_it(self, tmp_path, plain):
        text = gzip.compress(TABLE.to_csv(index=False).encode())
        file = packed(tmp_path / "sales.zip", {"sales.csv.gz": text})
        assert read(file).series.digest == plain.series.digest

    def test_several_are_like_a_folder(self, tmp_path):
        file = packed(tmp_path / "x.zip", {"m/two.csv": TABLE, "m/one.csv": TABLE})
        own = read(file)
        assert own.series.items is not None
        assert own.series.items.names == ("one", "two")
        text = TABLE.to_csv(index=False).replace("\n2020-01-01 01:00:00,", "\nx,")
        with pytest.raises(DataError, match=r"x\.zip/m/two\.csv, row 2, column 't'"):
            read(packed(tmp_path / "x.zip", {"m/one.csv": TABLE, "m/two.csv": text}))

    def test_what_is_wrong_with_it(self, tmp_path, monkeypatch):
        with pytest.raises(UnavailableError, match=r"x\.zip holds no data file; expected \.csv"):
            read(packed(tmp_path / "x.zip", {"a.md": "x"}))
        (tmp_path / "x.zip").write_bytes(b"PK\3\4" + b"x" * 99)
        with pytest.raises(DataError, match=r"x\.zip: not a complete zip file"):
            read(str(tmp_path / "x.zip"))
        file = packed(tmp_path / "x.zip", {"a.csv": TABLE})
        data = bytearray((tmp_path / "x.zip").read_bytes())
        data[60] ^= 1
        (tmp_path / "x.zip").write_bytes(data)
        with pytest.raises(DataError, match=r"a\.csv: not a complete zip file: Bad CRC"):
            read(file)
        place = data.index(b"PK\1\2") + 8
        data[60] ^= 1
        data[place] |= 1
        (tmp_path / "x.zip").write_bytes(data)
        with pytest.raises(DataError, match=r"x\.zip: the zip file has a password"):
            read(file)
        packed(tmp_path / "x.zip", {"a.csv": TABLE})
        monkeypatch.setattr("forecaster.datasets.reader.formats.LARGEST", 999)
        with pytest.raises(DataError, match=r"x\.zip: unpacks to more than"):
            read(file)


@pytest.mark.parametrize(
    "names", [("a.1.csv", "a.2.csv"), ("a.csv", "a.parquet"), ("x=1/a.csv", "x=2/a.csv")]
)
def test_two_series_never_have_one_name(tmp_path, names):
    table = pd.DataFrame({"t": pd.date_range("2020-01-01", periods=4), "y": range(4)})
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        to = table.to_parquet if name.endswith("parquet") else table.to_csv
        to(tmp_path / name, index=False)
    place = tmp_path / "*" / "*.csv" if "/" in names[0] else tmp_path
    items = read(str(place), Reading(id=(FILE,))).series.items
    assert items is not None
    assert items.names == names
