"""The form of the stamps of a table, found over the whole table, and the times they mean.

Stamps with a time zone are converted to UTC; stamps without one stay in the local time of their
source.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.reader.cells import LONGEST, Complain
from forecaster.datasets.reader.files import RawTable, Rows
from forecaster.datasets.reader.stamps import (
    FORMS,
    as_text,
    as_words,
    date,
    different,
    evenly,
    exist,
    matches,
    moments,
)  # fmt: skip
from forecaster.datasets.reader.unread import is_rounded, over_two_years, why
from forecaster.datasets.reading import Reading, Stamps

USUAL = ("ds", "date", "datetime", "timestamp", "time")
"""The usual names of time columns, the more common ones first."""

COUNTED = (*USUAL, "ts", "epoch", "unix", "unixtime", "year", "quarter", "month", "day")
"""The usual names of time columns of whole numbers."""

ORDERS = ("day-first", "month-first", "year-first")
"""The forms that only differ in the order of day, month and year."""

SHOWN = 100
"""The words of a column searched for one that can be explained: a fault is usually in most."""

_MIDNIGHT = r"(?i)[ t]\s*(?:0?0:00(?::00)?(?:\.0+)?|12:00(?::00)? am)$"
"""The time of day that a program writes behind a date alone."""


def time_columns(reading: Reading, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of a table that give the time: one, or several together.

    If a model has several, a table with the one time column of its forecasts is accepted too.
    """
    time, several = reading.time, reading.time_columns
    if time is None:
        return ()
    if several and ({*several} <= {*columns} or time not in columns):
        return several
    if time in columns or "," not in time:
        return (time,)
    return tuple(name if name in columns else name.strip() for name in time.split(","))


