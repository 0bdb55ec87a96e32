"""From a checked request to arrays, through the model, and back."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import did_you_mean
from forecaster.datasets.calendar import normalise_freq
from forecaster.datasets.items import id_parts
from forecaster.forecast.notices import OWN_SCALE, NoticeCode
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.quantiles import between
from forecaster.forecast.questions import Question
from forecaster.plan.schema import Schema
from forecaster_service.batching import Done
from forecaster_service.http_errors import Flaw, Location, invalid
from forecaster_service.request import FlatRequest, FullRequest, Parameters, SeriesInput
from forecaster_service.response import Notice

MOST_NAMES = 50
PLAIN_NAME = re.compile(r"\w[\w .:@-]{0,127}")
EXAMPLE = "GET /models/NAME/example shows a request that fits"
MOST_QUANTILES = 5_000_000
"""The most quantiles in one answer: about 100 MB of JSON."""
_offset: Any = cache(to_offset)

Rows: TypeAlias = list[Any]
"""A list of targets for each step, or one number for each step where the request has that."""


class Forecast(NamedTuple):
    """The forecast of one series: values (T, targets) and quantiles (T, targets, levels), in units,
    and what stands out in it."""

    values: np.ndarray
    quantiles: np.ndarray
    remarks: Sequence[tuple[NoticeCode, str]]


@dataclass(frozen=True)
class Inputs:
    """What the model reads of one series: its name, the newest rows (P, C) in units, NaN where
    missing, the time of the first row, the future covariates (P + T, K), its static attributes, and
    how many rows were given: the rows before them are padding. For the answer: the time of its
    `first` step in ISO 8601, and whether it has one number for each step (`flat`)."""

    item_id: str | None
    history: np.ndarray
    start: pd.Timestamp
    known: np.ndarray
    static: Mapping[str, float | str]
    rows: int
    first: str
    flat: bool


@dataclass(frozen=True)
class Job:
    """What the model has to forecast, and whether notices give the place of the input that they are
    about."""

    inputs: list[Inputs]
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

    def written(self, done: Done[Forecast]) -> Iterator[tuple[Inputs, Rows, dict[str, Rows]]]:
        """Each series with its forecast, and its quantiles by level."""
        for series, (forecast, quantiles, _) in zip(self.inputs, done.results, strict=True):
            kept = (slice(self.steps), 0) if series.flat else slice(self.steps)
            found = quantiles[kept]
            levels = {str(level): found[..., i].tolist() for i, level in enumerate(self.levels)}
            yield series, forecast[kept].tolist(), levels


class RefusedError(Exception):
    """One thing that is wrong: its path in the request, what to do, a word for programs."""

    def flaw(self, parents: Location) -> Flaw:
        loc, msg, kind = self.args
        return Flaw(loc=[*parents, *loc], msg=msg, type=kind)


def prepare(request: FullRequest | FlatRequest, forecaster: Predictor) -> Job:
    """Fit a request to the model. Raises HttpError 422 with everything that does not fit, or
    UsageError for an answer that would be too large."""
    full, parameters = isinstance(request, FullRequest), request.parameters
    steps = parameters.prediction_length or forecaster.bundle.horizon
    levels = sorted(set(parameters.quantile_levels))
    numbers = len(request.inputs) * steps * len(forecaster.schema.targets) * len(levels)
    if numbers > MOST_QUANTILES:
        raise UsageError(
            f"expected at most {MOST_QUANTILES:,} quantiles in one answer, over all series, "
            f"steps and columns, got {numbers:,}: ask for fewer levels, steps or series"
        )
    parents: Location = ("parameters",) if full else ()
    flaws = [each.flaw(parents) for each in _refusals(parameters, forecaster)]
    inputs, notices = [], []
    for number, series in enumerate(request.inputs):
        place = number if full else None
        try:
            found, surprises = _series(series, forecaster, parameters, place)
        except RefusedError as refused:
            flaws.append(refused.flaw(("inputs", number) if full else ()))
            continue
        inputs.append(found)
        notices += surprises
    if flaws:
        raise invalid(flaws)
    return Job(inputs, steps, levels, notices, places=full)


def together(inputs: Sequence[Inputs]) -> Question:
    """The question about several series at once."""
    return Question(
        np.stack([each.history for each in inputs]),
        pd.DatetimeIndex([each.start for each in inputs]),
        np.stack([each.known for each in inputs]),
        {name: [each.static[name] for each in inputs] for name in inputs[0].static},
        [each.item_id for each in inputs],
        [each.rows for each in inputs],
    )


def run(inputs: Sequence[Inputs], forecaster: Predictor, levels: Sequence[float]) -> list[Forecast]:
    """Forecast several series at once."""
    question = together(inputs)
    forecasts, quantiles = forecaster.forecast_quantiles(question, levels)
    found: list[list[tuple[NoticeCode, str]]] = [[] for _ in inputs]
    for place, notice in forecaster.remarks(question, forecasts, bool(levels)):
        found[place].append((notice.code, str(notice)))
    return list(map(Forecast, forecasts, quantiles, found))


def fitted(job: Job, done: Done[Forecast], forecaster: Predictor) -> tuple[Job, Done[Forecast]]:
    """The job with the notices about its forecasts, which get the levels of the job in place of
    those of the model."""
    notices = [
        Notice(code=notice.code, input=None, text=str(notice))
        for notice in forecaster.figures(tuple(job.levels))
    ]
    for place, (_, _, remarks) in enumerate(done.results):
        number = place if job.places else None
        notices += [Notice(code=code, input=number, text=text) for code, text in remarks]
    if job.levels and tuple(job.levels) != forecaster.levels:
        results = [
            each._replace(
                quantiles=between(each.quantiles, forecaster.levels, job.levels, each.values)
            )
            for each in done.results
        ]
        done = replace(done, results=results)
    return replace(job, notices=[*job.notices, *notices]), done


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


def _refusals(parameters: Parameters, forecaster: Predictor) -> Iterator[RefusedError]:
    """What is wrong with the parameters."""
    horizon, freq = forecaster.bundle.horizon, forecaster.schema.freq
    if (parameters.prediction_length or 1) > horizon:
        message = f"this model forecasts at most {horizon} steps"
        yield RefusedError(("prediction_length",), message, "beyond_horizon")
    try:
        same = normalise_freq(parameters.freq or freq) == normalise_freq(freq)
    except DataError:
        same = False
    if not same:
        message = f"this model forecasts in steps of {freq}"
        yield RefusedError(("freq",), message, "other_freq")
    try:
        forecaster.check_levels(parameters.quantile_levels)
    except UsageError as error:
        yield RefusedError(("quantile_levels",), str(error), "no_quantiles")


def _series(
    series: SeriesInput, forecaster: Predictor, parameters: Parameters, place: int | None
) -> tuple[Inputs, list[Notice]]:
    """What the model reads of one series, and what may surprise."""
    schema, name, rows = forecaster.schema, series.item_id, len(series.target)
    parts = [] if name is None or name in forecaster.places else id_parts(name, len(schema.id))
    if not all(PLAIN_NAME.fullmatch(part) for part in parts):
        message = (
            "expected at most 128 letters, digits, spaces and _ . : @ -, beginning with a letter "
            "or a digit"
        )
        raise RefusedError(("item_id",), message, "item_id")
    before = _covariates(series, "past_covariates", rows, "row of target", forecaster)
    history = _history(series, before, forecaster)
    wanted = forecaster.least if parameters.short_history == "drop" else forecaster.needs
    if rows < wanted:
        message = f"expected at least {wanted} rows, got {rows}"
        if rows >= forecaster.least:
            message += "; short_history=drop forecasts from them with fewer parts of the model"
        raise RefusedError(("target",), message, "too_short")
    known, static = _known(series, before, forecaster), _static(series, schema)
    start, first = _times(series.start, rows, forecaster)
    past, count = len(history), min(rows, len(history))
    missing = np.isnan(history[past - count :])
    empty = missing.all(axis=0)
    if empty.any():
        column = schema.columns[int(empty.argmax())]
        if column not in series.past_covariates:
            (column,) = schema.reading.read_from([column])
        message = f"column '{column}' has no value at all in the newest {count} rows"
        where = ("past_covariates", column) if column in series.past_covariates else ("target",)
        raise RefusedError(where, message, "no_value")
    surprises = []
    if rows > past:
        text = f"the newest {past} of {rows} rows were used"
        surprises.append(Notice(code=NoticeCode.HISTORY_CUT, input=place, text=text))
    if masked := int(missing.sum()):
        were = "value of {} was" if masked == 1 else "values of {} were"
        text = f"{masked} missing {were.format(missing.size)} masked"
        surprises.append(Notice(code=NoticeCode.MISSING_MASKED, input=place, text=text))
    if schema.items and name not in forecaster.places:
        surprises.append(Notice(code=OWN_SCALE.code, input=place, text=str(OWN_SCALE)))
    flat = not _in_rows(series.target)
    return Inputs(name, history, start, known, static, count, first, flat), surprises


def _in_rows(target: Any) -> bool:
    """Whether each step has a list of columns, not a number."""
    return isinstance(target[0], list | np.ndarray)


def _covariates(
    series: SeriesInput, role: str, length: int, step: str, forecaster: Predictor
) -> dict[str, np.ndarray]:
    """The covariates by the model's columns, words as columns of 0 and 1, NaN where missing."""
    schema, given = forecaster.schema, getattr(series, role)
    reading = schema.reading

    def names(columns: Sequence[str]) -> list[str]:
        """Those of the covariates; a column of 0 and 1 may also be given itself."""
        own = [name for name in columns if name in given]
        return [*own, *reading.read_from([name for name in columns if name not in given])]

    ahead = names(schema.known.columns)
    optional = names(schema.past_only) if role == "past_covariates" else []
    _check_names(role, list(given), ahead, optional)
    first = max(length - forecaster.bundle.past, 0) if role == "past_covariates" else 0
    complete = set(ahead)
    columns: dict[str, np.ndarray] = {}
    for name, values in given.items():
        if len(values) != length:
            message = f"expected {length} values, one per {step}, got {len(values)}"
            raise RefusedError((role, name), message, "length")
        words = reading.categories.get(name)
        for row, value in enumerate(values):
            if value is not None and (value not in words if words else type(value) is str):
                message = f"value {row + 1}: expected {_wanted(words)}"
                raise RefusedError((role, name, row), message, "category")
        if name in complete and None in values[first:]:
            row = values.index(None, first)
            message = f"value {row + 1}: null is not allowed: future covariates must be complete"
            raise RefusedError((role, name, row), message, "incomplete")
        if words:
            values = [[None if each is None else each == word for word in words] for each in values]
        parts = reading.read_as([name])
        table = np.array(values, dtype=np.float64).reshape(length, len(parts))
        columns.update(zip(parts, table.T, strict=True))
    return columns


