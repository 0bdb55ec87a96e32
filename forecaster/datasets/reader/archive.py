"""The archive of a workbook from a stranger, measured before the reader of workbooks opens it."""

import re
import zipfile
import zlib
from functools import reduce
from io import BytesIO
from xml.parsers import expat

from forecaster.base.errors import DataError
from forecaster.base.names import quoted

PACKED, ENCRYPTED = b"PK\3\4", b"\xd0\xcf\x11\xe0"
"""The first bytes of a workbook, and of one that is encrypted or older than Excel 2007."""
MOST_FILES = 1000
"""The most files in the archive, and so the most sheets."""
DEEPEST = 100
"""The deepest element of a file of XML: the parser holds all that are open."""
CELL = 8
"""The bytes of the limit for each cell of a sheet, counting the empty ones above and before it."""
DAMAGE = (zipfile.BadZipFile, zlib.error, expat.ExpatError, EOFError, OSError, RuntimeError)
"""What zipfile and expat raise for an archive that is damaged or encrypted."""


def rewritten(data: bytes, where: str, most: int) -> bytes:
    """The same workbook as an archive of its XML alone, not compressed: what is measured here is
    what is read.

    Takes time and memory linear in `most`, the bytes that its files may unpack to, whatever they
    declare. Raises DataError for more; for what is no workbook, encrypted, damaged or has macros;
    and for cells far apart or long texts in many cells, which the reader would need memory for.
    """
    try:
        return _rewritten(data, most)
    except (*DAMAGE, ValueError) as error:
        remedy = "Copy the table alone to a new workbook, or save it as CSV."
        raise DataError(f"{where}: the workbook is not read: {error}. {remedy}") from None


def _rewritten(data: bytes, most: int) -> bytes:
    if not data.startswith(PACKED):
        raise ValueError("it is encrypted, or older than Excel 2007")
    if data.count(b"PK\1\2") > MOST_FILES:
        raise ValueError(f"expected at most {MOST_FILES:,} files in it")
    left, plain = most, BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(plain, "w") as copy:
        names = [name.lower() for name in archive.namelist()]
        if "xl/workbook.xml" not in names or len({*names}) < len(names):
            raise ValueError(f"it is a zip archive that holds {quoted(names)}")
        if any(name.endswith("vbaproject.bin") for name in names):
            raise ValueError("it has macros")
        longest = shared = 0
        for file in archive.infolist():
            if file.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("its compression is unusual")
            with archive.open(file) as stream:
                content = stream.read(left + 1)
            if (left := left - len(content)) < 0:
                raise ValueError(f"it unpacks to more than {most / 2**20:,.3g} MiB")
            if file.filename.lower().endswith((".xml", ".rels")):
                cells, text, texts = _measured(content)
                longest, shared = max(longest, text), max(shared, texts)
                if cells * CELL > most:
                    raise ValueError(f"it has a sheet of {cells:,} cells, counting empty ones")
                copy.writestr(file.filename, content)
    if longest * shared > 4 * most:
        raise ValueError(f"{shared:,} cells share texts of up to {longest:,} bytes")
    return plain.getvalue()


def _measured(content: bytes) -> tuple[int, int, int]:
    """What a file of XML takes when it is read: the cells of a sheet from the first row and column
    on, the bytes of the longest shared text, and how many cells share one."""
    parser, columns = expat.ParserCreate(), {"": 0}
    row = column = rows = width = start = longest = shared = depth = 0

    def element(kind: str, attributes: dict[str, str]) -> None:
        nonlocal row, column, rows, width, start, longest, shared, depth
        if (depth := depth + 1) > DEEPEST:
            raise ValueError(f"its XML is nested more than {DEEPEST} deep")
        if (kind := kind.rpartition(":")[2]) in ("row", "c"):
            place = attributes.get("r", "")  # one without a place follows the last
            letters = place.rstrip("0123456789")
            if letters not in columns:
                columns[letters] = _column(letters)
            row = int(place[len(letters) :] or row + (kind == "row"))
            column = 0 if kind == "row" else columns[letters] or column + 1
            rows, width = max(rows, row), max(width, column)
            shared += attributes.get("t") == "s"
        elif kind == "si":
            here = parser.CurrentByteIndex
            longest, start = max(longest, here - start), here

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise ValueError("it declares a document type")

    parser.StartElementHandler, parser.EndElementHandler = element, end
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(content, True)
    return rows * width, max(longest, len(content) - start if start else 0), shared


def _column(letters: str) -> int:
    """The number of a column, from 1 for A. Raises ValueError for none of Excel."""
    if not re.fullmatch("[A-Za-z]{1,3}", letters):
        raise ValueError(f"it has a column '{letters[:9]}'")
    return reduce(lambda number, letter: 26 * number + ord(letter) - 64, letters.upper(), 0)
