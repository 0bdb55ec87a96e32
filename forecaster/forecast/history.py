"""From the histories of a frame or a file to questions, and from the answers back to a frame."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_float_dtype
from typing_extensions import TypeVar

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.base.spelling import spelled
from forecaster.config.flags import Policy
from forecaster.datasets import reader
from forecaster.datasets.calendar import future_times
from forecaster.datasets.dataset import Items, Series
from forecaster.datasets.reader.formats import Format
from forecaster.datasets.reader.irregular import is_closed
from forecaster.forecast.answer import Answer, by_code, opened
from forecaster.forecast.notices import Notice, NoticeCode, ShortHistory
from forecaster.forecast.question import Form, Question, concatenate, later
from forecaster.forecast.totals import labels

if TYPE_CHECKING:
    from forecaster.datasets.reading import Reading

TOGETHER = 1024
"""The number of a panel's series that are forecast at once."""


Frame = Any
"""A DataFrame of pandas, Polars or another library that narwhals supports, or an Arrow table."""

Given = TypeVar("Given", default=pd.DataFrame)
"""The kind of frame that is given, and comes back."""

Ahead = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class History:
    """One history, or those of a panel, after reading: asks the model for `steps` and `levels`, and
    makes a table of its answers.

    `chosen` are the places of the series that are forecast. The newest `drop` rows of each (one
    number, or that of each) are not part of its history; `ahead` returns the covariates (B, T, K)
    known over the horizon of some series, by their places and the rows at which that begins, None
    for a model without any.
    """

    form: Form
    steps: int
    levels: Sequence[float]
    series: Series
    chosen: np.ndarray
    ahead: Ahead | None
    drop: Any = 0
    where: str = "the history"
    short: ShortHistory = "refuse"

    @cached_property
    def items(self) -> Items:
        """The series of the panel, or the only one."""
        return self.series.layout

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
        form = self.form
        past, end = form.past, items.bounds[which + 1] - drop
        places = end[:, None] + np.arange(-past, 0)
        there = np.arange(past) >= past - rows[:, None]
        values = series.values[np.where(there, places, 0)].astype(np.float64)
        values[~there] = np.nan
        covariates = None
        if self.ahead is not None and series.known is not None:
            before = series.known[np.maximum(places, items.bounds[which][:, None])]
            covariates = np.concatenate([before, self.ahead(which, end)], axis=1)
        first = items.places[which] + items.lengths[which] - drop
        return Question(
            values,
            _starts(series, first - past),
            covariates,
            {name: list(values[which]) for name, values in series.static.items()},
            [items.names[int(item)] for item in which],
            rows.tolist(),
            self.steps,
            self.levels,
            ends=later(_starts(series, first - 1), 1, form.freq),
        )

    def _rows(self, which: np.ndarray, drop: int | np.ndarray) -> np.ndarray:
        """How many of the newest P rows some items have. Raises DataError for too few."""
        form, lengths = self.form, self.items.lengths[which] - drop
        names = [self.items.names[int(item)] for item in which]
        fewest = form.fewest(names, self.short)
        if (lengths < fewest).any():
            short = int((lengths < fewest).argmax())
            name, length, least = names[short], max(0, lengths[short]), fewest[short]
            what = f"{self.where}, series '{name}'" if name else self.where
            remedy = f"give at least {least} rows" + (", or leave the series out" if name else "")
            if length >= form.fewest([name], "drop")[0]:
                remedy += "; short_history=drop forecasts from them with fewer parts of the model"
            raise DataError(f"{what} has {length} rows, the model needs {least}: {remedy}")
        rows: np.ndarray = np.minimum(lengths, form.past)
        return rows

    def observed(self, place: int) -> "History":
        """The history of one series up to its last row with a value of the model; nothing is known
        ahead: what is known over the horizon is nan."""
        rows = slice(self.items.bounds[place], self.items.bounds[place + 1])
        empty = np.isnan(self.series.values[rows]).all(axis=1)[::-1]
        drop = int((~np.append(empty, False)).argmax())
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

    def groups(self, by: str | None) -> list[str] | None:
        """The group of each series that is forecast (`totals.labels`); None for None."""
        if by is None:
            return None
        names = [self.items.names[int(place)] for place in self.chosen]
        static = {name: values[self.chosen] for name, values in self.series.static.items()}
        return labels(by, names, static, self.form.reading)

    def answer(
        self,
        run: Callable[[Question], Answer],
        say: Callable[[str], None],
        finish: Callable[[Answer], Answer] = lambda answer: answer,
        by: str | None = None,
    ) -> pd.DataFrame:
        """The table of what `run` answers to all questions and `finish` makes of it; `say` gets
        what stands out in it. Totals are of series with the same value of `by`."""
        answer = finish(concatenate([run(question) for question in self.questions()]))
        for sentence in by_code(answer.notices, answer.items):
            say(sentence)
        if answer.totals is not None:
            return answer.totals.to_frame(self.form, by)
        table = answer.to_frame(self.where) if answer.paths is None else answer.to_paths(self.where)
        left = opened(table, self.form)
        if len(left) < len(table):
            say(f"{len(table) - len(left):,} of {len(table):,} steps are closed: left out")
        return left


