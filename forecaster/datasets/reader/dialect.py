"""How a text file is written: its encoding, separator and header, and the lines that are no rows.

The head of a file and its last lines are enough to find this. A line counts as a row by the shapes
of its cells: a number, a stamp (it begins with a digit or holds a year), or a word.
"""

import codecs
import csv
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from forecaster.datasets.reader.cells import LIKE_NUMBER, NO_VALUE
from forecaster.datasets.reading import NOTHING_SAID, Reading, Text
from forecaster.errors import DataError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The possible separators of the fields of a line, with their names."""

LINES = 1000
"""The lines of the head that are examined."""

LAST = 60
"""The lines of the end that are examined."""

Shape: TypeAlias = Literal["number", "stamp", "word", "empty"]

_NUMBER = re.compile(LIKE_NUMBER)
_LONGEST = 400  # characters of a number; the time to match grows with their square
_DATED = re.compile(r"\d.*|.*\b\d{4}\b.*", re.DOTALL)
_COMMENT = re.compile(r"\s*(?:#|//)")
_RULE = re.compile(r"[-=_+~*|,;\s]+")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_TIMES = re.compile(
    r"date|datetime|date.?time|timestamp|time|ds|t|day|week|month|quarter|year|period|hour|when"
    r"|utc_timestamp|datum|zeit|zeitstempel|uhrzeit|tag|monat|jahr|fecha|hora|heure|data|ora"
)
_TOTAL = re.compile(
    r"(?:grand |sub|overall )?(?:totals?|sum|summe|gesamt(?:summe)?|insgesamt|somme|suma|somma"
    r"|averages?|avg|mean|median|mittel(?:wert)?|durchschnitt|moyenne|promedio|media|totaal"
    r"|min(?:imum)?|max(?:imum)?|count|anzahl)\b.{0,40}"
)
_WORDS = re.compile(r".*\w[\s:(].*\w.*", re.DOTALL)


@dataclass(frozen=True)
class Head:
    """What the first lines of a text show.

    `names` are the names of the columns; the rows begin `start` bytes into the text in UTF-8,
    without its byte order mark; `left_out` are the lines above them that are neither header nor
    blank. A `bare` text has no header, according to the reading. A `broken` one has line breaks in
    cells.
    """

    text: Text
    names: tuple[str, ...]
    start: int
    left_out: tuple[str, ...]
    bare: bool = False
    broken: bool = False


def find_encoding(head: bytes, where: str) -> str:
    """The encoding of a text, found from its first bytes. Raises DataError if it is not a text."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        even, odd, pairs = head[::2].count(0), head[1::2].count(0), len(head) // 2
        if odd > pairs / 2 and even < pairs / 20:
            return "utf-16-le"
        if even > pairs / 2 and odd < pairs / 20:
            return "utf-16-be"
        raise DataError(
            f"{where}: the bytes are not a text. Expected a text of rows, Parquet or an Excel "
            "workbook (.xlsx)."
        )
    if is_utf8(head):
        return "utf-8"
    lines = head.splitlines(keepends=True)
    if is_utf8(next(line for line in lines if not line.isascii())):
        check_letters(lines, "utf-8", where)
    return single_byte(head)


