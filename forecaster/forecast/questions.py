"""Convert a frame or a file to what a model reads, and its numbers back to a frame."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_float_dtype
from typing_extensions import TypeVar

from forecaster.base.errors import DataError, UsageError
from forecaster.base.spelling import spelled
from forecaster.config.flags import Policy
from forecaster.datasets import reader
from forecaster.datasets.calendar import future_times
from forecaster.datasets.items import Items, id_parts
from forecaster.datasets.reader.irregular import is_closed
from forecaster.datasets.series import Series, quoted
from forecaster.forecast.notices import Notice, NoticeCode, ShortHistory

if TYPE_CHECKING:
    from forecaster.datasets.reading import Reading

TOGETHER = 1024
"""The number of a panel's series that are forecast at once."""


@dataclass(frozen=True)
class Form:
    """The form of a model's histories: how they are read, and how many rows.

    `columns` are those of the model, in its order. The model reads at most the newest `past` rows
    and needs `needs` of them; some of its parts can forecast from `least` rows. `horizon` is in
    steps.
    """

    reading: "Reading"
    columns: tuple[str, ...]
    past: int
    needs: int
    least: int
    horizon: int


@dataclass(frozen=True, eq=False)
class Question:
    """What a model is asked: to forecast B series.

    values (B, P, C): the newest rows in units, columns in the order of the model, NaN where
    missing; starts (B,): the time of each first row. covariates (B, P + T, K): those known ahead,
    complete; static: attributes by name, each (B,); items (B,): the names of the series in a panel,
    None if unknown, by default all are. rows (B,): how many of the newest rows each has, by default
    all; values before them are missing, and covariates before them repeat the first one: no part
    that forecasts from that many rows reads them.
    """

    values: np.ndarray
    starts: pd.DatetimeIndex
    covariates: np.ndarray | None = None
    static: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    items: Sequence[str | None] = ()
    rows: Sequence[int] = ()


Frame = Any
"""A DataFrame of pandas, Polars or another library that narwhals supports, or an Arrow table."""

Given = TypeVar("Given", default=pd.DataFrame)
"""The kind of frame that is given, and comes back."""

Placed = list[tuple[int | None, Notice]]
"""Notices, each with the place of its series in a question, or None if it concerns all of them."""

Run = Callable[[Question, int], tuple[np.ndarray, Placed]]
"""Returns the forecasts (B, at least the requested steps, targets, 1 + levels) that a question asks
for: the forecast, then the quantiles; and what is to be said of them."""


