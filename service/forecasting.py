"""From a checked request to arrays, through the model, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from forecaster.datasets import future_times, normalise_freq
from forecaster.errors import DataError, UsageError
from forecaster.lookup import did_you_mean
from forecaster.predict import Forecaster
from service.problems import Flaw, Location, invalid
from service.schemas import (
    FlatRequest,
    ForecastResponse,
    FullRequest,
    ModelIdentity,
    Parameters,
    Prediction,
    SeriesInput,
    Timing,
)

MOST_NAMES = 50
MOST_QUANTILES = 5_000_000
"""Numbers in one answer, beside the forecast itself: some 100 MB of JSON."""


@dataclass(frozen=True)
class Place:
    """Where a forecast belongs: its series' name, its first step, and the rank of its target."""

    item_id: str | None
    start: str
    one_dimensional: bool


@dataclass(frozen=True)
class Job:
    """What the model is to do: histories (B, P, C) in units, the time of each first row (B,)."""

    history: np.ndarray
    starts: pd.DatetimeIndex
    places: list[Place]
    steps: int
    levels: list[float]
    warnings: list[str]


class _RefusedError(Exception):
    """One thing that is wrong: the way to it, what to do, a word for programs."""

    def __init__(self, loc: Location, msg: str, kind: str) -> None:
        super().__init__(msg)
        self.loc, self.msg, self.kind = loc, msg, kind

    def flaw(self, parents: Location = ()) -> Flaw:
        return Flaw(loc=[*parents, *self.loc], msg=self.msg, type=self.kind)


def prepare(request: FullRequest | FlatRequest, forecaster: Forecaster) -> Job:
    """Fit a request to the model. Raises Problem 422 with everything that does not fit."""
    full = isinstance(request, FullRequest)
    steps = request.parameters.prediction_length or forecaster.bundle.horizon
    levels = sorted(set(request.parameters.quantile_levels))
    numbers = len(request.inputs) * steps * len(forecaster.schema.targets) * len(levels)
    flaws = [
        refused.flaw(("parameters",) if full else ())
        for refused in _refusals(request.parameters, forecaster, numbers)
    ]
    histories, starts, places, warnings = [], [], [], []
    for number, series in enumerate(request.inputs):
        try:
            rows = _history(series, forecaster)
            start, first = _times(series, len(rows), forecaster)
        except _RefusedError as refused:
            flaws.append(refused.flaw(("inputs", number) if full else ()))
            continue
        past = forecaster.bundle.past
        if len(rows) > past:
            where = f"inputs[{number}]: " if full else ""
            warnings.append(f"{where}the newest {past} of {len(rows)} rows were used")
        histories.append(rows[-past:])
        starts.append(start)
        one_dimensional = not isinstance(series.target[0], list)
        places.append(Place(series.item_id, first, one_dimensional))
    if flaws:
        raise invalid(flaws)
    if forecaster.kind == "median":
        warnings.append("this model was trained for quantiles alone: median, not mean, is given")
    return Job(
        history=np.stack(histories),
        starts=pd.DatetimeIndex(starts),
        places=places,
        steps=steps,
        levels=levels,
        warnings=warnings,
    )


