"""From a checked request to arrays, through the model, and back."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from forecaster.datasets import Reading, normalise_freq
from forecaster.datasets.items import id_parts
from forecaster.datasets.reading import NOTHING_SAID
from forecaster.errors import DataError, UsageError
from forecaster.intervals import between
from forecaster.lookup import did_you_mean
from forecaster.notices import NoticeCode, ShortHistory
from forecaster.predict import Predictor
from forecaster.schema import Schema
from forecaster_service.batching import Done
from forecaster_service.http_errors import Flaw, Location, invalid
from forecaster_service.schemas import (
    FlatRequest,
    FullRequest,
    Notice,
    Parameters,
    SeriesInput,
)

MOST_NAMES = 50
PLAIN_NAME = re.compile(r"\w[\w .:@-]{0,127}")
MOST_QUANTILES = 5_000_000
"""The most quantiles in one answer: about 100 MB of JSON."""
_offset: Any = cache(to_offset)

Forecast: TypeAlias = tuple[np.ndarray, np.ndarray]
"""The forecast of one series: values (T, targets) and quantiles (T, targets, levels), in units."""
Rows: TypeAlias = list[Any]
"""A list of targets for each step, or one number for each step where the request has that."""


@dataclass(frozen=True)
class Destination:
    """Where a forecast belongs: its series' name, its first step, and the rank of its target."""

    item_id: str | None
    start: str
    one_dimensional: bool


@dataclass(frozen=True)
class Inputs:
    """What the model reads of one series: its name, the newest rows (P, C) in units, NaN where
    missing, the time of the first row, the future covariates (P + T, K), its static attributes, and
    how many rows were given: the rows before them are padding."""

    item_id: str | None
    history: np.ndarray
    start: pd.Timestamp
    known: np.ndarray
    static: Mapping[str, float | str]
    rows: int


@dataclass(frozen=True)
class Job:
    """What the model has to forecast, where the forecasts belong, and whether notices give the
    place of the input that they are about."""

    inputs: list[Inputs]
    destinations: list[Destination]
    steps: int
    levels: list[float]
    notices: list[Notice]
    places: bool

    @property
    def warnings(self) -> list[str]:
        """The notices in words."""
        return [
            each.text if each.input is None else f"inputs[{each.input}]: {each.text}"
            for each in self.notices
        ]

    def written(self, done: Done[Forecast]) -> Iterator[tuple[Destination, Rows, dict[str, Rows]]]:
        """For each series its destination, its forecast, and its quantiles by level."""
        for destination, (forecast, quantiles) in zip(self.destinations, done.results, strict=True):
            kept = (slice(self.steps), 0) if destination.one_dimensional else slice(self.steps)
            found = quantiles[kept]
            levels = {str(level): found[..., i].tolist() for i, level in enumerate(self.levels)}
            yield destination, forecast[kept].tolist(), levels


class _RefusedError(Exception):
    """One thing that is wrong: its path in the request, what to do, a word for programs."""

    def __init__(self, loc: Location, msg: str, kind: str) -> None:
        super().__init__(msg)
        self.loc, self.msg, self.kind = loc, msg, kind

    def flaw(self, parents: Location = ()) -> Flaw:
        return Flaw(loc=[*parents, *self.loc], msg=self.msg, type=self.kind)


Work = TypeVar("Work", bound=Job)


def prepare(request: FullRequest | FlatRequest, forecaster: Predictor) -> Job:
    """Fit a request to the model. Raises HttpError 422 with everything that does not fit."""
    full = isinstance(request, FullRequest)
    steps = request.parameters.prediction_length or forecaster.bundle.horizon
    levels = sorted(set(request.parameters.quantile_levels))
    numbers = len(request.inputs) * steps * len(forecaster.schema.targets) * len(levels)
    flaws = [
        refused.flaw(("parameters",) if full else ())
        for refused in _refusals(request.parameters, forecaster, numbers)
    ]
    inputs, destinations, notices = [], [], []
    for number, series in enumerate(request.inputs):
        try:
            found, destination, surprises = _series(
                series, forecaster, request.parameters.short_history
            )
        except _RefusedError as refused:
            flaws.append(refused.flaw(("inputs", number) if full else ()))
            continue
        inputs.append(found)
        destinations.append(destination)
        where = number if full else None
        notices += [Notice(code=code, input=where, text=text) for code, text in surprises]
    if flaws:
        raise invalid(flaws)
    if forecaster.kind == "median":
        text = "this model was trained for quantiles alone: median, not mean, is given"
        notices.append(Notice(code=NoticeCode.MEDIAN, input=None, text=text))
    return Job(
        inputs=inputs,
        destinations=destinations,
        steps=steps,
        levels=levels,
        notices=notices,
        places=full,
    )


