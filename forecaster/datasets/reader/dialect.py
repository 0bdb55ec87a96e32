"""How a text file is written: its encoding, separator and header, and the lines above the rows.

The head of a file is enough to find this. A line counts as a row by the shapes of its cells: a
number, a stamp (it begins with a digit or holds a year), or a word.
"""

import codecs
import csv
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from forecaster.base.errors import DataError
from forecaster.datasets.reader.cells import LIKE_NUMBER, NO_VALUE
from forecaster.datasets.reading import NOTHING_SAID, Reading, Text

SEPARATORS = (",", ";", "\t", "|")
"""The possible separators of the fields of a line."""

LINES = 100
"""The lines of the head that are examined: more than usual texts above a table have."""

Shape: TypeAlias = Literal["number", "stamp", "word", "empty"]

_NUMBER = re.compile(LIKE_NUMBER)
_LONGEST = 400  # characters of a number; the time to match grows with their square
_DATED = re.compile(r"\d.*|.*\b\d{4}\b.*", re.DOTALL)
_COMMENT = re.compile(r"\s*(?:#|//)")
_RULE = re.compile(r"[-=_+~*|,;\s]+")
_TIMES = re.compile(
    r"date|datetime|date.?time|timestamp|time|ds|t|day|week|month|quarter|year|period|hour|when"
    r"|utc_timestamp|datum|zeit|zeitstempel|zeitpunkt|uhrzeit|tag|monat|jahr|fecha|hora|heure|data"
    r"|ora|local.?time|(?:start|begin)(?:.?time)?|datum.?uhrzeit|fecha.?hora|date.?heure"
    r"|horodatage|tijd"
)
_JSON = re.compile(r'\s*(?:\[\s*)?\{\s*"')


