"""Cells of a table as numbers and words.

A cell that is neither raises a DataError that names file, row, column and value.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.known import MOST_WORDS

NO_VALUE = frozenset(
    ["", "na", "n/a", "#na", "#n/a", "<na>", "nan", "-nan", "null", "none", "-", "--", "–", "—",
     ".", "..", "?", ":", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"]
)  # fmt: skip
"""The marks of a missing value, in lower case."""

_NO_VALUE = pa.array(
    sorted({"NaN", *(form for m in NO_VALUE for form in (m, m.upper(), m.capitalize()))})
)
LONGEST = 100
"""The most characters of a cell that are searched for a fault, and are shown: the time to search
grows faster than they do."""

FLAG = r"^(?i:true|false|yes|no)$"

_BLANK = "[ \u00a0\u202f\u2009]"
_SIGN = "[-+\u2212]"
_GROUPS = rf"[1-9]\d{{0,2}}(?:(?:{_BLANK}\d{{3}})+|(?:['’]\d{{3}})+"
_OTHER = r"(?:[eE][-+]?\d+)?|(?i:inf|infinity)"
_POINT = rf"(?:{_GROUPS}|(?:,\d{{3}})+)(?:\.\d*)?|(?:\d+\.?\d*|\.\d+){_OTHER})"
_COMMA = rf"(?:{_GROUPS}|(?:\.\d{{3}})+)(?:,\d*)?|(?:\d+,?\d*|,\d+){_OTHER})"
_FORMS = {".": f"^{_POINT}$", ",": f"^{_COMMA}$"}
"""The patterns of numbers by their decimal sign, which may be absent."""
_MARKS = {".": f"[,'’]|{_BLANK}", ",": f"[.'’]|{_BLANK}"}
"""The possible marks of thousands, by the decimal sign."""

LIKE_NUMBER = rf"(?P<sign>{_SIGN}?){_BLANK}?(?P<body>{_POINT}|{_COMMA})"
"""The pattern of a number in any supported form."""


@dataclass(frozen=True)
class Written:
    """How the numbers of a column are written.

    The `decimal` sign is "" if the file does not show it; a single point then counts as one if
    `pointed`. Cells equal to one of `missing` have no value. `remedy` is the advice in messages
    when the decimal sign is in doubt.
    """

    decimal: str = ""
    pointed: bool = True
    missing: tuple[str, ...] = ()
    remedy: str = "name the decimal sign"


PLAIN = Written()


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def plain(cells: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Cells as one array of their values, without a dictionary."""
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def trimmed(text: pa.Array, missing: tuple[str, ...] = ()) -> pa.Array:
    """Words without surrounding blanks; marks of a missing value become null."""
    text = pc.utf8_trim_whitespace(text)
    marks = pa.concat_arrays([_NO_VALUE, pa.array(missing, pa.string())])
    return pc.if_else(pc.is_in(text, marks.cast(text.type)), None, text)


Complain: TypeAlias = Callable[[int, str], DataError]
"""Makes the error about a row (counted from 0 in the batch) from what is wrong with it."""


def to_numbers(cells: pa.Array, complain: Complain, how: Written = PLAIN) -> NDArray[np.float64]:
    """Cells as float64, NaN where there is no value; true and yes are 1, false and no are 0."""
    cells = plain(cells)
    if not is_text(cells.type):
        try:
            numbers = pc.cast(cells, pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            numbers = _careful(pa.array([str(cell) for cell in cells]), complain, how)
    elif (numbers := _plain(cells, how)) is None:
        numbers = _careful(cells, complain, how)
    values: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)
    for mark in how.missing:
        if (same := values == _number(mark, how.decimal)).any():
            values = np.where(same, np.nan, values)
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise complain(row, f"expected a finite number, got {cells[row]}")
    return values


def _number(mark: str, decimal: str) -> float:
    try:
        return float(mark.replace(",", ".") if decimal == "," else mark)
    except ValueError:
        return np.nan