def run(inputs: Sequence[Inputs], forecaster: Predictor, levels: Sequence[float]) -> list[Forecast]:
    """Forecast several series at once: for each its values (T, targets) and its quantiles
    (T, targets, levels)."""
    static = {name: [each.static[name] for each in inputs] for name in inputs[0].static}
    forecasts, quantiles = forecaster.forecast_quantiles(
        np.stack([each.history for each in inputs]),
        pd.DatetimeIndex([each.start for each in inputs]),
        levels,
        covariates=np.stack([each.known for each in inputs]),
        static=static,
        items=[each.item_id for each in inputs],
        rows=[each.rows for each in inputs],
    )
    return list(zip(forecasts, quantiles, strict=True))


def at_levels(job: Job, done: Done[Forecast], forecaster: Predictor) -> Done[Forecast]:
    """Convert quantiles from the levels of the model to the levels of the job."""
    if not job.levels or tuple(job.levels) == forecaster.levels:
        return done
    results = [
        (forecast, between(quantiles, forecaster.levels, job.levels, forecast))
        for forecast, quantiles in done.results
    ]
    return replace(done, results=results)


def remarked(job: Work, done: Done[Forecast], forecaster: Predictor) -> Work:
    """The job with notices about what stands out in its forecasts."""
    found = forecaster.remarks(
        np.stack([each.history for each in job.inputs]),
        np.stack([forecast for forecast, _ in done.results]),
        job.levels,
        [each.item_id for each in job.inputs],
        [each.rows for each in job.inputs],
        np.stack([each.known for each in job.inputs]),
    )
    notices = [
        Notice(code=notice.code, input=place if job.places else None, text=str(notice))
        for place, notice in found
    ]
    return replace(job, notices=[*job.notices, *notices])


def example(forecaster: Predictor) -> dict[str, Any]:
    """An example request that the model accepts, with everything that it reads."""
    frame, schema, past = forecaster.example, forecaster.schema, forecaster.bundle.past
    attributes, read_from = schema.known.attributes, schema.reading.read_from
    before, known = read_from(schema.past_only), read_from(schema.known.columns)
    columns = [schema.items[0]] if schema.wide else list(schema.targets)
    series = {
        "item_id": schema.items[0] if schema.items else "example",
        "start": frame[schema.time].iloc[0].isoformat(),
        "columns": list(schema.targets),
        "target": frame[columns][:past].to_numpy().tolist(),
        "past_covariates": {name: frame[name][:past].tolist() for name in (*before, *known)},
        "future_covariates": {name: frame[name][past:].tolist() for name in known},
        "static_covariates": {each.name: frame[each.name].tolist()[0] for each in attributes},
    }
    parameters = {"prediction_length": forecaster.bundle.horizon, "freq": schema.freq}
    return {"inputs": [series], "parameters": parameters}


def _refusals(parameters: Parameters, forecaster: Predictor, quantiles: int) -> list[_RefusedError]:
    """What is wrong with the parameters; `quantiles` is the number of quantiles they ask for."""
    refusals = []
    horizon, freq = forecaster.bundle.horizon, forecaster.schema.freq
    if (parameters.prediction_length or 1) > horizon:
        message = f"this model forecasts at most {horizon} steps"
        refusals.append(_RefusedError(("prediction_length",), message, "beyond_horizon"))
    if parameters.freq is not None:
        try:
            same = normalise_freq(parameters.freq) == normalise_freq(freq)
        except DataError:
            same = False
        if not same:
            message = f"this model forecasts in steps of {freq}"
            refusals.append(_RefusedError(("freq",), message, "other_freq"))
    try:
        forecaster.check_levels(parameters.quantile_levels)
    except UsageError as error:
        refusals.append(_RefusedError(("quantile_levels",), str(error), "no_quantiles"))
    else:
        if quantiles > MOST_QUANTILES:
            message = (
                f"expected at most {MOST_QUANTILES:,} quantiles in one answer, over all series, "
                f"steps and columns, got {quantiles:,}: ask for fewer levels, steps or series"
            )
            refusals.append(_RefusedError(("quantile_levels",), message, "too_many"))
    return refusals