def check_letters(lines: Iterable[bytes], encoding: str, where: str) -> None:
    """Raise DataError for the first line that is not in the encoding of those before it."""
    for number, line in enumerate(lines, 1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}, line {number}: byte 0x{line[error.start]:02x} is not "
                f"{encoding.upper()}, as the text before it is; save the file in UTF-8."
            ) from None


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8; their last letter may be cut."""
    if data.isascii():  # a fast check that copies nothing
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def single_byte(data: bytes) -> str:
    """The encoding of bytes that are not UTF-8: that of Windows, or Latin-1 if it does not fit."""
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def read_head(data: bytes, whole: bool, where: str, reading: Reading = NOTHING_SAID) -> Head:
    """Find how a text is written from its first bytes; `whole` if they are all of it.

    What the reading states holds; the reading of a model decides only between equally likely forms.
    Raises DataError if there is no header.
    """
    said, told = reading.text or Text(), reading.timezone is not None
    encoding = find_encoding(data, where)
    text = codecs.getincrementaldecoder(encoding)().decode(data).removeprefix("\ufeff")
    lines, ends = _lines(text, whole, LINES)
    if not any(line.strip() for line in lines):
        raise DataError(f"{where}: the file is empty; expected a header and rows.")
    written = None
    if match := _SEPARATOR_LINE.fullmatch(lines[0]):  # Excel writes and reads such a line
        written = match[1]
    elif said.separator and not told:
        written = said.separator
    separator, width = _separator(lines, written, said.separator)
    rows = [_Line(line, separator, width) for line in lines]
    marked = [row for row in rows if row.comment and len(row.fields) == width]
    if 2 * len(marked) > len(rows):  # then they are rows, not comments
        rows = [_Line(line, separator, width, comments=False) for line in lines]
    found = Text(encoding=encoding, separator=separator)
    place, first, names = _header(rows, where)
    bare = bool(reading.header) and all(kind in ("number", "empty") for kind in rows[place].shapes)
    if bare:
        place, first, names = place - 1, place, reading.header
    out = [row for i, row in enumerate(rows[:first]) if i != place]
    found = replace(found, before=max(place, 0), after=first - place - 1)
    begin = ends[first - 1] if first else 0
    left_out = tuple(
        row.text.strip() for row in out if not row.blank and not _SEPARATOR_LINE.fullmatch(row.text)
    )
    broken = any(line.count('"') % 2 for line in lines)
    return Head(found, names, len(text[:begin].encode()), left_out, bare, broken)


def footer(tail: str, head: Head, ended: bool) -> tuple[int, list[str]]:
    """Where the rows end in the last lines of a text, and the lines below them.

    Totals, comments and free text are left out if they end with a line break (`ended`). A row that
    breaks off is none of these.
    """
    lines, ends = _lines(tail, whole=True)
    if len(lines) > LAST:
        cut = len(lines) - LAST
        lines, ends = lines[cut:], [ends[cut - 1], *ends[cut:]]
    else:
        ends = [0, *ends]
    rows = [_Line(line, head.text.separator, len(head.names)) for line in lines]
    regular = [row for row in rows if row.full and row.total is None]
    typed = _typed(regular)
    last = len(rows)
    out: list[str] = []
    while last and len(out) < len(regular):
        row = rows[last - 1]
        above = rows[last - 2].text.strip() if last > 1 else ""
        if not row.blank:
            if not _no_row(row, rows[: last - 1], typed, ended or last < len(rows) or not above):
                break
            out.insert(0, row.text.strip())
        last -= 1
    return ends[last], out


class _Line:
    """A line and its fields; `full` if it has as many fields as there are columns."""

    def __init__(self, text: str, separator: str, width: int, comments: bool = True) -> None:
        self.text = text
        self.fields = fields(text, separator)
        self.blank = not any(field.strip() for field in self.fields)
        self.comment = comments and bool(_COMMENT.match(text))
        self.wide = len(self.fields) == width and not self.blank
        self.full = self.wide and not self.comment
        self.shapes = [shape(field) for field in self.fields]

    @property
    def title(self) -> bool:
        """Whether it holds one text alone, as spreadsheets write a title above a table."""
        there = [field.strip() for field in self.fields if field.strip()]
        return len(self.fields) > 1 and len(there) == 1 and not there[0][0].isdigit()

    @property
    def total(self) -> int | None:
        """The index of the first field that is not empty, if it is a word for a total."""
        first = next((i for i, field in enumerate(self.fields) if field.strip()), None)
        if first is None or not _TOTAL.fullmatch(self.fields[first].strip().lower()):
            return None
        return first

    def fits(self, typed: dict[int, Shape]) -> bool:
        """Whether some field has the shape of its column."""
        return any(self.shapes[place] == kind for place, kind in typed.items())

    def clashes(self, typed: dict[int, Shape]) -> bool:
        """Whether no field has the shape of its column, and some field has another."""
        return not self.fits(typed) and any(self.shapes[place] != "empty" for place in typed)


def fields(line: str, separator: str) -> list[str]:
    """The fields of a line."""
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [""])
    except csv.Error:
        return line.split(separator)


def shape(cell: str) -> Shape:
    """The shape of a cell."""
    cell = cell.strip()
    if cell.lower() in NO_VALUE:
        return "empty"
    if len(cell) <= _LONGEST and _NUMBER.fullmatch(cell):
        return "number"
    return "stamp" if _DATED.fullmatch(cell) else "word"


def _lines(text: str, whole: bool, most: int | None = None) -> tuple[list[str], list[int]]:
    """The first lines of a text, and where each ends; without the last if the text may continue."""
    lines, ends = [], []
    for match in re.finditer(r"([^\r\n]*)(\r\n|\n|\r|$)", text):
        if (match[0] and match[2]) or (match[0] and whole):
            lines.append(match[1])
            ends.append(match.end())
        if len(lines) == most:
            break
    return lines, ends


def _separator(lines: Sequence[str], written: str | None, told: str) -> tuple[str, int]:
    """The separator of the fields, and the number of fields."""
    content = [line for line in lines if line.strip() and not _COMMENT.match(line)] or list(lines)
    best: list[tuple[float, tuple[float, bool, bool, int, str]]] = []
    for separator in [written] if written else SEPARATORS:
        counts = Counter(len(fields(line, separator)) for line in content)
        width, often = max(counts.items(), key=lambda item: (item[1], item[0]))
        if width == 1 and not written:
            continue
        rows = [fields(line, separator) for line in content[:200]]
        cells = [cell for row in rows if len(row) == width for cell in row]
        plain = sum(_is_atom(cell, separator) for cell in cells) / max(1, len(cells))
        looks = (round(plain, 1), len(rows[0]) == width, separator == told, width, separator)
        best.append((often / len(content), looks))
    if not best:
        return ",", 1
    most = max(best)[0]
    *_, width, separator = max(looks for share, looks in best if share >= most - 0.05)
    return separator, width


def _is_atom(cell: str, separator: str) -> bool:
    """Whether a cell is one number, stamp or missing value, not several that were not separated."""
    kind = shape(cell)
    others = {";", "\t", "|"} - {separator}
    return (
        kind != "word"
        and not others & {*cell}
        and (kind != "stamp" or separator == "," or "," not in cell)
    )


def _typed(rows: Sequence[_Line]) -> dict[int, Shape]:
    """The columns that hold numbers or stamps, judged by most of their values."""
    typed: dict[int, Shape] = {}
    for place in range(len(rows[0].fields) if rows else 0):
        counts = Counter(row.shapes[place] for row in rows)
        counts.pop("empty", None)
        for kind in ("stamp", "number"):
            if counts[kind] and counts[kind] >= counts.total() / 2:
                typed[place] = kind
    return typed


def _header(rows: Sequence[_Line], where: str) -> tuple[int, int, tuple[str, ...]]:
    """The indices of the header and of the first row, and the names of the columns."""
    full = [i for i, row in enumerate(rows) if row.full]
    place = next((i for i in full if not rows[i].title), full[0] if full else None)
    if place is None:
        raise DataError(f"{where}: the file holds only comments; expected a header and rows.")
    typed = _typed([row for row in rows[place + 1 :] if row.full] or [rows[place]])
    if _is_row(rows[place], typed):
        for i in range(place - 1, -1, -1):
            row = rows[i]
            if row.comment and len(row.fields) == len(rows[place].fields):
                first = row.fields[0].strip().lstrip("#/ ") or row.fields[0]
                return i, place, (first, *row.fields[1:])
            if not row.blank and not row.comment and len(row.fields) > 1:
                raise DataError(
                    f"{where}: row 1: expected {len(row.fields)} fields as in the header, got "
                    f"{len(rows[place].fields)}: {rows[place].text.strip()[:80]!r}"
                )
    above = [place]
    for i in range(place + 1, len(rows)):
        row = rows[i]
        stamps: dict[int, Shape] = {at: kind for at, kind in typed.items() if kind == "stamp"}
        if row.full and not row.title and row.fits(stamps or typed):
            break
        above += [i] * row.full
    timed = [
        i for i in above if any(_TIMES.fullmatch(name.strip().lower()) for name in rows[i].fields)
    ]
    if len(timed) == 1:
        place = timed[0]
    end = place + 1
    for i in range(place + 1, len(rows)):
        row = rows[i]
        units = row.full and row.clashes(typed)
        comment = row.comment and not _is_named(row, typed)
        if not (units or row.blank or comment or _RULE.fullmatch(row.text)):
            break
        end = i + 1
    return place, end, tuple(rows[place].fields)


def _is_row(row: _Line, typed: dict[int, Shape]) -> bool:
    """Whether all columns of numbers and stamps hold their kind, and one of them is of stamps."""
    return "stamp" in typed.values() and all(
        row.shapes[place] in (kind, "empty") for place, kind in typed.items()
    )


def _is_named(row: _Line, typed: dict[int, Shape]) -> bool:
    """Whether a line that looks like a comment is a row that begins with the name of its series."""
    return 0 not in typed and row.wide and _is_row(row, typed)


def _no_row(row: _Line, above: Sequence[_Line], typed: dict[int, Shape], apart: bool) -> bool:
    """Whether a line below the rows is not a row."""
    if row.comment:
        return not _is_named(row, typed)
    total = row.total
    if total is not None:
        if any(row.fields[total] in other.fields for other in above):
            return False  # the name of a series
        dated = [place for place, kind in typed.items() if kind == "stamp"]
        return (
            not row.full or total in typed or any(row.shapes[place] == "empty" for place in dated)
        )
    begins = row.shapes[0] == "word" and bool(_WORDS.fullmatch(row.fields[0].strip()))
    alone = not any(field.strip() for field in row.fields[1:])
    return begins and (
        (0 in typed and (alone or not row.full)) or (alone and not row.full and apart)
    )
