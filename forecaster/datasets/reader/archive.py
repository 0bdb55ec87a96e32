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
CELL = 8
"""The bytes that a workbook has to unpack to, at most, for each cell of its largest sheet."""
CHUNK = 2**16
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    expat.ExpatError,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)
"""What zipfile and expat raise for an archive that is damaged or encrypted."""
REMEDY = "Copy the table alone to a new workbook, or save it as CSV."


def rewritten(data: bytes, where: str, most: int) -> bytes:
    """The same workbook as an archive of its XML alone, not compressed: what is measured here is
    what is read.

    Takes time and memory linear in `most`, the bytes that its files may unpack to, whatever they
    declare. Raises DataError for more; for what is no workbook, encrypted, damaged or has macros;
    and for cells far apart or long texts in many cells, which the reader would need memory for.
    """
    if not data.startswith(PACKED):
        raise DataError(f"{where}: encrypted, or a workbook older than Excel 2007. {REMEDY}")
    if data.count(b"PK\1\2") > MOST_FILES:
        raise DataError(f"{where}: expected at most {MOST_FILES:,} files in a workbook. {REMEDY}")
    measure, left, plain = _Measure(), most, BytesIO()
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(plain, "w") as copy:
            names = [name.lower() for name in archive.namelist()]
            if "xl/workbook.xml" not in names:
                raise DataError(f"{where}: a zip archive that holds {quoted(names)}. {REMEDY}")
            if any(name.endswith("vbaproject.bin") for name in names):
                raise DataError(f"{where}: the workbook has macros. {REMEDY}")
            if len({*names}) < len(names):
                raise ValueError("it holds two files of one name")
            for file in archive.infolist():
                if file.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError("its compression is unusual")
                chunks = list[bytes]()
                with archive.open(file) as stream:
                    while chunk := stream.read(CHUNK):
                        if (left := left - len(chunk)) < 0:
                            size = f"{most / 2**20:,.3g} MiB"
                            raise DataError(f"{where}: unpacks to more than {size}. {REMEDY}")
                        chunks.append(chunk)
                if file.filename.lower().endswith((".xml", ".rels")):
                    measure.add(chunks)
                    copy.writestr(file.filename, b"".join(chunks))
    except DAMAGE as error:
        raise DataError(f"{where}: not a complete workbook: {error}. {REMEDY}") from None
    if max(measure.cells * CELL, measure.longest * measure.shared // 4) > most:
        raise DataError(
            f"{where}: expected at most {most // CELL:,} cells in a sheet, counting empty ones, "
            f"and {4 * most:,} bytes of text; got {measure.cells:,} cells, and {measure.shared:,} "
            f"that share texts of up to {measure.longest:,} bytes. {REMEDY}"
        )
    return plain.getvalue()


class _Measure:
    """What the XML of a workbook takes when it is read: the `cells` of the largest sheet, from its
    first row and column; the bytes of the `longest` shared text; and how many cells share one."""

    def __init__(self) -> None:
        self.cells = self.longest = self.shared = 0

    def add(self, chunks: list[bytes]) -> None:
        """Measure a file. Raises ValueError or ExpatError for what is not plain XML."""
        parser = expat.ParserCreate()
        row = column = rows = columns = start = 0
        numbers = {"": 0}

        def element(kind: str, attributes: dict[str, str]) -> None:
            nonlocal row, column, rows, columns, start
            if (kind := kind.rpartition(":")[2]) in ("row", "c"):
                place = attributes.get("r", "")
                letters = place.rstrip("0123456789")
                if letters not in numbers:
                    numbers[letters] = _number(letters)
                row = int(place[len(letters) :] or row + (kind == "row"))
                column = 0 if kind == "row" else numbers[letters] or column + 1
                rows, columns = max(rows, row), max(columns, column)
                self.shared += attributes.get("t") == "s"
            elif kind == "si":
                here = parser.CurrentByteIndex
                self.longest, start = max(self.longest, here - start), here

        def refuse(*_: object) -> None:
            raise ValueError("it declares a document type")

        parser.StartElementHandler, parser.StartDoctypeDeclHandler = element, refuse
        for chunk in chunks:
            parser.Parse(chunk)
        parser.Parse(b"", True)
        if start:
            self.longest = max(self.longest, sum(map(len, chunks)) - start)
        self.cells = max(self.cells, rows * columns)


def _number(letters: str) -> int:
    """The number of a column, from 1 for A. Raises ValueError for none of Excel."""
    if not re.fullmatch("[A-Za-z]{1,3}", letters):
        raise ValueError(f"it has a column '{letters[:9]}'")
    return reduce(lambda number, letter: 26 * number + ord(letter) - 64, letters.upper(), 0)