class TimeColumns:
    """The columns that give the time: one, or several, whose cells are joined to one stamp.

    Of several, the first is a date, and the others hours, minutes and seconds; or it is a `year`,
    and months or quarters, days, hours, ... follow. Raises UsageError for more than these.
    """

    def __init__(self, names: tuple[str, ...], sample: pa.Table) -> None:
        self.names = names
        self.year = len(names) > 1 and bool(matches(different(sample[names[0]]), "year").all())
        # What joins each further part of a stamp to those before it.
        self.marks = ("-", "-", " ", ":", ":") if self.year else (" ", ":", ":")
        if len(names) > len(self.marks) + 1:
            raise UsageError(
                f"the time: {quoted(names)} are too many columns; expected a date, hours, minutes "
                "and seconds, or a year, months, days and these."
            )

    def cells(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """The stamps of some rows: 31/01/2020 and 5 become 31/01/2020 05, 2020 and 1 2020-01."""
        first, *others = (rows[name] for name in self.names)
        if not others:
            return first
        text = pc.replace_substring_regex(as_text(first), _MIDNIGHT, "")
        for name, mark, part in zip(self.names[1:], self.marks, others, strict=False):
            if self.year and (named := re.match("q|w(?=eek|k)", name.lower())):
                mark += named[0]
            words = pc.replace_substring_regex(as_text(part), r"(?i)^[qw]|\.0*$", "")
            width = 1 if mark.endswith("q") else 2
            text = pc.binary_join_element_wise(text, pc.utf8_lpad(words, width, "0"), mark)
        return text


class Clock:
    """How the stamps in the `columns` of a table are written: in which `form`, and `zoned` or not.

    That is found from all `rows` if the first are ambiguous, and added to the `reading`. A form in
    it holds; if it is complete and this table uses another form, that is found again. `messages`
    gets sentences about what is not obvious. `zoned` is set by the first stamps that are read
    unless it is known. Raises DataError if the stamps are ambiguous, and for a cell that is not a
    stamp.
    """

    def __init__(
        self, table: RawTable, rows: Sequence[Rows], reading: Reading, messages: list[str]
    ) -> None:
        names = time_columns(reading, table.columns)
        self.table, self.rows, self.said = table, rows, messages
        self.complete = reading.complete
        self.columns = TimeColumns(names, table.sample)
        self.sample = self.columns.cells(table.sample)
        self.words = different(self.sample)
        self.example = self.words[0].as_py() if len(self.words) else ""
        form = reading.stamps
        if form and form.form not in FORMS:
            raise DataError(
                f"the model reads stamps of the form '{form.form}', which this version does not "
                f"know; use the version that trained it. Known: {', '.join(FORMS)}."
            )
        self.form = self._find_form(form.form if form else "")
        name = reading.time if self.columns.year and reading.time_columns else None
        self.reading = replace(
            reading,
            time=name or ("time" if self.columns.year else names[0]),
            time_columns=names if len(names) > 1 else (),
            stamps=Stamps(self.form),
        )
        self.zoned = False if reading.timezone == "naive" else None

    def shown(self, rows: Rows, row: int) -> str:
        return " ".join(str(rows.cells[column][row]) for column in self.columns.names)

    def read(self, rows: Rows) -> NDArray[np.int64]:
        """The stamps of some rows, in microseconds since 1970."""
        cells = self.columns.cells(rows.cells)

        def wrong(row: int, what: str) -> DataError:
            return DataError(f"{self.table.row(rows, row)}, {self._column}: {what}.")

        if _is_typed(cells.type) and not cells.null_count:
            zoned = pa.types.is_timestamp(cells.type) and cells.type.tz is not None
            self._check_zones(np.full(len(cells), zoned), cells, wrong)
            times = pc.cast(cells, pa.timestamp("us", "UTC" if zoned else None), safe=False)
            return times.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
        coded = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
        words = as_words(coded.dictionary)
        empty = pc.is_null(words.take(coded.indices)) if words.null_count else pc.is_null(cells)
        if pc.any(empty).as_py():
            raise wrong(int(pc.index(empty, True).as_py()), "an empty stamp")
        if words.null_count:  # no cell has them
            words = words.fill_null("")
        times, zoned = moments(words, self.form)
        places: NDArray[np.int64] = coded.indices.cast(pa.int64()).to_numpy()
        if (bad := np.isnat(times)[places]).any():
            row = int(bad.argmax())
            raise wrong(row, _complaint(words[places[row]].as_py(), self))
        self._check_zones(zoned[places], cells, wrong)
        return times.astype(np.int64)[places]

    @property
    def _column(self) -> str:
        names = self.columns.names
        return f"column{'s' * (len(names) > 1)} {quoted(names)}"

    def _check_zones(self, zoned: NDArray[np.bool_], cells: pa.Array, wrong: Complain) -> None:
        if self.zoned is None and len(zoned):
            self.zoned = bool(zoned[0])
        other = zoned != self.zoned
        if other.any():
            row = int(other.argmax())
            has, others = ("with", "none") if zoned[row] else ("without", "one")
            raise wrong(
                row,
                f"'{cells[row]}' is a stamp {has} a time zone, but the others have {others}: "
                "either all stamps carry a time zone or none does, as in the data of a model",
            )

    # The form of the stamps.

    def _find_form(self, known: str) -> str:
        """The form of the stamps, which is `known` or ""."""
        words = self.words
        if _is_typed(self.sample.type) or not len(words):
            return "iso"
        shares = {
            name: float((exist(words, name) if form.number else matches(words, name)).mean())
            for name, form in FORMS.items()
        }
        if known:
            wrong = self.example
            if shares[known] >= 0.5:
                wrong = "" if known == "iso" else self._try([known])[0][known]
            if not wrong:
                return known
            if not self.complete:
                raise DataError(
                    f"{self._where}: '{wrong}' is no date {FORMS[known].words}, as "
                    f"{spelled('stamps', known)} requires."
                )
        best = max(shares.values())
        if best < 0.5:
            odd = (word for word in words[:SHOWN].to_pylist() if why(word))
            word = next(odd, self.example)
            row = as_words(self.sample).to_pylist().index(word)
            raise DataError(
                f"{self.table.names[0]}, row {row + 1}, column '{self.columns.names[0]}': "
                f"{_complaint(word)}."
            )
        if is_rounded(self.example) and len(words) < len(self.sample):
            raise DataError(
                f"{self._where}: '{self.example}' and the others were rounded when they were "
                "saved, and some are equal now; export them again with all digits."
            )
        if over_two_years(words[:SHOWN].to_pylist()):
            raise DataError(
                f"{self._where}: '{self.example}' is a year over two calendar years; keep the "
                "first."
            )
        forms = [name for name, share in shares.items() if share == best]
        form, reason = forms[0], ""
        if form != "iso" and len(forms) > 1:
            form, reason = self._decide(forms)
        if known:
            self.said.append(
                f"Stamps are written differently from those of the training: {FORMS[form].words}, "
                f"such as '{self.example}'."
            )
        elif form != "iso":
            (meant,), _ = moments(words[:1], form)
            stamp = "" if np.isnat(meant) else f" is {pd.Timestamp(meant)}"
            self.said.append(
                f"Stamps are written {FORMS[form].words}: '{self.example}'{stamp}.{reason}"
            )
        return form

    @property
    def _where(self) -> str:
        return f"{self.table.where}, column '{self.columns.names[0]}'"

    def _try(self, forms: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The first stamp of all rows that is wrong in each form, "" if all are good; and the forms
        in which all are evenly spaced."""
        parts = [as_text(different(self.columns.cells(batch.cells))) for batch in self.rows]
        words = pa.concat_arrays(parts).unique()
        # A cell that is no stamp at all is reported later, with its row.
        words = words.filter(pa.array(np.any([matches(words, form) for form in forms], axis=0)))
        times = {form: moments(words, form)[0] for form in forms}
        bad = {form: words.filter(pa.array(np.isnat(times[form]))) for form in forms}
        wrong = {form: cells[0].as_py() if len(cells) else "" for form, cells in bad.items()}
        even = [form for form in forms if not wrong[form] and evenly(np.unique(times[form]))]
        return wrong, even

    def _decide(self, forms: Sequence[str]) -> tuple[str, str]:
        """The one of several forms that all stamps have; a sentence if their spacing decides."""
        wrong, even = self._try(forms)
        good = [form for form in forms if not wrong[form]]
        if not good:
            (one, first), (other, second) = [*wrong.items()][:2]
            alike = "write all stamps with the year first, as in YYYY-MM-DD"
            raise DataError(
                f"{self._where}: '{first}' is no date {FORMS[one].words}, '{second}' none "
                f"{FORMS[other].words}; {why(first) or why(second) or alike}."
            )
        choices = even or good
        if len(choices) > 1:  # years of two digits are rarely first
            choices = [form for form in choices if form != "year-first"]
        if len(choices) == 1:
            decided = len(good) > 1 and even
            return choices[0], " They are evenly spaced only in this form." if decided else ""
        for shown in self.words.filter(pa.array(exist(self.words, choices[0]))):
            means = {form: moments(pa.array([shown]), form)[0][0] for form in choices}
            if len({*means.values()}) > 1:
                break
        ways = " or ".join(spelled("stamps", form) for form in choices if form in ORDERS)
        raise DataError(
            f"{self._where}: '{shown}' is {' or '.join(map(date, means.values()))}, and no "
            "stamp of the file shows which"
            + (f": name the form with {ways}." if ways and not self.complete else ".")
            + " Stamps with the year first, as in YYYY-MM-DD, are unambiguous."
        )


def _is_typed(kind: pa.DataType) -> bool:
    """Whether cells of this type are stamps, not words or numbers."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _complaint(word: str, clock: Clock | None = None) -> str:
    """What is wrong with a word that should be a stamp, in the form of the others if known."""
    word = word if len(word) <= LONGEST else f"{word[:LONGEST]} ..."
    if clock:
        form, one = clock.form, pa.array([word])
        if matches(one, form)[0] and not FORMS[form].number:
            *_, last = clock.columns.names
            parts = f"if '{last}' counts parts of a day, make one column of stamps of both"
            remedy = why(word) or (len(clock.columns.names) > 1 and parts)
            return f"the date or time '{word}' does not exist" + (f"; {remedy}" if remedy else "")
        if any(exist(one, name)[0] for name in FORMS):
            return f"'{word}' is written differently from '{clock.example}'; expected one form"
    if reason := why(word):
        return f"'{word}' is not read as a time: {reason}"
    return (
        f"expected a stamp with the year first, such as YYYY-MM-DD hh:mm:ss, got '{word}'; months "
        "are named in English, time zones by an offset such as +01:00, and digits count seconds, "
        "milliseconds or microseconds since 1970"
    )


def stamp_share(text: pa.Array) -> float:
    """The share of some words, none of them null, that are written as stamps of one form."""
    return max(float(matches(text, name).mean()) for name, form in FORMS.items() if not form.number)


def counts_time(name: str, cells: pa.Array) -> bool:
    """Whether a column of whole numbers has the name of a time and holds stamps of one form."""
    words = different(cells)
    return name.strip().lower() in COUNTED and any(
        bool(exist(words, key).all()) for key, form in FORMS.items() if form.number
    )