Ahead = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class History:
    """One history, or those of a panel, after reading: asks the model, and builds the table of its
    answers. `chosen` are the places of the series that are forecast. The newest `drop` rows of each
    are not part of its history; `ahead` returns the covariates (B, T, K) known over the horizon of
    some series, by their places and the rows at which that begins, None for a model without any.
    """

    form: Form
    steps: int
    levels: Sequence[float]
    series: Series
    items: Items
    chosen: np.ndarray
    ahead: Ahead | None
    drop: int
    where: str
    short: ShortHistory
    say: Callable[[str], None]

    def questions(self) -> Iterator[Question]:
        """What to ask the model, TOGETHER series at a time. Raises DataError for a short one."""
        for first in range(0, len(self.chosen), TOGETHER):
            yield self.question(self.chosen[first : first + TOGETHER])

    def question(self, which: np.ndarray, drop: int | np.ndarray | None = None) -> Question:
        """What to ask about some series, by their places; `drop` replaces our own.

        Raises DataError for a short one.
        """
        drop = self.drop if drop is None else drop
        series, items, rows = self.series, self.items, self._rows(which, drop)
        past, end = self.form.past, items.bounds[which + 1] - drop
        places = end[:, None] + np.arange(-past, 0)
        there = np.arange(past) >= past - rows[:, None]
        values = series.values[np.where(there, places, 0)].astype(np.float64)
        values[~there] = np.nan
        covariates = None
        if self.ahead is not None and series.known is not None:
            before = series.known[np.maximum(places, items.bounds[which][:, None])]
            covariates = np.concatenate([before, self.ahead(which, end)], axis=1)
        return Question(
            values,
            _starts(series, items.places[which] + items.lengths[which] - drop - past),
            covariates,
            {name: list(found[which]) for name, found in series.static.items()},
            [items.names[int(item)] for item in which],
            rows.tolist(),
        )

    def _rows(self, which: np.ndarray, drop: int | np.ndarray) -> np.ndarray:
        """How many of the newest P rows some items have. Raises DataError for too few."""
        form, lengths = self.form, self.items.lengths[which] - drop
        least = form.least if self.short == "drop" else form.needs
        if (lengths < least).any():
            short = int((lengths < least).argmax())
            name, length = self.items.names[int(which[short])], max(0, lengths[short])
            what = f"{self.where}, series '{name}'" if name else self.where
            remedy = f"give at least {least} rows" + (", or leave the series out" if name else "")
            if length >= form.least:
                remedy += "; short_history=drop forecasts from them with fewer parts of the model"
            raise DataError(f"{what} has {length} rows, the model needs {least}: {remedy}")
        rows: np.ndarray = np.minimum(lengths, form.past)
        return rows

    def observed(self, place: int) -> "History":
        """The history of one series up to its last row with a value of the model; nothing is known
        ahead: what is known over the horizon is nan."""
        rows = slice(self.items.bounds[place], self.items.bounds[place + 1])
        empty = np.isnan(self.series.values[rows]).all(axis=1)[::-1]
        drop = int(empty.argmin()) if len(empty) else 0
        known = self.series.known

        def unknown(which: np.ndarray, begin: np.ndarray) -> np.ndarray:
            assert known is not None
            return np.full((len(which), self.form.horizon, known.shape[1]), np.nan)

        return replace(self, drop=drop, ahead=None if known is None else unknown)

    def newest(self, place: int, count: int) -> tuple[pd.DatetimeIndex, np.ndarray]:
        """The stamps (N,) and values (N, C) of the newest rows of a history, `count` at most."""
        series, items = self.series, self.items
        rows = int(items.lengths[place]) - self.drop
        first = max(0, rows - count)
        begin, step = int(items.bounds[place]), int(items.places[place])
        return series.times[step + first : step + rows], series.values[begin + first : begin + rows]

    def answer(self, run: Run) -> pd.DataFrame:
        """`table` with the numbers that `run` returns; its quantiles are at the sorted levels."""
        parts: list[np.ndarray] = []
        remarks: list[tuple[str | None, Notice]] = []
        for question in self.questions():
            values, notices = run(question, self.steps)
            parts.append(values[:, : self.steps])
            remarks += [
                (None if place is None else question.items[place], notice)
                for place, notice in notices
            ]
        for sentence in by_code(remarks):
            self.say(sentence)
        table = self.table(np.concatenate(parts))
        left = self.opened(table)
        if len(left) < len(table):
            self.say(f"{len(table) - len(left):,} of {len(table):,} steps are closed: left out")
        return left

    def opened(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table of answers that lie in the open hours of the data."""
        reading = self.form.reading
        if not (reading.closed or reading.holidays):
            return table
        times = pd.DatetimeIndex(table[str(reading.time)])
        closed = is_closed(times.tz_localize(None), reading)
        return table[~closed].reset_index(drop=True)

    def table(self, values: np.ndarray) -> pd.DataFrame:
        """The forecasts (S, steps, targets, 1 + levels) with stamps and names, in the form of the
        data. Raises DataError if those of a wide panel do not begin at the same time."""
        reading, items, steps = self.form.reading, self.items, self.steps
        times = [
            future_times(self.series.times[end], steps, reading.freq or "")
            for end in (items.places + items.lengths)[self.chosen] - self.drop - 1
        ]
        suffixes = ["", *(f" {level}" for level in self.levels)]
        labels = [items.names[item] for item in self.chosen]
        names: Sequence[str]
        if reading.panel:
            names, grid = labels, times[0]
            if any(not stamps.equals(grid) for stamps in times[1:]):
                raise DataError(
                    f"{self.where}: the columns end at different times, so their forecasts do not "
                    "fit into one table; leave out the rows after the end of the shortest column, "
                    "or use the long form"
                )
            values = values[:, :, 0].transpose(1, 0, 2)
        else:
            names, grid = reading.targets, pd.DatetimeIndex(np.concatenate(times))
        if reading.timezone == "UTC":
            grid = grid.tz_localize("UTC")
        columns = [name + suffix for name in names for suffix in suffixes]
        result = pd.DataFrame(values.reshape(len(grid), -1), columns=columns)
        result.insert(0, str(reading.time), grid)
        parts = [id_parts(label, len(reading.id)) for label in labels]
        for place, column in enumerate(reading.id):
            result.insert(place, column, np.repeat([part[place] for part in parts], steps))
        return result


def ask(
    form: Form,
    history: pd.DataFrame | str | Path | bytes,
    horizon: int | None,
    levels: Sequence[float],
    future: Frame | str | Path | None,
    policy: Policy | None,
    where: str,
    say: Callable[[str], None] = lambda _: None,
    short_history: ShortHistory | None = None,
    most: int | None = None,
    apart: bool = False,
) -> History:
    """Read the arguments of `Predictor.predict`.

    `most` limits the number of values between the first and the last stamp. Series of a panel from
    which no part of the model can forecast are left out and named, unless they are refused. If what
    is known ahead comes `apart`, it is not read, and `History.observed` is to be asked.
    """
    if policy is not None:
        _one_of("policy", policy, get_args(Policy))
    if short_history is not None:
        _one_of("short_history", short_history, get_args(ShortHistory))
    steps = steps_of(horizon, form.horizon)
    reading = replace(form.reading, policy=policy or form.reading.policy)
    ahead = form.horizon if reading.future_covariates and future is None else 0
    dataset = reader.history(history, reading, where=where, most=most, ahead=ahead)
    for sentence in dataset.said:
        say(sentence)
    series = dataset.series.select(form.columns)
    beyond, drop = (None, 0) if apart else _ahead(future, series, form, policy or "error")
    items, chosen = series.layout, np.arange(1)
    short = short_history or ("refuse" if series.items is None else "drop")
    if series.items is not None:
        enough = (items.lengths - drop >= form.least) | (short == "refuse")
        if not enough.any():
            enough[:] = True  # the first one is refused
        if left := [name for name, on in zip(items.names, enough, strict=True) if not on]:
            text = f"left out, with fewer than the {form.least} rows that any forecast needs: "
            say(Notice(NoticeCode.LEFT_OUT, text + quoted(left)))
        chosen = np.flatnonzero(enough)
    return History(
        form, steps, sorted(set(levels)), series, items, chosen, beyond, drop, where, short, say
    )


def steps_of(horizon: int | None, most: int) -> int:
    """The requested number of steps, by default `most`. Raises UsageError outside 1 to `most`."""
    if horizon is None:
        return most
    if not isinstance(horizon, Integral) or isinstance(horizon, bool) or not 1 <= horizon <= most:
        raise UsageError(f"this model forecasts 1 to {most} steps, got horizon={horizon!r}")
    return int(horizon)


def numbers(name: str, value: Any) -> list[float]:
    """One number or several as a list. Raises UsageError with the argument's name."""
    found = [value] if isinstance(value, Real) else value
    if isinstance(found, Iterable):
        found = [*found]
        if all(isinstance(each, Real) and not isinstance(each, bool) for each in found):
            return [float(each) for each in found]
    raise UsageError(f"{name}: expected a number or several, got {value!r}")


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise UsageError(f"{name}: expected one of {', '.join(known)}, got {value!r}")


def by_code(found: Sequence[tuple[str | None, Notice]]) -> Iterator[Notice]:
    """One sentence for each code, with the series that it is about; None stands for all of them."""
    for code in dict.fromkeys(notice.code for _, notice in found):
        own = [(name, notice) for name, notice in found if notice.code is code]
        names = [*dict.fromkeys(name for name, _ in own if name)]
        if not names:
            yield from dict.fromkeys(notice for _, notice in own)
            continue
        text = f"series '{names[0]}': {own[0][1]}"
        if names[1:]:
            text += f"; likewise {quoted(names[1:])}"
        yield Notice(code, text)


def _starts(series: Series, steps: np.ndarray) -> pd.DatetimeIndex:
    """The times at steps of a grid; steps may lie before the grid's first one."""
    if (before := -int(steps.min())) <= 0:
        return series.times[steps]
    earlier = pd.date_range(end=series.times[0], periods=before + 1, freq=series.freq)[:-1]
    return pd.DatetimeIndex(earlier.append(series.times)[steps + before])


def _ahead(
    future: Frame | str | Path | None, series: Series, form: Form, policy: Policy
) -> tuple[Ahead | None, int]:
    """`ahead` of a history, and the number of rows at the end of each item that hold what is known
    over the horizon."""
    horizon, reading = form.horizon, form.reading
    names, own = reading.future_covariates, series.layout
    if not names or series.known is None:
        if future is not None:
            raise UsageError("expected no future: this model takes no covariates known ahead")
        return None, 0
    if future is None:
        longer = own.lengths > horizon
        last = own.bounds[1:][longer, None] - np.arange(1, horizon + 1)
        if not longer.any() or not np.isnan(series.values[last]).all():
            index = (*reading.id, reading.time)
            raise UsageError(
                f"this model needs {', '.join(names)} for the {horizon} steps ahead: as rows "
                "after the history that have no other values, or in a separate file "
                f"({spelled('future')}) with the columns {', '.join(map(str, (*index, *names)))}; "
                "the command `forecaster future`, make_future in Python, writes its rows to fill in"
            )
        return following(series, horizon), horizon
    # each stamp that is missing is named below
    beyond = rows_ahead(as_pandas(future)[0], form, "sort" if policy == "error" else policy)
    theirs = beyond.layout
    places = {name: place for place, name in enumerate(theirs.names)}

    def covariates(which: np.ndarray, begin: np.ndarray) -> np.ndarray:
        rows = []
        for item in which:
            name = own.names[int(item)]
            place = places.get(name, -1) if beyond.items is not None else 0
            end = series.times[own.places[item] + own.lengths[item] - 1]
            times = future_times(end, horizon, series.freq)
            rows.append(_over_horizon(beyond, place, times, name, reading))
        return np.stack(rows)

    return covariates, 0


def following(series: Series, horizon: int) -> Ahead | None:
    """`ahead` of a history whose rows go on over the horizon."""
    known = series.known
    if known is None:
        return None
    return lambda which, begin: known[begin[:, None] + np.arange(horizon)]


def rows_ahead(
    future: Frame | str | Path | bytes,
    form: Form,
    policy: Policy = "error",
    most: int | None = None,
) -> Series:
    """The covariates known ahead of each series, from a file of their own; nan where missing."""
    reading = replace(
        form.reading,
        targets=form.reading.future_covariates, past_covariates=(), future_covariates=(),
        static=(), panel=False, policy=policy, drop_last=False,
    )  # fmt: skip
    return reader.history(future, reading, where="the future", most=most).series


def _over_horizon(
    beyond: Series, place: int, times: pd.DatetimeIndex, name: str, reading: "Reading"
) -> np.ndarray:
    """The covariates (T, C) of the item at a `place`, -1 without rows, at the `times` of a horizon.

    Closed steps may be left out. Raises DataError for a missing value of another step, and for rows
    that lie outside.
    """
    what = f"the future of series '{name}'" if name else "the future"
    ends = f"from {times[0]} to {times[-1]}"
    found = np.full((len(times), len(beyond.columns)), np.nan)
    if place >= 0:
        items = beyond.layout
        first, rows = items.places[place], slice(items.bounds[place], items.bounds[place + 1])
        stamps = beyond.times[first : first + items.lengths[place]]
        at = times.get_indexer(stamps)
        if (at < 0).any():
            raise DataError(
                f"{what}: the row at {stamps[int((at < 0).argmax())]} lies outside the "
                f"{len(times)} steps of the horizon, {ends}"
            )
        found[at] = beyond.values[rows]
    missing = np.isnan(found)
    if not missing.any():
        return found
    missing &= ~is_closed(times.tz_localize(None), reading)[:, None]
    if missing.any():
        step, column = np.argwhere(missing)[0]
        raise DataError(
            f"{what}: no value of '{beyond.columns[column]}' at {times[step]}, but what is known "
            f"ahead must be complete, {ends}"
        )
    whole: np.ndarray = pd.DataFrame(found).ffill().bfill().to_numpy()
    return whole


@dataclass(frozen=True)
class Back:
    """Converts an answer to the kind of frame that asked for it: `kinds` are its types by column.

    Times keep their zone and unit, ids and days their type. `index` is the name of the index if it
    holds the times, "" if it has none; `library` is that of the frame, `own` its types there.
    """

    kinds: Mapping[Any, Any]
    index: str | None = None
    library: Literal["pandas", "polars", "arrow"] = "pandas"
    own: Any = None

    def __call__(self, ahead: pd.DataFrame) -> Frame:
        names = [str(name) for name in ahead]
        stamps = [name for name in names if is_datetime64_any_dtype(ahead[name])]
        for name in stamps:
            kind = self.kinds.get(name if self.index is None else self.index)
            if kind is not None and is_datetime64_any_dtype(kind):
                ahead[name] = _as_stamps(ahead[name], kind)
        if self.index is not None and len(stamps) == 1:
            return ahead.set_index(stamps[0]).rename_axis(index=self.index or stamps[0])
        if self.library == "pandas":
            return ahead
        import narwhals.stable.v2 as nw

        plain = nw.from_native(ahead)
        made = plain.to_polars() if self.library == "polars" else plain.to_arrow()
        casts = [
            nw.col(name).cast(self.own[name])
            for name in names
            if name in self.own and not is_float_dtype(ahead[name])
        ]
        return nw.from_native(made).with_columns(*casts).to_native()


def _as_stamps(stamps: "pd.Series[Any]", kind: Any) -> "pd.Series[Any]":
    """The stamps of an answer with the zone and the unit of a type."""
    if isinstance(kind, pd.DatetimeTZDtype):
        if stamps.dt.tz is None:  # the local clock, which skips an hour and repeats another
            first = np.ones(len(stamps), dtype=bool)
            stamps = stamps.dt.tz_localize(kind.tz, ambiguous=first, nonexistent="shift_forward")
        stamps = stamps.dt.tz_convert(kind.tz)
        return stamps.astype(kind)
    return stamps if stamps.dt.tz is not None else stamps.astype(kind)


def as_pandas(frame: Frame, file: bool = True) -> tuple[Any, Callable[[pd.DataFrame], Frame]]:
    """A pandas frame, and a function that converts an answer to the caller's kind; the names of
    files stay, unless `file` is false.

    An answer has its times in the index if the frame has them there.
    """
    if file and isinstance(frame, str | Path):
        return frame, unchanged
    if isinstance(frame, pd.DataFrame):
        time = frame.index.name or "time"
        stamps = isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex)
        if stamps and time not in frame.columns:
            name = str(frame.index.name or "")
            return frame, Back({name: frame.index.dtype}, index=name)
        named = [name for name in frame.index.names if name is not None and name not in frame]
        table = frame.reset_index(named) if named else frame
        return table, Back(dict(table.dtypes))
    import narwhals.stable.v2 as nw

    try:
        own = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise UsageError(
            "expected a DataFrame of pandas or Polars, an Arrow table"
            + (" or a file, got " if file else "; read a file first; got ")
            + type(frame).__name__
        ) from None
    table = own.to_pandas()
    kinds = dict(table.dtypes)
    if own.implementation.is_polars():
        return table, Back(kinds, library="polars", own=dict(own.schema))
    if own.implementation.is_pyarrow():
        return table, Back(kinds, library="arrow", own=dict(own.schema))
    return table, Back(kinds)


def unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame
