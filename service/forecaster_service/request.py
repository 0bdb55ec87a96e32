"""What the service is asked: the schemas of /openapi.json.

Requests are strict: no unknown keys, no numbers in strings, no NaN (a missing value is null),
bounded lengths. Validation stops at the first bad value of a list, so that a large bad request
costs little. The tags of unions are no plain words, so that `http_errors` leaves them out.
"""

from array import array
from itertools import chain
from types import NoneType
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from forecaster.forecast.notices import Period, ShortHistory

MOST_COLUMNS = 10_000  # of a row, so that what is no table ends early
ARRAYS = {"targets": "arrays"}
"""The context of validation in which targets become arrays, where possible."""


def _whole(value: Any) -> Any:
    """1.0 is an integer in JSON (JSON Schema, 6.1.1)."""
    return int(value) if type(value) is float and value.is_integer() else value


Steps: TypeAlias = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
"""A number of time steps."""


class Strict(BaseModel):
    """Base of everything that clients send."""

    model_config = ConfigDict(
        strict=True, allow_inf_nan=False, extra="forbid", use_attribute_docstrings=True
    )


def _rank(target: Any) -> str:
    """Which of the two kinds of target a list most likely is."""
    rows = isinstance(target, list) and target and isinstance(target[0], list)
    return "<rows>" if rows else "<list>"