@dataclass(frozen=True)
class Head:
    """What the first lines of a text show.

    `names` are the names of the columns; the rows begin `start` bytes into the text in UTF-8, with
    its byte order mark if it had that in UTF-8; `left_out` are the lines above them that are
    neither header nor blank. A `bare` text has no header, according to the reading. A `broken` one
    has line breaks in cells.
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
        raise DataError(
            f"{where}: the bytes are not a text. Expected a text of rows, Parquet or an Excel "
            "workbook (.xlsx) without a password."
        )
    if is_utf8(head):
        return "utf-8"
    lines = head.splitlines(keepends=True)
    if is_utf8(next(line for line in lines if not line.isascii())):
        raise DataError(other_letter(where, "utf-8"))
    return "cp1252"


def other_letter(where: str, encoding: str) -> str:
    """The message about a letter in another encoding than the text before it."""
    return (
        f"{where}: some letter is not {encoding.upper()}, as the text before it is; save the file "
        "in UTF-8."
    )


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8; their last letter may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def read_head(data: bytes, whole: bool, where: str, reading: Reading = NOTHING_SAID) -> Head:
    """Find how a text is written from its first bytes; `whole` if they are all of it.

    What the reading states holds; the reading of a model decides only between equally likely forms.
    Raises DataError if there is no header.
    """
    settings = reading.text or Text()
    encoding = find_encoding(data, where)
    mark = len(BOM_UTF8) if data.startswith(BOM_UTF8) else 0
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data[mark:])
    except UnicodeDecodeError:
        raise DataError(other_letter(where, encoding)) from None
    if _JSON.match(text):
        raise DataError(
            f"{where}: this is JSON; save it as CSV or Parquet (in pandas: read_json, for one "
            "document in each line with lines=True, then to_csv with index=False)."
        )
    lines, ends = _lines(text, whole, LINES)
    if not any(line.strip() for line in lines):
        raise DataError(f"{where}: the file is empty; expected a header and rows.")
    written = None if reading.complete else settings.separator
    separator, width = _separator(lines, written, settings.separator)
    rows = [_Line(line, separator, width) for line in lines]
    ended = width > 2 and all(not row.fields[-1].strip() for row in rows if row.wide)
    if ended:  # each row ends with a separator; the header may not
        rows = [
            _Line(row.text + separator * (len(row.fields) == width - 1), separator, width)
            for row in rows
        ]
    header, first, names = _header(rows, where)
    place = max(header)
    bare = bool(reading.header) and all(kind in ("number", "empty") for kind in rows[place].shapes)
    if bare:
        header, first, names = set(), place, reading.header
    elif ended and not names[-1].strip():
        names = (*names[:-1], f"column {width}")
    out = [row for i, row in enumerate(rows[:first]) if i not in header]
    begin = ends[first - 1] if first else 0
    left_out = tuple(row.text.strip() for row in out if not row.blank)
    broken = any(line.count('"') % 2 for line in text.splitlines())
    dialect = Text(encoding=encoding, separator=separator)
    return Head(dialect, names, mark + len(text[:begin].encode()), left_out, bare, broken)


class _Line:
    """A line and its fields; `wide` if it has as many fields as there are columns.

    A `comment` is no header.
    """

    def __init__(self, text: str, separator: str, width: int) -> None:
        self.text = text
        self.separator = separator
        self.fields = fields(text, separator)
        self.blank = not any(field.strip() for field in self.fields)
        self.comment = bool(_COMMENT.match(text))
        self.wide = len(self.fields) == width and not self.blank
        self.shapes = [shape(field) for field in self.fields]

    @property
    def title(self) -> bool:
        """Whether it holds one text alone, as spreadsheets write a title above a table."""
        there = [field.strip() for field in self.fields if field.strip()]
        return len(self.fields) > 1 and len(there) == 1 and not there[0][0].isdigit()

    def fits(self, typed: dict[int, Shape]) -> bool:
        """Whether some field has the shape of its column."""
        return any(self.shapes[place] == kind for place, kind in typed.items())

    def clashes(self, typed: dict[int, Shape]) -> bool:
        """Whether no field has the shape of its column, and some field has another."""
        return not self.fits(typed) and any(self.shapes[place] != "empty" for place in typed)


def fields(line: str, separator: str) -> list[str]:
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [""])
    except csv.Error:
        return line.split(separator)


def shape(cell: str) -> Shape:
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


def _separator(lines: Sequence[str], written: str | None, known: str) -> tuple[str, int]:
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
        looks = (round(plain, 1), len(rows[0]) == width, separator == known, width, separator)
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


def _header(rows: Sequence[_Line], where: str) -> tuple[set[int], int, tuple[str, ...]]:
    """The indices of the lines of the header, that of the first row, and the names of the columns.

    A header of several lines is one whose line with the time names no other columns, or only some:
    the words of its lines are joined until all names differ.
    """
    full = [i for i, row in enumerate(rows) if row.wide and not row.comment]
    if not full:
        raise DataError(f"{where}: the file holds only comments; expected a header and rows.")
    place = next((i for i in full if not rows[i].title), full[0])
    typed = _typed([row for row in rows[place + 1 :] if row.wide] or [rows[place]])
    stamps: dict[int, Shape] = {at: kind for at, kind in typed.items() if kind == "stamp"}
    if stamps and all(rows[place].shapes[at] in (kind, "empty") for at, kind in typed.items()):
        for i in range(place - 1, -1, -1):  # it is a row: the header may be a comment
            if rows[i].comment and rows[i].wide:
                first, *others = rows[i].fields
                return {i}, place, (first.strip().lstrip("#/ ") or first, *others)
        width = len(rows[place].fields)
        for row in rows[:place]:
            if 1 < len(row.fields) < width and not row.comment:
                raise DataError(
                    f"{where}: the rows have {width} fields, but the header, '{row.text:.80}', has "
                    f"{len(row.fields)}: give each column a name"
                    + ", or quote numbers with a decimal comma."
                    * (rows[place].separator == ",")
                )
        stamp = rows[place].fields[min(stamps)].strip()
        raise DataError(
            f"{where}: the first line holds a stamp, '{stamp:.80}', where a name is expected; give "
            "the file a header."
        )
    above = [place]
    for i in range(place + 1, len(rows)):
        row = rows[i]
        if row.wide and not row.title and row.fits(stamps or typed):
            break
        above += [i] * (row.wide and not row.comment)
    timed = [
        i for i in above if any(_TIMES.fullmatch(name.strip().lower()) for name in rows[i].fields)
    ]
    if len(timed) == 1:
        place = timed[0]
    end = place + 1
    while end < len(rows):
        row = rows[end]
        comment, units = row.comment and not row.wide, row.wide and row.clashes(typed)
        if not (units or row.blank or comment or _RULE.fullmatch(row.text)):
            break
        end += 1
    names = tuple(rows[place].fields)
    times = [at for at, name in enumerate(names) if _TIMES.fullmatch(name.strip().lower())]
    several = [
        i
        for i in above
        if i == place
        or (i < place and not rows[i].title)
        or (i > place and not any(rows[i].fields[at].strip() for at in times or [0]))
    ]
    if len(several) == 1 or all(name.strip() for name in names[1:]):
        return {place}, end, names
    header = set[int]()
    joined = [""] * len(names)
    for i in several:
        words = [field.strip() for field in rows[i].fields]
        if i == min(several):  # a name above several columns stands in the first of them
            words = [word or words[max(j for j in range(at + 1) if words[j] or not j)]
                     for at, word in enumerate(words)]  # fmt: skip
        if not header or len({*joined}) < len(joined):
            joined = [f"{name} {word}".strip() for name, word in zip(joined, words, strict=True)]
        header.add(i)
    for at in times:
        joined[at] = names[at].strip()
    return header, max(end, *(i + 1 for i in header)), tuple(joined)
