import gzip
import sys
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from forecaster.base import quota
from forecaster.base.errors import DataError, UnavailableError
from forecaster.datasets.reader import history, read, read_frame
from forecaster.datasets.reading import Reading
from tests.datasets.reader.test_files import TABLE

PLAIN = read_frame(TABLE, where="it").series.digest
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def workbook(file, *sheets):
    """Write a workbook of sheets of rows: of what Excel stores as much as is needed."""

    def cell(value):
        if value is None:
            return "<c/>"
        if isinstance(value, datetime):
            return f'<c s="1"><v>{(value - datetime(1899, 12, 30)) / timedelta(1)!r}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value!r}</v></c>"

    def related(kind, targets):
        each = [f'<Relationship Id="{i}" Type="{OFFICE}/{kind}" Target="{t}"/>' for i, t in targets]
        return f"<Relationships>{''.join(each)}</Relationships>"

    pages = [(f"S{number}", f"worksheets/{number}.xml") for number in range(len(sheets))]
    names = "".join(f'<sheet name="{name}" r:id="{name}"/>' for name, _ in pages)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("_rels/.rels", related("officeDocument", [("r", "xl/workbook.xml")]))
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>'
        )
        archive.writestr("xl/_rels/workbook.xml.rels", related("worksheet", pages))
        archive.writestr(
            "xl/styles.xml", '<styleSheet><cellXfs><xf/><xf numFmtId="22"/></cellXfs></styleSheet>'
        )
        for (_, page), rows in zip(pages, sheets, strict=True):
            cells = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            archive.writestr(f"xl/{page}", f"<worksheet><sheetData>{cells}</sheetData></worksheet>")
    return str(file)


def rows(table=TABLE):
    return [[row.t.to_pydatetime(), row.a, row.b] for row in table.itertuples()]


def store(file, form):
    """Write the TABLE."""
    if form == "xlsx":
        workbook(file, [[*TABLE.columns], *rows()])
    elif form == "parquet":
        TABLE.to_parquet(file)
    else:
        file.write_bytes(gzip.compress(TABLE.to_csv(index=False).encode()))
    return str(file)


@pytest.mark.parametrize("form", ["xlsx", "parquet", "gz"])
def test_the_first_bytes_tell_the_format_and_damage_is_told(tmp_path, form):
    assert read(store(tmp_path / "sales.txt", form)).series.digest == PLAIN
    file = tmp_path / f"sales.{form}"
    whole = Path(store(file, form)).read_bytes()
    for damaged in (whole[:-20], whole[: len(whole) // 2], whole[:15] + whole[20:]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{form}: not a complete (zip|Parquet|gzip|workbook)"):
            read(str(file))


def test_numbers_of_a_workbook_have_points_whatever_the_training_file_had(tmp_path):
    days = [f"2020-01-{day:02}" for day in range(1, 9)]
    text = tmp_path / "train.csv"
    text.write_text("t,a\n" + "".join(f'{day},"{place},5"\n' for place, day in enumerate(days)))
    trained = read(str(text))
    file = workbook(tmp_path / "next.xlsx", [["t", "a"], *([day, 1.234] for day in days)])
    assert set(history(file, trained.reading).series.values[:, 0]) == {1.234}


def test_a_workbook_as_people_write_them(tmp_path):
    sheet = [
        ["Sales of 2020"], [None], [*TABLE.columns, "note"], [None, "MWh", "[EUR]", "a\nb"],
        *([*row, "x, y"] for row in rows()), [None],
    ]  # fmt: skip
    file = workbook(tmp_path / "sales.xlsx", sheet, [["other"]])
    own = read(file, Reading(targets=("a", "b")))
    assert own.series.digest == PLAIN
    assert own.said[:2] == (
        "Lines above the rows, left out: 2, such as 'Sales of 2020,,,'.",
        f"{file} has the sheets 'S0', 'S1': 'S0' is read. --sheet names another.",
    )
    ids = [["shop", "t", "y"], *([i, *row[:2]] for i in (7, 8) for row in rows())]
    items = read(workbook(tmp_path / "a.xlsx", ids), Reading(id=("shop",))).series.items
    assert items.names == ("7", "8")
    sheet[6][1] = "x"
    with pytest.raises(DataError, match=r"sales.xlsx, row 3 .*column 'a': expected a number"):
        read(workbook(tmp_path / "sales.xlsx", sheet))


def test_what_is_wrong_with_a_workbook(tmp_path, monkeypatch):
    file = workbook(tmp_path / "a.xlsx", [[]])
    with pytest.raises(DataError, match=r"a.xlsx: the file is empty"):
        read(file)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("b.csv", TABLE.to_csv())
    with pytest.raises(DataError, match=r"b.zip: a zip archive that holds 'b.csv'; unpack it"):
        read(str(tmp_path / "b.zip"))
    monkeypatch.setattr("forecaster.datasets.reader.formats.WORKBOOK", 500)
    with pytest.raises(DataError, match=r"a.xlsx: unpacks to more than"):
        read(file)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(UnavailableError, match=r"pip install 'attention-forecaster\[excel\]'"):
        read(file)


@pytest.mark.parametrize("form", ["csv", "gz", "parquet"])
def test_rows_that_take_more_than_a_third_of_the_memory(tmp_path, monkeypatch, form):
    """A text of 12 KiB, of which a packed one only shows how much it is as it is read."""
    file, known = store(tmp_path / f"sales.{form}", form), Reading(time="t", targets=("a",))
    left = {"csv": 3 * 2000, "gz": 3 * 2000, "parquet": 3 * 900}[form]
    monkeypatch.setattr(quota, "memory_left", lambda: left)
    with pytest.raises(UnavailableError, match=r"about .* GiB, more than a third of .* Parquet"):
        read(file, known)
    monkeypatch.setattr(quota, "memory_left", lambda: None)
    assert len(read(file, known).series.values) == len(TABLE)