def _history(
    series: SeriesInput, before: Mapping[str, np.ndarray], forecaster: Predictor
) -> np.ndarray:
    """The newest rows (P, C) in the model's order of columns, NaN where missing and before them."""
    schema, past = forecaster.schema, forecaster.bundle.past
    target: Any = series.target  # an array, or lists
    names = [name for name in schema.columns if name not in before]
    given = names if series.columns is None else series.columns
    _check_names("columns", given, names)
    widths: Sequence[int] = [1]
    if _in_rows(target):
        widths = target.shape[1:] if isinstance(target, np.ndarray) else list(map(len, target))
    for row, width in enumerate(widths):
        if width != len(names):
            message = f"expected {len(names)} columns in every row ({_listed(names)}), got {width} "
            message += f"in row {row + 1}. {EXAMPLE}"
            raise RefusedError(("target", row), message, "column_count")
    values = np.asarray(target[-past:], dtype=np.float64).reshape(-1, len(names))
    places = {name: place for place, name in enumerate(schema.columns)}
    history = np.full((past, len(places)), np.nan)
    history[past - len(values) :, [places[name] for name in given]] = values
    for name in before.keys() & places:
        history[past - len(values) :, places[name]] = before[name][-past:]
    return history


def _known(
    series: SeriesInput, before: Mapping[str, np.ndarray], forecaster: Predictor
) -> np.ndarray:
    """The future covariates over the newest look-back and the horizon, (P + T, K)."""
    past, horizon = forecaster.bundle.past, forecaster.bundle.horizon
    step = "step of the model's horizon, however short the prediction_length"
    ahead = _covariates(series, "future_covariates", horizon, step, forecaster)
    columns = forecaster.schema.known.columns
    known = np.empty((past + horizon, len(columns)))
    first = max(past - len(series.target), 0)
    for place, name in enumerate(columns):
        known[first:past, place] = before[name][-past:]
        known[past:, place] = ahead[name]
    known[:first] = known[first]
    return known