def _series(
    series: SeriesInput, forecaster: Predictor, short_history: ShortHistory
) -> tuple[Inputs, Destination, list[tuple[NoticeCode, str]]]:
    """What the model reads of one series, where its forecast belongs, and what may surprise."""
    schema, past, name = forecaster.schema, forecaster.bundle.past, series.item_id
    parts = [] if name is None or name in forecaster.places else id_parts(name, len(schema.id))
    if not all(PLAIN_NAME.fullmatch(part) for part in parts):
        message = (
            "expected at most 128 letters, digits, spaces and _ . : @ -, beginning with a letter "
            "or a digit"
        )
        raise _RefusedError(("item_id",), message, "item_id")
    series = _without_words(series, schema)
    rows, known = _history(series, forecaster, short_history), _known(series, forecaster)
    static = _static(series, schema)
    start, first = _times(series, len(rows), forecaster)
    surprises = []
    if len(rows) > past:
        text = f"the newest {past} of {len(rows)} rows were used"
        surprises.append((NoticeCode.HISTORY_CUT, text))
    rows = rows[-past:]
    missing = np.isnan(rows)
    empty = missing.all(axis=0)
    if empty.any():
        column = schema.columns[int(empty.argmax())]
        message = f"column '{column}' has no value at all in the newest {len(rows)} rows"
        place = ("past_covariates", column) if column in series.past_covariates else ("target",)
        raise _RefusedError(place, message, "no_value")
    if missing.any():
        count = int(missing.sum())
        were = "value of {} was" if count == 1 else "values of {} were"
        text = f"{count} missing {were.format(missing.size)} masked"
        surprises.append((NoticeCode.MISSING_MASKED, text))
    if schema.items and name not in forecaster.places:
        why = "it has no item_id" if name is None else "this item_id was not in the training data"
        text = f"the series is scaled by its own history: {why}"
        surprises.append((NoticeCode.OWN_SCALE, text))
    padded = np.full((past, rows.shape[1]), np.nan)
    padded[past - len(rows) :] = rows
    inputs = Inputs(name, padded, start, known, static, len(rows))
    return inputs, Destination(name, first, not in_rows(series.target)), surprises


def in_rows(target: Any) -> bool:
    """Whether each step has a list of columns, not a number."""
    return target.ndim == 2 if isinstance(target, np.ndarray) else isinstance(target[0], list)


def _without_words(series: SeriesInput, schema: Schema) -> SeriesInput:
    """The series with each text covariate as the columns of 0 and 1 that the model reads."""
    reading, changed, needed = schema.reading, {}, schema.needs
    for role in ("past_covariates", "future_covariates"):
        given: dict[str, list[Any]] = getattr(series, role)
        numbers: dict[str, list[Any]] = {}
        for name, values in given.items():
            words = reading.categories.get(name)
            for row, value in enumerate(values if words or name in needed else ()):
                if value is not None and (value not in words if words else type(value) is str):
                    wanted = f"one of {_listed(words)}" if words else "a number"
                    message = f"value {row + 1}: expected {wanted}"
                    raise _RefusedError((role, name, row), message, "category")
            if words is None:
                numbers[name] = values
                continue
            for word, part in zip(words, reading.read_as([name]), strict=True):
                numbers[part] = [None if each is None else float(each == word) for each in values]
        changed[role] = numbers
    return series.model_copy(update=changed) if reading.categories else series


def _check_rows(rows: int, forecaster: Predictor, short_history: ShortHistory) -> None:
    """Raise _RefusedError unless there is enough history."""
    wanted = forecaster.least if short_history == "drop" else forecaster.needs
    if rows < wanted:
        message = f"expected at least {wanted} rows, got {rows}"
        if rows >= forecaster.least:
            message += "; short_history=drop forecasts from them with fewer parts of the model"
        raise _RefusedError(("target",), message, "too_short")


def _history(series: SeriesInput, forecaster: Predictor, short_history: ShortHistory) -> np.ndarray:
    """All rows (N, C) in the model's order of columns, NaN where missing."""
    schema, given = forecaster.schema, series.past_covariates
    rows: Any = series.target  # an array, or lists
    _check_names(
        "past_covariates", given, schema.known.columns, "one value per row of target",
        optional=schema.past_only, reading=schema.reading,
    )  # fmt: skip
    apart = [name for name in schema.past_only if name in given]
    names = [name for name in schema.columns if name not in apart]
    hint = ""
    if schema.wide:
        hint = "; send each series of this model as a separate input, identified by its item_id"
    elif others := [name for name in schema.past_only if name not in apart]:
        hint = f"; past_covariates may contain {_listed(others)} instead"
    order = _order(series.columns, names, hint)
    if in_rows(rows):
        lengths = rows.shape[1:] if isinstance(rows, np.ndarray) else list(map(len, rows))
        row = next((i for i, length in enumerate(lengths) if length != len(names)), None)
        if row is not None:
            message = (
                f"expected {len(names)} columns in every row ({_listed(names)}), got "
                f"{lengths[row]} in row {row + 1}{hint}"
            )
            raise _RefusedError(("target", row), message, "column_count")
    elif len(names) != 1:
        message = (
            f"expected {len(names)} columns ({_listed(names)}): a list of {len(names)} numbers "
            f"per time step, got one number per time step{hint}"
        )
        raise _RefusedError(("target",), message, "column_count")
    _check_rows(len(rows), forecaster, short_history)
    _check_lengths("past_covariates", given, len(rows), "one per row of target")
    values = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names))
    if order is None and not apart:
        return values
    whole = np.empty((len(rows), len(schema.columns)))
    places = [schema.columns.index(name) for name in names]
    whole[:, places] = values if order is None else values[:, order]
    for name in apart:
        whole[:, schema.columns.index(name)] = given[name]
    return whole


def _known(series: SeriesInput, forecaster: Predictor) -> np.ndarray:
    """The future covariates over the newest look-back and the horizon, (P + T, K)."""
    bundle, ahead = forecaster.bundle, series.future_covariates
    names, past, horizon = bundle.schema.known.columns, bundle.past, bundle.horizon
    what = "one per step of the model's horizon, however short the prediction_length"
    reading = bundle.schema.reading
    _check_names("future_covariates", ahead, names, f"{horizon} values each, {what}", (), reading)
    _check_lengths("future_covariates", ahead, horizon, what)
    known = np.empty((past + horizon, len(names)))
    for column, name in enumerate(names):
        before = series.past_covariates[name]
        newest = before[-past:]
        if None in newest:
            row = len(before) - len(newest) + newest.index(None)
            message = f"value {row + 1}: null is not allowed: future covariates must be complete"
            raise _RefusedError(("past_covariates", name, row), message, "incomplete")
        known[:, column] = newest[:1] * (past - len(newest)) + newest + ahead[name]
    return known


def _static(series: SeriesInput, schema: Schema) -> dict[str, float | str]:
    """The static attributes, by name."""
    given, attributes = series.static_covariates, schema.known.attributes
    names = [attribute.name for attribute in attributes]
    _check_names("static_covariates", given, names, "a number or a word each")
    for attribute in attributes:
        value = given[attribute.name]
        if attribute.words and value not in attribute.words:
            message = f"expected one of {_listed(attribute.words)}"
        elif not attribute.words and isinstance(value, str):
            message = "expected a number"
        else:
            continue
        raise _RefusedError(("static_covariates", attribute.name), message, "attribute")
    return given


def _check_names(
    role: str, given: Mapping[str, Any], needed: Sequence[str], what: str,
    optional: Sequence[str] = (), reading: Reading = NOTHING_SAID,
) -> None:  # fmt: skip
    """Raise _RefusedError unless everything needed is given, and nothing unknown.

    For columns of a `reading`, messages give the names of the covariates that they come from.
    """
    known = (*needed, *optional)
    if given and not known:
        message = f"this model takes no {role.replace('_', ' ')}"
        raise _RefusedError((role,), message, "no_covariates")
    absent = reading.read_from([name for name in needed if name not in given])
    problems = []
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        hint = did_you_mean(unknown[:64], reading.read_from(known))
        problems.append(f"there is an unknown name.{hint}")
    if absent:
        problems.append(f"missing: {_listed(absent)}.")
    if problems:
        needed, optional = reading.read_from(needed), reading.read_from(optional)
        names = [_listed(needed)] if needed else []
        names += [f"{_listed(optional)} unless target has them"] if optional else []
        message = f"expected {' and '.join(names)} ({what}); {' '.join(problems)}"
        raise _RefusedError((role,), message, "covariates")


def _check_lengths(role: str, given: Mapping[str, Sized], length: int, what: str) -> None:
    """Raise _RefusedError for covariates that do not have `length` values."""
    for name, values in given.items():
        if len(values) != length:
            message = f"expected {length} values, {what}, got {len(values)}"
            raise _RefusedError((role, name), message, "length")


def _order(given: list[str] | None, names: list[str], hint: str) -> list[int] | None:
    """The place of each of the columns `names` in the request; None for the same order."""
    if given is None or given == names:
        return None
    problems, known, counts = [], set(names), Counter(given)
    unknown = next((place for place, name in enumerate(given) if name not in known), None)
    if unknown is not None:
        near = did_you_mean(given[unknown][:64], names)
        problems.append(f"columns[{unknown}] is none of them.{near}")
    if missing := [name for name in names if name not in counts]:
        problems.append(f"missing: {_listed(missing)}.")
    if twice := [name for name in names if counts[name] > 1]:
        problems.append(f"given more than once: {_listed(twice)}.")
    if problems:
        message = (
            f"expected each of {_listed(names)} once, in any order{hint}; {' '.join(problems)}"
        )
        raise _RefusedError(("columns",), message, "columns")
    places = {name: place for place, name in enumerate(given)}
    return [places[name] for name in names]


def _listed(names: Sequence[str]) -> str:
    more = (
        f" and {len(names) - MOST_NAMES} more, see GET /models" if len(names) > MOST_NAMES else ""
    )
    return ", ".join(names[:MOST_NAMES]) + more


def _times(series: SeriesInput, rows: int, forecaster: Predictor) -> tuple[pd.Timestamp, str]:
    """The times of the first row of the look-back and, in ISO 8601, of the first forecast step."""
    schema, past, horizon = forecaster.schema, forecaster.bundle.past, forecaster.bundle.horizon
    begin = _start(series.start, schema.timezone)
    offset = _offset(schema.freq)
    if not offset.is_on_offset(begin):
        message = f"this time is not on the time grid of a series with steps of {schema.freq}"
        raise _RefusedError(("start",), message, "start")
    try:
        start = begin + (rows - past) * offset if rows != past else begin
        first = start + past * offset
        beyond = (first + (horizon - 1) * offset).year > 9999
    except (OverflowError, ValueError):  # pandas' OutOfBoundsDatetime is a ValueError
        beyond = True
    if beyond:
        raise _RefusedError(("start",), "the forecast would lie beyond the year 9999", "start")
    zone = "+00:00" if schema.timezone == "UTC" else ""
    return start, first.isoformat() + zone


def _start(text: str | None, timezone: str) -> pd.Timestamp:
    """The time of the first row, without a zone: UTC, or the local time of the model's data."""
    if text is None:
        message = "give the time of the first row, such as 2018-06-26T00:00:00"
        raise _RefusedError(("start",), message, "missing")
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None and timezone == "UTC":
            time = time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        message = "expected a time in ISO 8601, such as 2018-06-26T00:00:00"
        raise _RefusedError(("start",), message, "start") from None
    if time.tzinfo is not None:
        message = (
            "this model's data has no time zone: give the local time of its source, without an "
            "offset"
        )
        raise _RefusedError(("start",), message, "start")
    return pd.Timestamp(time).as_unit("us")
