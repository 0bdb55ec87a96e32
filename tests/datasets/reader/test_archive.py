import re
import struct
import zipfile
from functools import partial
from io import BytesIO

import pytest

from forecaster.base.errors import DataError
from forecaster.datasets.reader import archive, history, read
from forecaster.datasets.reader.archive import rewritten
from forecaster.datasets.reader.formats import SHEETS, Workbook
from forecaster.datasets.reading import NOTHING_SAID
from tests.datasets.reader.test_files import TABLE
from tests.datasets.reader.test_formats import PLAIN, rows, workbook

SHEET, TEXTS, MOST = "xl/worksheets/0.xml", "xl/sharedStrings.xml", 2**20
FIRST = '<row r="1"><c r="A1"><v>1</v></c></row>'


def book(sheet="", texts="", **others):
    """A workbook with XML in place of a sheet's rows, shared texts, and other files."""
    plain, packed = BytesIO(), BytesIO()
    workbook(plain, [])
    with (
        zipfile.ZipFile(plain) as old,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        files = {name: old.read(name).decode() for name in old.namelist()}
        files[SHEET] = f"<worksheet><sheetData>{sheet}</sheetData></worksheet>"
        files |= {TEXTS: f"<sst>{texts}</sst>"} if texts else {}
        for name, content in {**files, **others}.items():
            new.writestr(name, content)
    return packed.getvalue()


def lying():
    """A sheet of 2 MiB of which the directory and the header declare 100 bytes."""
    data = bytearray(book("<row><c><v>1</v></c></row>" * 80_000))
    for mark, place in ((b"PK\1\2", 24), (b"PK\3\4", 22)):
        struct.pack_into("<I", data, data.rfind(mark) + place, 100)
    return bytes(data)


BAD = {
    "bomb": (book(**{"xl/media/a.png": b"\0" * 2 * MOST}), "unpacks to more than 1 MiB"),
    "a lie": (lying(), "Bad CRC-32"),
    "many files": (book(**{f"{n}.xml": "<a/>" for n in range(1001)}), "at most 1,000 files"),
    "far apart": (book(FIRST + '<row><c r="XFD1048576"><v>2</v></c></row>'), "17,179,869,184"),
    "far down": (book(FIRST + '<row r="4000000000"><c><v>2</v></c></row>'), "4,000,000,000 cells"),
    "unplaced": (book("<row>" + 999 * "<c/>" + "</row>" + 999 * "<row><c/></row>"), "999,000"),
    "long texts": (
        book("<row>" + 99 * '<c t="s"/>' + "</row>", f"<si><t>{'a' * 90_000}</t></si>"),
        "99 cells share texts of up to 90,0",
    ),
    "entities": (book(**{"xl/a.xml": "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"}), "a document type"),
    "deep": (book("<a>" * 100 + "</a>" * 100), "nested more than 100 deep"),
    "macros": (book(**{"xl/vbaProject.bin": "x"}), "has macros"),
    "encrypted": (archive.ENCRYPTED + b"x" * 99, "encrypted, or older than Excel 2007"),
    "cut": (book(FIRST)[:-30], "not a zip file"),
    "no XML": (book("<row>"), "mismatched tag"),
    "a column": (book('<row><c r="ABCD1"/></row>'), "it has a column 'ABCD'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_is_refused_before_it_is_opened(kind):
    data, words = BAD[kind]
    with pytest.raises(DataError, match=re.escape(words)) as error:
        rewritten(data, "it", MOST)
    assert str(error.value).startswith("it: the workbook is not read: ")


def test_what_is_left_is_read_as_before(tmp_path):
    file = workbook(tmp_path / "a.xlsx", [], [[*TABLE.columns], *rows()])
    own = read(file)
    assert own.series.digest == PLAIN
    assert f"{file} has the sheets 'S0', 'S1': 'S1' is read. --sheet names another." in own.said
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr("xl/media/a.png", b"x")
    plain = rewritten((tmp_path / "a.xlsx").read_bytes(), "it", MOST)
    opened = Workbook("it", partial(BytesIO, plain), own.reading)
    assert history(opened, own.reading).series.digest == PLAIN
    assert "a.png" not in "".join(zipfile.ZipFile(BytesIO(plain)).namelist())


def test_only_some_sheets_are_searched_for_rows(tmp_path):
    """A workbook may name one large sheet without rows many times."""
    file = workbook(tmp_path / "a.xlsx", *[[]] * SHEETS, [[*TABLE.columns], *rows()])
    with pytest.raises(DataError, match="the file is empty"):
        read(file)


def test_a_workbook_without_a_sheet_and_one_that_the_reader_gives_up():
    for data, words in (
        (book(**{"xl/workbook.xml": "<workbook/>"}), "the file is empty"),
        (book('<row><c t="s"><v>9</v></c></row>'), "not a complete workbook"),
    ):
        plain = rewritten(data, "it", MOST)
        with pytest.raises(DataError, match=words):
            Workbook("it", partial(BytesIO, plain), NOTHING_SAID).names  # noqa: B018