def read(
    form: Form,
    history: pd.DataFrame | str | Path | bytes | Format,
    horizon: int | None = None,
    levels: Sequence[float] = (),
    *,
    future: Frame | str | Path | None = None,
    policy: Policy | None = None,
    where: str = "the history",
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
    beyond, drop = (None, 0) if apart else _ahead(future, series, form, policy or "error", say)
    items, chosen = series.layout, np.arange(1)
    short = short_history or ("refuse" if series.items is None else "drop")
    if series.items is not None:
        enough = items.lengths - drop >= form.fewest(items.names, "drop")
        enough |= short == "refuse"
        if not enough.any():
            enough[:] = True  # the first one is refused
        if left := [name for name, on in zip(items.names, enough, strict=True) if not on]:
            text = f"left out, with fewer than the {form.least} rows that any forecast needs: "
            say(Notice(NoticeCode.LEFT_OUT, text + quoted(left)))
        chosen = np.flatnonzero(enough)
    return History(form, steps, sorted(set(levels)), series, chosen, beyond, drop, where, short)


def steps_of(horizon: int | None, most: int) -> int:
    """The requested number of steps, by default `most`. Raises UsageError outside 1 to `most`."""
    if horizon is None:
        return most
    if not isinstance(horizon, Integral) or isinstance(horizon, bool) or not 1 <= horizon <= most:
        raise UsageError(f"this model forecasts 1 to {most} steps, got horizon={horizon!r}")
    return int(horizon)


def numbers(name: str, value: Any) -> list[float]:
    """One number or several as a list. Raises UsageError with the argument's name."""
    several = [value] if isinstance(value, Real) else value
    if isinstance(several, Iterable):
        several = [*several]
        if all(isinstance(one, Real) and not isinstance(one, bool) for one in several):
            return [float(one) for one in several]
    raise UsageError(f"{name}: expected a number or several, got {value!r}")


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise UsageError(f"{name}: expected one of {', '.join(known)}, got {value!r}")


def _starts(series: Series, steps: np.ndarray) -> pd.DatetimeIndex:
    """The times at steps of a grid; steps may lie before the grid's first one."""
    if (before := -int(steps.min())) <= 0:
        return series.times[steps]
    earlier = pd.date_range(end=series.times[0], periods=before + 1, freq=series.freq)[:-1]
    return pd.DatetimeIndex(earlier.append(series.times)[steps + before])


def _ahead(
    future: Frame | str | Path | None,
    series: Series,
    form: Form,
    policy: Policy,
    say: Callable[[str], None],
) -> tuple[Ahead | None, int]:
    """`ahead` of a history, and the number of rows at the end of each item that hold what is known
    over the horizon; `say` hears of new series that are in the future alone."""
    horizon, reading = form.horizon, form.reading
    names, items = reading.future_covariates, series.layout
    if not names or series.known is None:
        if future is not None:
            raise UsageError("expected no future: this model takes no covariates known ahead")
        return None, 0
    if future is None:
        longer = items.lengths >= horizon + (form.trained is None)
        last = items.bounds[1:][longer, None] - np.arange(1, horizon + 1)
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
    known = {*items.names, *(theirs.names if form.trained is None else form.trained)}
    if new := [name for name in theirs.names if name not in known]:
        say(
            f"no forecast of {quoted(new)}, new and in the future alone: what is known ahead of a "
            "new series without rows, and its attributes, stand in the file of the histories"
        )

    def covariates(which: np.ndarray, begin: np.ndarray) -> np.ndarray:
        rows = []
        for item in which:
            name = items.names[int(item)]
            place = places.get(name, -1) if beyond.items is not None else 0
            end = series.times[items.places[item] + items.lengths[item] - 1]
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
    future: Frame | str | Path | bytes | Format,
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
    values = np.full((len(times), len(beyond.columns)), np.nan)
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
        values[at] = beyond.values[rows]
    missing = np.isnan(values)
    if not missing.any():
        return values
    missing &= ~is_closed(times.tz_localize(None), reading)[:, None]
    if missing.any():
        step, column = np.argwhere(missing)[0]
        raise DataError(
            f"{what}: no value of '{beyond.columns[column]}' at {times[step]}, but what is known "
            f"ahead must be complete, {ends}"
        )
    whole: np.ndarray = pd.DataFrame(values).ffill().bfill().to_numpy()
    return whole


def _back(
    ahead: pd.DataFrame,
    kinds: Mapping[Any, Any],
    index: str | None = None,
    library: str = "pandas",
    types: Mapping[str, Any] = {},
) -> Frame:
    """An answer as the kind of frame that asked for it, whose types by column are `kinds`.

    Times keep their zone and unit, ids and days their type. `index` is the name of the index if it
    holds the times, "" if it has none; `library` is that of the frame, `types` its types there.
    """
    names = [str(name) for name in ahead]
    stamps = [name for name in names if is_datetime64_any_dtype(ahead[name])]
    for name in stamps:
        kind = kinds.get(name if index is None else index)
        if kind is not None and is_datetime64_any_dtype(kind):
            ahead[name] = _as_stamps(ahead[name], kind)
    if index is not None and len(stamps) == 1:
        return ahead.set_index(stamps[0]).rename_axis(index=index or stamps[0])
    if library == "pandas":
        return ahead
    import narwhals.stable.v2 as nw

    plain = nw.from_native(ahead)
    table = plain.to_polars() if library == "polars" else plain.to_arrow()
    casts = [
        nw.col(name).cast(types[name])
        for name in names
        if name in types and not is_float_dtype(ahead[name])
    ]
    return nw.from_native(table).with_columns(*casts).to_native()


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
            return frame, partial(_back, kinds={name: frame.index.dtype}, index=name)
        named = [name for name in frame.index.names if name is not None and name not in frame]
        table = frame.reset_index(named) if named else frame
        return table, partial(_back, kinds=dict(table.dtypes))
    import narwhals.stable.v2 as nw

    try:
        other = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise UsageError(
            "expected a DataFrame of pandas or Polars, an Arrow table"
            + (" or a file, got " if file else "; read a file first; got ")
            + type(frame).__name__
        ) from None
    table = other.to_pandas()
    kinds = dict(table.dtypes)
    if other.implementation.is_polars() or other.implementation.is_pyarrow():
        library = "polars" if other.implementation.is_polars() else "arrow"
        return table, partial(_back, kinds=kinds, library=library, types=dict(other.schema))
    return table, partial(_back, kinds=kinds)


def unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame
