import gzip
import sys
import zipfile
from datetime import datetime, timedelta
from xml.sax.saxutils import escape

import pytest

from forecaster.base.errors import DataError, UnavailableError
from forecaster.datasets.reader import history, read
from forecaster.datasets.reading import Reading
from tests.datasets.reader.test_files import TABLE


def workbook(file, *sheets):
    """Write a workbook of sheets of rows, as Excel stores it."""
    space = "http://schemas.openxmlformats.org"
    kind = f"{space}/officeDocument/2006/relationships"
    main = f'xmlns="{space}/spreadsheetml/2006/main" xmlns:r="{kind}"'
    numbers = range(1, len(sheets) + 1)

    def cell(value):
        if value is None:
            return "<c/>"
        if isinstance(value, datetime):
            return f'<c s="1"><v>{(value - datetime(1899, 12, 30)) / timedelta(1)!r}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value!r}</v></c>"

    parts = {
        "[Content_Types].xml": f'<Types xmlns="{space}/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{space}/package/2006/relationships"><Relationship '
        f'Id="r" Type="{kind}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f"<workbook {main}><sheets>"
        + "".join(f'<sheet name="S{i}" sheetId="{i}" r:id="r{i}"/>' for i in numbers)
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{space}/package/2006/relationships">'
        + "".join(
            f'<Relationship Id="r{i}" Type="{kind}/worksheet" Target="worksheets/s{i}.xml"/>'
            for i in numbers
        )
        + f'<Relationship Id="s" Type="{kind}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet {main}><cellXfs><xf numFmtId="0"/><xf numFmtId="22"/>'
        "</cellXfs></styleSheet>",
        **{
            f"xl/worksheets/s{i}.xml": f"<worksheet {main}><sheetData>"
            + "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            + "</sheetData></worksheet>"
            for i, rows in enumerate(sheets, 1)
        },
    }
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return str(file)


def rows(table=TABLE):
    return [[row.t.to_pydatetime(), row.a, row.b] for row in table.itertuples()]


def test_the_first_bytes_tell_the_format(tmp_path, plain):
    TABLE.to_parquet(tmp_path / "sales.data")
    (tmp_path / "sales.csv").write_bytes(gzip.compress(TABLE.to_csv(index=False).encode()))
    workbook(tmp_path / "sales.txt", [[*TABLE.columns], *rows()])
    for name in ("sales.data", "sales.csv", "sales.txt"):
        assert read(str(tmp_path / name)).series.digest == plain.series.digest


def test_numbers_of_a_workbook_have_points_whatever_the_training_file_had(tmp_path):
    days = [f"2020-01-{day:02}" for day in range(1, 9)]
    text = tmp_path / "train.csv"
    text.write_text("t,a\n" + "".join(f'{day},"{place},5"\n' for place, day in enumerate(days)))
    trained = read(str(text))
    file = workbook(tmp_path / "next.xlsx", [["t", "a"], *([day, 1.234] for day in days)])
    assert set(history(file, trained.reading).series.values[:, 0]) == {1.234}


def test_a_workbook_as_people_write_them(tmp_path, plain):
    sheet = [
        ["Sales of 2020"], [None], [*TABLE.columns, "note"], [None, "MWh", "[EUR]", "a\nb"],
        *([*row, "x, y"] for row in rows()), [None],
    ]  # fmt: skip
    file = workbook(tmp_path / "sales.xlsx", sheet, [["other"]])
    own = read(file, Reading(targets=("a", "b")))
    assert own.series.digest == plain.series.digest
    assert own.said[:2] == (
        "Lines above the rows, left out: 2, such as 'Sales of 2020,,,'.",
        f"{file} has the sheets 'S1', 'S2': the first is read.",
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
    with pytest.raises(DataError, match=r"b.zip: not a complete workbook: .* unpacked"):
        read(str(tmp_path / "b.zip"))
    monkeypatch.setattr("forecaster.datasets.reader.formats.WORKBOOK", 999)
    with pytest.raises(DataError, match=r"a.xlsx: unpacks to more than"):
        read(file)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(UnavailableError, match=r"pip install 'attention-forecaster\[excel\]'"):
        read(file)


@pytest.mark.parametrize("name", ["sales.xlsx", "sales.parquet", "sales.csv.gz"])
@pytest.mark.parametrize(
    "damage", [lambda b: b[:-20], lambda b: b[: len(b) // 2], lambda b: b[:15] + b[20:]]
)
def test_a_damaged_file(tmp_path, name, damage):
    file = tmp_path / name
    if name.endswith("xlsx"):
        workbook(file, [[*TABLE.columns], *rows()])
    elif name.endswith("parquet"):
        TABLE.to_parquet(file)
    else:
        file.write_bytes(gzip.compress(TABLE.to_csv(index=False).encode()))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=rf"{name}: not a complete (zip|Parquet|gzip|workbook)"):
        read(str(file))


def test_a_gzip_file_that_unpacks_to_too_much(tmp_path, monkeypatch):
    file = tmp_path / "sales.csv.gz"
    file.write_bytes(gzip.compress(TABLE.to_csv(index=False).encode()))
    monkeypatch.setattr("forecaster.datasets.reader.formats.LARGEST", 999)
    with pytest.raises(DataError, match="unpacks to more than"):
        read(str(file))