def _static(series: SeriesInput, schema: Schema) -> dict[str, float | str]:
    """The static attributes, by name."""
    given, attributes = series.static_covariates, schema.known.attributes
    _check_names("static_covariates", list(given), [each.name for each in attributes])
    for each in attributes:
        value = given[each.name]
        if value not in each.words if each.words else isinstance(value, str):
            message = f"expected {_wanted(each.words)}"
            raise RefusedError(("static_covariates", each.name), message, "attribute")
    return given


def _wanted(words: Sequence[str] | None) -> str:
    return f"one of {_listed(words)}" if words else "a number"


def _check_names(
    where: str, given: Sequence[str], needed: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raise RefusedError unless each needed name is given once, and nothing unknown."""
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
        raise RefusedError((where,), message, "names")


def _listed(names: Sequence[str]) -> str:
    more = (
        f" and {len(names) - MOST_NAMES} more, see GET /models" if len(names) > MOST_NAMES else ""
    )
    return ", ".join(names[:MOST_NAMES]) + more


def _times(text: str | None, rows: int, forecaster: Predictor) -> tuple[pd.Timestamp, str]:
    """The times of the first row of the look-back and, in ISO 8601, of the first forecast step."""
    schema, past, horizon = forecaster.schema, forecaster.bundle.past, forecaster.bundle.horizon
    utc, offset = schema.timezone == "UTC", _offset(schema.freq)
    with suppress(ValueError, OverflowError):  # pandas' OutOfBoundsDatetime is a ValueError
        time = datetime.fromisoformat(text or "")
        if utc and time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
        begin = pd.Timestamp(time).as_unit("us")
        start = begin + (rows - past) * offset if rows != past else begin
        first = start + past * offset
        last = first + (horizon - 1) * offset
        if time.tzinfo is None and offset.is_on_offset(begin) and last.year <= 9999:
            return start, first.isoformat() + ("+00:00" if utc else "")
    zone = "in UTC or with an offset" if utc else "in the source's time without an offset"
    message = (
        f"expected the time of the first row in ISO 8601, such as 2018-06-26T00:00:00, {zone}, on "
        f"the grid of steps of {schema.freq}, and no forecast beyond the year 9999"
    )
    raise RefusedError(("start",), message, "start")