def run(job: Job, forecaster: Forecaster, max_batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts (B, steps, targets) and quantiles (B, steps, targets, levels), in units.

    At most `max_batch` series run at a time.
    """
    parts = [
        forecaster.forecast_quantiles(
            job.history[i : i + max_batch], job.starts[i : i + max_batch], job.levels
        )
        for i in range(0, len(job.places), max_batch)
    ]
    forecasts, quantiles = (
        np.concatenate(part)[:, : job.steps] for part in zip(*parts, strict=True)
    )
    return forecasts, quantiles


def answer(
    job: Job, forecaster: Forecaster, model: ModelIdentity, request_id: str, submitted: float,
    max_batch: int,
) -> bytes:  # fmt: skip
    """Run the job and write the response as JSON; `submitted` is when it was handed over."""
    began = perf_counter()
    forecasts, quantiles = run(job, forecaster, max_batch)
    ended = perf_counter()
    schema = forecaster.schema
    predictions = [
        Prediction(
            item_id=place.item_id,
            start=place.start,
            freq=schema.freq,
            columns=list(schema.targets),
            **_values(place, forecast, levels, job, forecaster.kind),
        )
        for place, forecast, levels in zip(job.places, forecasts, quantiles, strict=True)
    ]
    return ForecastResponse(
        id=request_id,
        model=model,
        predictions=predictions,
        warnings=job.warnings,
        timing=Timing(
            queue_ms=round((began - submitted) * 1e3, 3),
            inference_ms=round((ended - began) * 1e3, 3),
            batch_size=min(len(forecasts), max_batch),
        ),
    ).model_dump_json(exclude_unset=True).encode()  # fmt: skip


def _values(
    place: Place, forecast: np.ndarray, quantiles: np.ndarray, job: Job, kind: str
) -> dict[str, Any]:
    """The fields of one prediction that hold numbers: (steps, targets), quantiles by level."""

    def shaped(values: np.ndarray) -> list[Any]:
        listed: list[Any] = (values[:, 0] if place.one_dimensional else values).tolist()
        return listed

    fields: dict[str, Any] = {kind: shaped(forecast)}
    if job.levels:
        fields["quantiles"] = {
            str(level): shaped(quantiles[..., i]) for i, level in enumerate(job.levels)
        }
    return fields


def example(forecaster: Forecaster) -> dict[str, Any]:
    """A request that the model accepts."""
    frame, schema = forecaster.example, forecaster.schema
    series = {
        "item_id": "example",
        "start": frame[schema.time].iloc[0].isoformat(),
        "columns": list(schema.columns),
        "target": frame[list(schema.columns)].to_numpy().tolist(),
    }
    parameters = {"prediction_length": forecaster.bundle.horizon, "freq": schema.freq}
    return {"inputs": [series], "parameters": parameters}


def _refusals(
    parameters: Parameters, forecaster: Forecaster, quantiles: int
) -> list[_RefusedError]:
    """What is wrong with the parameters; `quantiles` is how many numbers they ask for."""
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
                f"these are {quantiles:,} numbers for all series, steps and columns, but one "
                f"answer has at most {MOST_QUANTILES:,}: ask for fewer levels, steps or series"
            )
            refusals.append(_RefusedError(("quantile_levels",), message, "too_many"))
    return refusals


def _history(series: SeriesInput, forecaster: Forecaster) -> np.ndarray:
    """All rows (N, C) in the model's order of columns."""
    for name in ("past_covariates", "future_covariates"):
        if getattr(series, name):
            raise _RefusedError((name,), "this model takes no covariates", "no_covariates")
    names, past = forecaster.schema.columns, forecaster.bundle.past
    order = _order(series.columns, names)
    rows: Sequence[Any] = series.target
    if isinstance(rows[0], list):
        row = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
        if row is not None:
            message = (
                f"expected {len(names)} columns in every row ({_listed(names)}), got "
                f"{len(rows[row])} in row {row + 1}"
            )
            raise _RefusedError(("target", row), message, "column_count")
    elif len(names) != 1:
        message = (
            f"expected {len(names)} columns ({_listed(names)}): a list of {len(names)} numbers "
            "per time step, got one number per time step"
        )
        raise _RefusedError(("target",), message, "column_count")
    if len(rows) < past:
        message = f"expected at least {past} rows, the model's look-back, got {len(rows)}"
        raise _RefusedError(("target",), message, "too_short")
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return values if order is None else values[:, order]


def _order(given: list[str] | None, names: tuple[str, ...]) -> list[int] | None:
    """Where each of the model's columns stands in the request; None for the model's order."""
    if given is None or tuple(given) == names:
        return None
    problems = []
    unknown = [place for place, name in enumerate(given) if name not in names]
    if unknown:
        hint = did_you_mean(given[unknown[0]][:64], names)
        problems.append(f"columns[{unknown[0]}] is none of them.{hint}")
    if missing := [name for name in names if name not in given]:
        problems.append(f"missing: {_listed(missing)}.")
    if twice := [name for name in names if given.count(name) > 1]:
        problems.append(f"there more than once: {_listed(twice)}.")
    if problems:
        message = f"expected each of {_listed(names)} once, in any order; {' '.join(problems)}"
        raise _RefusedError(("columns",), message, "columns")
    return [given.index(name) for name in names]


def _listed(names: Sequence[str]) -> str:
    more = (
        f" and {len(names) - MOST_NAMES} more, see GET /models" if len(names) > MOST_NAMES else ""
    )
    return ", ".join(names[:MOST_NAMES]) + more


def _times(series: SeriesInput, rows: int, forecaster: Forecaster) -> tuple[pd.Timestamp, str]:
    """The time of the first row that is used, and that of the first forecast step in ISO 8601."""
    schema, past, horizon = forecaster.schema, forecaster.bundle.past, forecaster.bundle.horizon
    begin = _start(series.start, schema.timezone)
    offset = to_offset(schema.freq)
    if not offset.is_on_offset(begin):
        message = f"this is no time of a series with steps of {schema.freq}"
        raise _RefusedError(("start",), message, "start")
    try:
        start = begin + (rows - past) * offset if rows > past else begin
        last = start + (past - 1) * offset if past > 1 else start
        first = future_times(last, horizon, schema.freq)[0]
    except (DataError, OverflowError, ValueError):
        message = "the forecast would lie beyond the year 9999"
        raise _RefusedError(("start",), message, "start") from None
    zone = "+00:00" if schema.timezone == "UTC" else ""
    return start, first.isoformat() + zone


def _start(text: str | None, timezone: str) -> pd.Timestamp:
    """The time of the first row, in UTC or in the clock of the model's data, without a zone."""
    if text is None:
        message = (
            "this model has calendar features: give the time of the first row, such as "
            "2018-06-26T00:00:00"
        )
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