def _table(target: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """In the context ARRAYS, a full table of finite numbers and null as an array (N, C) with NaN,
    or a plain list as (N,), checked and converted in one step, which needs a quarter of the memory.
    Anything else is left to pydantic.
    """
    if info.context is not ARRAYS or not isinstance(target, list) or not target:
        return handler(target)
    plain = not isinstance(target[0], list)
    rows = [target] if plain else target
    try:
        width, values = len(rows[0]), _numbers(rows)
        full = plain or (0 < width <= MOST_COLUMNS and set(map(len, rows)) == {width})
    except (TypeError, OverflowError):
        return handler(target)
    if values is None or not full:
        return handler(target)
    return values if plain else values.reshape(-1, width)


def _numbers(rows: list[list[Any]]) -> np.ndarray | None:
    """The cells of all rows if they are finite numbers or null, else None. Raises TypeError and
    OverflowError for what is neither a list nor a number."""
    numbers = array("d")
    try:
        for row in rows:
            numbers.fromlist(row)  # accepts only numbers, but also true and false
    except TypeError:
        if not set(map(type, chain(*rows))) <= {int, float, NoneType}:
            return None
        values = np.array([*chain(*rows)], dtype=np.float64)
        missing = sum(row.count(None) for row in rows)
        return values if np.isfinite(values).sum() == values.size - missing else None
    values = np.frombuffer(numbers)
    if not np.isfinite(values).all():
        return None
    if ((values == 0) | (values == 1)).any() and bool in set(map(type, chain(*rows))):
        return None
    return values


def _form(body: Any) -> str:
    """Which of the two forms a body most likely has."""
    full = isinstance(body, dict) and ("inputs" in body or "parameters" in body)
    return "<full>" if full else "<flat>"


def _cells(values: Any) -> str:
    """Which of the two kinds of covariate a list most likely is."""
    there = (value for value in values if value is not None) if isinstance(values, list) else ()
    return "<words>" if isinstance(next(iter(there), None), str) else "<numbers>"


Row: TypeAlias = Annotated[
    list[float | None], Field(fail_fast=True, min_length=1, max_length=MOST_COLUMNS)
]
Numbers: TypeAlias = Annotated[list[float | None], Field(fail_fast=True)]
Target: TypeAlias = Annotated[
    Annotated[Numbers, Tag("<list>")]
    | Annotated[list[Row], Field(fail_fast=True, min_length=1), Tag("<rows>")],
    Discriminator(_rank),
    WrapValidator(_table),
]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Word: TypeAlias = Annotated[str, Field(max_length=256)]
Covariate: TypeAlias = Annotated[
    Annotated[Numbers, Tag("<numbers>")]
    | Annotated[list[Word | None], Field(fail_fast=True), Tag("<words>")],
    Discriminator(_cells),
]
Attribute: TypeAlias = Annotated[
    Annotated[float, Tag("<number>")] | Annotated[Word, Tag("<word>")],
    Discriminator(
        lambda value: {int: "<number>", float: "<number>", str: "<word>"}.get(type(value)),
        custom_error_type="attribute",
        custom_error_message="expected a number or a word",
    ),
]
Levels: TypeAlias = Annotated[
    list[Annotated[float, Field(gt=0, lt=1)]], Field(fail_fast=True, max_length=100)
]


class SeriesInput(Strict):
    """One series up to now."""

    item_id: Name | None = None
    """A name that is returned with the forecast: letters, digits, spaces and _ . : @ -, or any name
    of a series that the model was trained on. A model of a panel recognises its series by it; any
    other series is scaled by its own history and, where that is short, by those of training."""
    start: Annotated[str, Field(max_length=40)] | None = None
    """The time of the first row, or without any of the first step ahead, ISO 8601; required."""
    target: Target
    """The values in their units, oldest first: one list of columns per time step, or one number
    per time step for a single column. null where one is missing: it is masked, never filled, and
    each column needs at least one value in the look-back. A new series of a panel may have none."""
    columns: Annotated[list[Name], Field(fail_fast=True, max_length=MOST_COLUMNS)] | None = None
    """The names of the columns of `target`, in any order; by default the model's, in its order,
    without those in `past_covariates`."""
    past_covariates: Annotated[dict[Name, Covariate], Field(max_length=MOST_COLUMNS)] = {}
    """By name, one value per row of `target`: all future covariates, complete in the look-back;
    and past covariates that are not columns of `target`, null where missing. The values of a text
    covariate must be words that the model knows."""
    future_covariates: Annotated[dict[Name, Covariate], Field(max_length=MOST_COLUMNS)] = {}
    """By name, all future covariates, complete: one value per step of the model's horizon, even
    where fewer steps are requested."""
    static_covariates: Annotated[dict[Name, Attribute], Field(max_length=MOST_COLUMNS)] = {}
    """By name, the static attributes of the series: a number, or one of the words that the model
    knows."""


class Parameters(Strict):
    """What to forecast."""

    prediction_length: Steps | None = None
    """Time steps; by default and at most the model's horizon."""
    freq: Annotated[str, Field(pattern=r"^[0-9]{0,6}[A-Za-z]{1,3}(-[A-Z]{3})?$")] | None = None
    """The time step, e.g. h, 15min or D, which must be the model's; by default it is."""
    quantile_levels: Levels = []
    """Levels of quantiles beside the forecast, within the range that GET /models shows; between the
    levels of the model, quantiles are interpolated linearly."""
    short_history: ShortHistory | None = None
    """What to do with a series that has fewer rows than the model needs: `refuse` it, by default
    for a model of one series, or `drop` the parts of the model that need more, with a notice. For
    new series of a panel, those of training stand in: any number of rows will do."""
    samples: Steps | None = None
    """How many paths to give beside the forecast: what may come at all steps, columns and series
    together. The same request has the same paths."""
    total: Period | None = None
    """What to give totals over: each whole day, week (from Monday) or month of the forecast, or the
    horizon, with quantiles at `quantile_levels`, by default 0.1 and 0.9, of the sums themselves."""
    by: Name | None = None
    """Which series of a panel to sum, at each step or over `total`: all, or those with the same
    value of a static attribute or of one of several id columns; by default each alone."""


ModelName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@/-]{0,127}$")]


class FullRequest(Strict):
    """A request with one or many series in `inputs`."""

    inputs: Annotated[list[SeriesInput], Field(fail_fast=True, min_length=1)]
    parameters: Parameters = Parameters()
    model: ModelName | None = None
    """A name that GET /models lists; by default the first model."""


class FlatRequest(SeriesInput, Parameters):
    """A request with one series, and everything at the top."""

    model: ModelName | None = None
    """A name that GET /models lists; by default the first model."""

    @property
    def inputs(self) -> list[SeriesInput]:
        return [self]

    @property
    def parameters(self) -> Parameters:
        return self


ForecastRequest: TypeAlias = Annotated[
    Annotated[FullRequest, Tag("<full>")] | Annotated[FlatRequest, Tag("<flat>")],
    Discriminator(_form),
]
