"""What a model is asked, and its JSON, as /predict of the service takes it."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import did_you_mean
from forecaster.datasets.calendar import normalise_freq
from forecaster.datasets.dataset import id_parts
from forecaster.forecast.notices import Notice, NoticeCode, Period, ShortHistory
from forecaster.forecast.paths import check
from forecaster.forecast.totals import check_period, labels

if TYPE_CHECKING:
    from forecaster.datasets.reading import Reading
    from forecaster.forecast.predictor import Predictor

MOST_NAMES = 50  # that an error lists: a panel may have thousands
PLAIN_NAME = re.compile(r"\w[\w .:@-]{0,127}")
EXAMPLE = "GET /models/NAME/example shows a request that fits"


ALIKE = {"form", "steps", "levels", "notices", "samples", "total", "by", "totals"}
"""What is the same for all series of a question or an answer."""


@cache
def _offset(freq: str) -> Any:
    return to_offset(normalise_freq(freq))


Times: TypeAlias = Any
"""A DatetimeIndex, or a list of time stamps, which is faster for a few."""

Json: TypeAlias = Mapping[str, Any]
"""An object of JSON; a target may also be an array, NaN where a value is missing."""


@dataclass(frozen=True)
class Form:
    """The form of a model's histories: how they are read, and how many rows.

    `columns` are those of the model, in its order. The model reads at most the newest `past` rows
    and needs `needs` of them; some of its parts can forecast from `least` rows. `horizon` is in
    steps. `attributes` has the words that each static attribute may be, none for numbers. `trained`
    are the series of a panel in training, None if no others can be forecast from fewer rows.
    """

    reading: "Reading"
    columns: tuple[str, ...]
    past: int
    needs: int
    least: int
    horizon: int
    attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    trained: Collection[str] | None = None

    def fewest(self, names: Sequence[str | None], short: ShortHistory) -> np.ndarray:
        """The fewest rows from which each series can be forecast: none for a new one of a panel, as
        others stand in."""
        least, trained = self.needs if short == "refuse" else self.least, self.trained
        new = [short == "drop" and trained is not None and name not in trained for name in names]
        return np.where(new, 0, least)

    @property
    def freq(self) -> str:
        return self.reading.freq or ""

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The columns that the model forecasts."""
        return self.columns[:1] if self.reading.panel else self.reading.targets

    @cached_property
    def known(self) -> tuple[str, ...]:
        """The columns that are known ahead."""
        return self.reading.read_as(self.reading.future_covariates)


class Refusal(DataError):  # noqa: N818
    """What does not fit a model: its path in what was asked, what to do, and a word for programs;
    `others` do not fit either."""

    def __init__(
        self, path: Sequence[str | int], message: str, code: str, others: Sequence["Refusal"] = ()
    ) -> None:
        super().__init__(message)
        self.path, self.code, self.others = path, code, others


class SeriesBatch:
    """What is known of several series: all but what is ALIKE has an entry for each of them."""

    starts: Times
    notices: Sequence[Notice]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, part: slice) -> Self:
        """Some of the series, which lie side by side."""
        first, end, _ = part.indices(len(self))
        if end - first == len(self):
            return self
        notices = [
            notice.moved(-first)
            for notice in self.notices
            if notice.place is None or first <= notice.place < end
        ]
        changes = {name: _cut(vars(self)[name], part) for name in vars(self).keys() - ALIKE}
        return self._with(changes | {"notices": notices})

    def _with(self, changes: Mapping[str, Any]) -> Self:
        other = object.__new__(type(self))
        vars(other).update({**vars(self), **changes})
        return other


Batch = TypeVar("Batch", bound=SeriesBatch)


def concatenate(parts: Sequence[Batch]) -> Batch:
    """The series of all parts; what is alike is as in the first."""
    first, *others = parts
    if not others:
        return first
    places = accumulate(map(len, parts), initial=0)
    notices = [
        notice.moved(place)
        for place, part in zip(places, parts, strict=False)
        for notice in part.notices
    ]
    names = vars(first).keys() - ALIKE
    changes = {name: _joined([vars(part)[name] for part in parts]) for name in names}
    return first._with(changes | {"notices": notices})


def _cut(values: Any, part: slice) -> Any:
    if isinstance(values, Mapping):
        return {name: column[part] for name, column in values.items()}
    return None if values is None else values[part]


def _joined(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    return None if first is None else [value for part in parts for value in part]


@dataclass(frozen=True, eq=False)
class Question(SeriesBatch):
    """What a model is asked: to forecast B series.

    values (B, P, C): the newest rows in units, columns in the order of the model, NaN where
    missing; starts (B,): the time of each first row. covariates (B, P + T, K): those known ahead,
    complete; static: attributes by name, each (B,); items (B,): the names of the series in a panel,
    None if unknown, by default all are. rows (B,): how many of the newest rows each has, by default
    all; values before them are missing, and covariates before them repeat the first one: no part
    that forecasts from that many rows reads them, and for new series others stand in.

    Wanted are `steps`, by default the horizon, quantiles at `levels`, and `samples` paths; totals
    over a period `total`, of series with the same value of `by`. Those series that are `flat` (B,)
    get a number for each step, the others a list. `ends` (B,) are the times of the
    first steps, by default P steps after the starts. `notices` say how the series were read.
    """

    values: np.ndarray
    starts: Times
    covariates: np.ndarray | None = None
    static: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    items: Sequence[str | None] = ()
    rows: Sequence[int] = ()
    steps: int | None = None
    levels: Sequence[float] = ()
    flat: Sequence[bool] = ()
    ends: Times | None = None
    notices: Sequence[Notice] = ()
    samples: int = 0
    total: Period | None = None
    by: str | None = None

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each history, (B,)."""
        past = self.values.shape[1]
        return np.array(self.rows or [past] * len(self.values), dtype=np.int64)

    def first_steps(self, form: Form) -> Times:
        """The time of the first step after each history, (B,)."""
        return later(self.starts, form.past, form.freq) if self.ends is None else self.ends

    @classmethod
    def from_json(
        cls, inputs: Sequence[Json], parameters: Json, model: "Predictor", apart: bool = True
    ) -> "Question":
        """Fit series to a model, as /predict takes them. `apart`: whether they are the `inputs`
        beside the `parameters`, not one object with both. Raises Refusal for all that does not fit.
        """
        refusals = list(_refusals(parameters, model, ("parameters",) * apart))
        parts: list[Question] = []
        for place, series in enumerate(inputs):
            try:
                parts.append(_of_series(series, model, parameters.get("short_history")))
            except Refusal as refusal:
                path = ("inputs", place, *refusal.path) if apart else refusal.path
                refusals.append(Refusal(path, str(refusal), refusal.code))
        if refusals:
            first, *others = refusals
            raise Refusal(first.path, str(first), first.code, others)
        question = replace(
            concatenate(parts), steps=parameters.get("prediction_length") or model.form.horizon,
            levels=sorted(set(parameters.get("quantile_levels", ()))),
            samples=parameters.get("samples") or 0,
            total=parameters.get("total"),
            by=parameters.get("by"),
        )  # fmt: skip
        try:
            question.groups(model.form)
        except UsageError as error:
            raise Refusal((*("parameters",) * apart, "by"), str(error), "no_by") from None
        return question

    @property
    def joint(self) -> bool:
        """Whether paths or totals are wanted."""
        return bool(self.samples or self.total or self.by)

    def groups(self, form: Form) -> list[str] | None:
        """The group of each series, if totals of groups are wanted. Raises UsageError."""
        return None if self.by is None else labels(self.by, self.items, self.static, form.reading)

    def to_json(self, form: Form) -> list[dict[str, Any]]:
        """The series as /predict takes them."""
        return [self._series(place, form) for place in range(len(self))]

    def _series(self, place: int, form: Form) -> dict[str, Any]:
        rows, name = self.rows[place], self.items[place]
        missing = form.past - rows
        values = self.values[place, missing:]
        cells = values.astype(object)
        cells[np.isnan(values)] = None
        series: dict[str, Any] = {
            "start": later([self.starts[place]], missing, form.freq)[0].isoformat(),
            "columns": [*form.columns],
            "target": cells.tolist(),
            "static_covariates": {
                attribute: _attribute(self.static[attribute][place], words)
                for attribute, words in form.attributes.items()
            },
        }
        if name:
            series["item_id"] = name
        if self.covariates is not None:
            pairs = [*zip(form.known, self.covariates[place].T.tolist(), strict=True)]
            series["past_covariates"] = {name: row[missing : form.past] for name, row in pairs}
            series["future_covariates"] = {name: row[form.past :] for name, row in pairs}
        return series


def later(times: Times, steps: int, freq: str) -> list[pd.Timestamp]:
    """Each of the times, that many steps later."""
    length = steps * _offset(freq)
    return [time + length for time in times]


def _attribute(value: Any, words: Sequence[str]) -> float | str:
    """A static attribute; if the model knows it as words, 7.0 stands for the word 7 of a file."""
    if isinstance(value, str):
        return str(value)
    return f"{float(value):g}" if words else float(value)


def _refusals(parameters: Json, model: "Predictor", parents: tuple[str, ...]) -> Iterator[Refusal]:
    """What is wrong with the parameters."""
    form = model.form
    if (parameters.get("prediction_length") or 1) > form.horizon:
        message = f"this model forecasts at most {form.horizon} steps"
        yield Refusal((*parents, "prediction_length"), message, "beyond_horizon")
    try:
        same = normalise_freq(parameters.get("freq") or form.freq) == normalise_freq(form.freq)
    except DataError:
        same = False
    if not same:
        message = f"this model forecasts in steps of {form.freq}"
        yield Refusal((*parents, "freq"), message, "other_freq")
    try:
        model.check_levels(parameters.get("quantile_levels", ()))
    except UsageError as error:
        yield Refusal((*parents, "quantile_levels"), str(error), "no_quantiles")
    for name in ("samples", "total", "by"):
        try:
            if parameters.get(name):
                check(model.facts.intervals)
            if name == "total":
                check_period(form.freq, parameters.get(name))
        except UsageError as error:
            yield Refusal((*parents, name), str(error), f"no_{name}")


def _of_series(series: Json, model: "Predictor", short_history: ShortHistory | None) -> Question:
    """The question about one series."""
    form, name, target = model.form, series.get("item_id"), series["target"]
    reading, rows = form.reading, len(target)
    parts = [] if name is None or name in model.places else id_parts(name, len(reading.id))
    if not all(PLAIN_NAME.fullmatch(part) for part in parts):
        message = (
            "expected at most 128 letters, digits, spaces and _ . : @ -, beginning with a letter "
            "or a digit"
        )
        raise Refusal(("item_id",), message, "item_id")
    before = _covariates(series, "past_covariates", rows, "row of target", form)
    history = _history(series, before, form)
    short: ShortHistory = short_history or ("drop" if model.places else "refuse")
    least, few = form.fewest([name], short)[0], form.fewest([name], "drop")[0]
    if rows < least:
        message = f"expected at least {least} rows, got {rows}"
        if rows >= few:
            message += "; short_history=drop forecasts from them with fewer parts of the model"
        raise Refusal(("target",), message, "too_short")
    known, static = _known(series, before, form), _static(series, form)
    start = _start(series.get("start"), rows, form)
    past, count = len(history), min(rows, len(history))
    missing = np.isnan(history[past - count :])
    empty = missing.all(axis=0)
    if empty.any() and (few or count == past):  # none stand in
        column, given = form.columns[int(empty.argmax())], series.get("past_covariates", {})
        if column not in given:
            (column,) = reading.read_from([column])
        message = f"column '{column}' has no value at all in the newest {count} rows"
        raise Refusal(
            ("past_covariates", column) if column in given else ("target",), message, "no_value"
        )
    notices = []
    if rows > past:
        text = f"the newest {past} of {rows} rows were used"
        notices.append(Notice(NoticeCode.HISTORY_CUT, text, 0))
    if masked := int(missing.sum()):
        were = "value of {} was" if masked == 1 else "values of {} were"
        text = f"{masked} missing {were.format(missing.size)} masked"
        notices.append(Notice(NoticeCode.MISSING_MASKED, text, 0))
    return Question(
        history[None],
        [start],
        known[None],
        {name: [value] for name, value in static.items()},
        [name],
        [count],
        flat=[len(form.columns) == 1 if not rows else not _in_rows(target)],
        notices=notices,
    )


def _in_rows(target: Any) -> bool:
    """Whether each step has a list of columns, not a number."""
    return len(target) > 0 and isinstance(target[0], list | np.ndarray)


def _covariates(
    series: Json, role: str, length: int, step: str, form: Form
) -> dict[str, np.ndarray]:
    """The covariates by the model's columns, words as columns of 0 and 1, NaN where missing."""
    reading, given = form.reading, series.get(role, {})
    past_only = [name for name in form.columns if name not in form.targets]

    def names(columns: Sequence[str]) -> list[str]:
        """Those of the covariates; a column of 0 and 1 may also be given itself."""
        parts = [name for name in columns if name in given]
        others = [name for name in columns if name not in given]
        return [*parts, *reading.read_from(others)] if others else parts

    ahead = names(form.known)
    optional = names(past_only) if role == "past_covariates" else []
    _check_names(role, list(given), ahead, optional)
    first = max(length - form.past, 0) if role == "past_covariates" else 0
    complete = set(ahead)
    columns: dict[str, np.ndarray] = {}
    for name, values in given.items():
        if len(values) != length:
            message = f"expected {length} values, one per {step}, got {len(values)}"
            raise Refusal((role, name), message, "length")
        words = reading.categories.get(name)
        for row, value in enumerate(values):
            if value is not None and (value not in words if words else type(value) is str):
                message = f"value {row + 1}: expected {_expected(words)}"
                raise Refusal((role, name, row), message, "category")
        if name in complete and None in values[first:]:
            row = values.index(None, first)
            message = f"value {row + 1}: null is not allowed: future covariates must be complete"
            raise Refusal((role, name, row), message, "incomplete")
        if words:
            values = [
                [None if value is None else value == word for word in words] for value in values
            ]
        parts = reading.read_as([name])
        table = np.array(values, dtype=np.float64).reshape(length, len(parts))
        columns.update(zip(parts, table.T, strict=True))
    return columns


def _history(series: Json, before: Mapping[str, np.ndarray], form: Form) -> np.ndarray:
    """The newest rows (P, C) in the model's order of columns, NaN where missing and before them."""
    target: Any = series["target"]  # an array, or lists
    names = [name for name in form.columns if name not in before]
    given = series.get("columns")
    given = names if given is None else given
    _check_names("columns", given, names)
    widths: Sequence[int] = [1] * min(1, len(target))
    if _in_rows(target):
        widths = target.shape[1:] if isinstance(target, np.ndarray) else list(map(len, target))
    for row, width in enumerate(widths):
        if width != len(names):
            message = f"expected {len(names)} columns in every row ({_listed(names)}), got {width} "
            message += f"in row {row + 1}. {EXAMPLE}"
            raise Refusal(("target", row), message, "column_count")
    values = np.asarray(target[-form.past :], dtype=np.float64).reshape(-1, len(names))
    places = {name: place for place, name in enumerate(form.columns)}
    history = np.full((form.past, len(places)), np.nan)
    rows = slice(form.past - len(values), None)
    history[rows, [places[name] for name in given]] = values
    for name in before.keys() & places:
        history[rows, places[name]] = before[name][-form.past :]
    return history


def _known(series: Json, before: Mapping[str, np.ndarray], form: Form) -> np.ndarray:
    """The future covariates over the newest look-back and the horizon, (P + T, K)."""
    step = "step of the model's horizon, however short the prediction_length"
    ahead = _covariates(series, "future_covariates", form.horizon, step, form)
    known = np.empty((form.past + form.horizon, len(form.known)))
    first = max(form.past - len(series["target"]), 0)
    for place, name in enumerate(form.known):
        known[first : form.past, place] = before[name][-form.past :]
        known[form.past :, place] = ahead[name]
    known[:first] = known[first]
    return known


def _static(series: Json, form: Form) -> Mapping[str, float | str]:
    """The static attributes, by name."""
    given: Mapping[str, float | str] = series.get("static_covariates", {})
    _check_names("static_covariates", list(given), list(form.attributes))
    for name, words in form.attributes.items():
        if given[name] not in words if words else isinstance(given[name], str):
            message = f"expected {_expected(words)}"
            raise Refusal(("static_covariates", name), message, "attribute")
    return {name: given[name] for name in form.attributes}


def _expected(words: Sequence[str] | None) -> str:
    return f"one of {_listed(words)}" if words else "a number"


def _check_names(
    where: str, given: Sequence[str], needed: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raise Refusal unless each needed name is given once, and nothing unknown."""
    if len(given) == len(needed) and set(given) == set(needed):
        return
    counts, problems = Counter(given), []
    known = dict.fromkeys([*needed, *optional])
    unknown = next((place for place, name in enumerate(given) if name not in known), None)
    if unknown is not None:
        hint = did_you_mean(given[unknown][:64], known)
        problems.append(f"name {unknown + 1} is unknown.{hint}")
    if missing := [name for name in needed if name not in counts]:
        problems.append(f"missing: {_listed(missing)}.")
    if twice := [name for name in needed if counts[name] > 1]:
        problems.append(f"given more than once: {_listed(twice)}.")
    if problems:
        expected = [_listed(needed)] if needed else []
        expected += [f"{_listed(optional)} unless target has them"] if optional else []
        message = f"expected {' and '.join(expected) or 'none'}; {' '.join(problems)} {EXAMPLE}"
        raise Refusal((where,), message, "names")


def _listed(names: Sequence[str]) -> str:
    more = (
        f" and {len(names) - MOST_NAMES} more, see GET /models" if len(names) > MOST_NAMES else ""
    )
    return ", ".join(names[:MOST_NAMES]) + more


def _start(text: str | None, rows: int, form: Form) -> pd.Timestamp:
    """The time of the first row of the look-back."""
    utc, offset = form.reading.timezone == "UTC", _offset(form.freq)
    with suppress(ValueError, OverflowError):  # pandas' OutOfBoundsDatetime is a ValueError
        time = datetime.fromisoformat(text or "")
        if utc and time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
        begin = pd.Timestamp(time).as_unit("us")
        start = begin + (rows - form.past) * offset if rows != form.past else begin
        last = start + (form.past + form.horizon - 1) * offset
        if time.tzinfo is None and offset.is_on_offset(begin) and last.year <= 9999:
            return start
    zone = "in UTC or with an offset" if utc else "in the source's time without an offset"
    message = (
        f"expected the time of the first row in ISO 8601, such as 2018-06-26T00:00:00, {zone}, on "
        f"the grid of steps of {form.freq}, and no forecast beyond the year 9999"
    )
    raise Refusal(("start",), message, "start")