def _plain(text: pa.Array, how: Written) -> pa.Array | None:
    """The numbers as Arrow reads them, None if it cannot or must not."""
    if not (how.decimal or how.pointed):
        return None
    if how.decimal == ",":
        if pc.any(pc.match_substring(text, ".")).as_py():
            return None
        text = pc.replace_substring(text, ",", ".")
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return None


def _careful(cells: pa.Array, complain: Complain, how: Written) -> pa.Array:
    text = trimmed(cells, how.missing)
    if pc.all(pc.match_substring_regex(text, FLAG)).as_py():
        yes = pa.array(["true", "yes"], text.type)
        flags = pc.cast(pc.is_in(pc.utf8_lower(text), yes), pa.float64())
        return pc.if_else(pc.is_null(text), None, flags)
    if (numbers := _plain(text, how)) is not None:
        return numbers
    parts = pc.extract_regex(text, f"^{LIKE_NUMBER}$")
    body = pc.struct_field(parts, "body")
    decimal = how.decimal or _decimal(text, how, complain)
    good = pc.fill_null(pc.match_substring_regex(body, _FORMS[decimal]), False)
    good = pc.or_(pc.is_null(text), good)
    if not pc.all(good).as_py():
        row = int(pc.index(good, False).as_py())
        raise complain(row, _no_number(cells[row].as_py(), body[row].as_py(), decimal, how.remedy))
    digits = pc.replace_substring_regex(body, _MARKS[decimal], "")
    numbers = pc.cast(pc.replace_substring(digits, ",", "."), pa.float64())
    minus = pc.match_substring_regex(pc.struct_field(parts, "sign"), "[-\u2212]")
    return pc.if_else(minus, pc.negate(numbers), numbers)


def _no_number(cell: str, body: str | None, decimal: str, remedy: str) -> str:
    expected = f"expected a number, got {cell!r:.80}"
    if body is None and re.fullmatch(rf"{LIKE_NUMBER}-", cell.strip()[:LONGEST]):
        return f"{expected}; write the minus before the number"
    if body is None and re.fullmatch(r"\([\d.,]+\)", cell.strip()[:LONGEST]):
        return f"{expected}; write it as -{cell.strip('() ')}"
    if body is None and len(cell) <= LONGEST and not re.search(r"\d", cell):
        return f"{expected}; {spelled('missing', cell.strip())} takes it for a missing value"
    if body is None:
        return expected
    sign = {".": "point", ",": "comma"}[decimal]
    return f"{expected}; the others have a {sign}. Correct it, or {remedy}"


Evidence: TypeAlias = tuple[str, str, str]
"""The first numbers with a decimal point, with a decimal comma, and with an unclear sign."""


def evidence(text: pa.Array, pointed: bool | None) -> Evidence:
    """The evidence about the decimal sign in the numbers among trimmed words.

    "1,234" by itself shows nothing. If all whole numbers have at most three digits, "1,230" marks
    thousands: decimals of fixed length would appear in all numbers, and other decimals do not end
    in 0. If `pointed` is None, this rule is not used.
    """
    body = pc.struct_field(pc.extract_regex(text, f"^{LIKE_NUMBER}$"), "body").drop_null()
    point, comma = (pc.match_substring_regex(body, form) for form in _FORMS.values())
    unclear = body.filter(pc.and_(pc.and_(point, comma), pc.match_substring_regex(body, "[.,]")))
    with_point = _first(body.filter(pc.and_not(point, comma)))
    with_comma = _first(body.filter(pc.and_not(comma, point)))
    first = _first(unclear)
    if with_point or with_comma or not first or pointed is None:
        return with_point, with_comma, first
    sign = first.strip("0123456789")
    if not pc.all(pc.match_substring(unclear, sign)).as_py():
        return "", "", first
    if pointed and sign == ".":
        return first, "", first
    whole = body.filter(pc.match_substring_regex(body, r"^\d+$"))
    short = len(whole) > 0 and pc.max(pc.utf8_length(whole)).as_py() <= 3
    if short and pc.any(pc.ends_with(unclear, "0")).as_py():
        return (first, "", first) if sign == "," else ("", first, first)
    return "", "", first


def learn(cells: pa.Array, how: Written) -> Evidence:
    """Learn from the first cells of a column how its numbers are written."""
    if _plain(cells, how) is not None:
        return _first(cells.filter(pc.match_substring(cells, "."))), "", ""
    words = trimmed(cells, how.missing).drop_null()
    body = pc.struct_field(pc.extract_regex(words, f"^{LIKE_NUMBER}$"), "body")
    if 2 * body.null_count > len(words):
        return "", "", ""
    return evidence(words, None if how.decimal else how.pointed)


def _decimal(text: pa.Array, how: Written, complain: Complain) -> str:
    """The decimal sign found from the numbers themselves. Raises if it stays ambiguous."""
    point, comma, unclear = evidence(text, how.pointed)

    def row(cell: str) -> int:
        return int(pc.index(pc.match_substring(text, cell), True).as_py())

    if point and comma:
        later, other = sorted([point, comma], key=row)[::-1]
        raise complain(row(later), f"'{later}', where '{other}' has the other decimal sign")
    if unclear and not (point or comma):
        whole, part = unclear.replace(",", ".").split(".")
        raise complain(
            row(unclear), f"'{unclear}' may be {whole}{part} or {whole}.{part}; {how.remedy}"
        )
    return "," if comma else "."


def _first(words: pa.Array) -> str:
    return words[0].as_py() if len(words) else ""


def to_words(cells: pa.Array) -> tuple[list[str], NDArray[np.int64]]:
    """The different words of some cells, and the index of each cell's word, -1 if empty."""
    if not pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    words = cells.dictionary.cast(pa.string()).to_pylist()
    places = pc.fill_null(cells.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    used = np.zeros(len(words) + 1, dtype=bool)  # the last is for empty cells
    used[places] = True
    used[[place for place, word in enumerate(words) if not word] + [-1]] = False
    moved = np.where(used, np.cumsum(used) - 1, -1)
    return [word for word, is_used in zip(words, used, strict=False) if is_used], moved[places]


def words_of(
    column: str, parts: Sequence[pa.Array], missing: tuple[str, ...], where: str
) -> tuple[tuple[str, ...], int]:
    """The different words of a column in several parts, sorted, and how many cells are empty.

    Raises DataError for more than MOST_WORDS words.
    """
    words, empty = set[str](), 0
    for cells in parts:
        met, places = categories(cells, missing)
        words |= {*met}
        empty += int((places < 0).sum())
        if len(words) > MOST_WORDS:
            raise DataError(
                f"{where}: column '{column}' has more than {MOST_WORDS} different words, "
                f"such as {quoted(sorted(words)[:3])}; leave it out, group the words, or correct "
                "them if they should be numbers."
            )
    return tuple(sorted(words)), empty


def indicators(
    cells: pa.Array, words: Sequence[str], missing: tuple[str, ...], complain: Complain
) -> NDArray[np.float64]:
    """Cells (N,) as 0 and 1 (N, words), NaN for empty cells. Complains about an unknown word."""
    met, places = categories(cells, missing)
    known = {word: place for place, word in enumerate(words)}
    unknown = [word for word in met if word not in known]
    if unknown:
        row = int((places == met.index(unknown[0])).argmax())
        raise complain(row, f"'{unknown[0]:.64}' is none of the known words: {', '.join(words)}")
    table = np.vstack([np.eye(len(words))[[known[word] for word in met]], [np.nan] * len(words)])
    return table[places]


def categories(cells: pa.Array, missing: tuple[str, ...]) -> tuple[list[str], NDArray[np.int64]]:
    """`to_words` of trimmed cells, without marks of a missing value."""
    return to_words(trimmed(cells.cast(pa.string()), missing))
