"""The schemas of requests and answers, as /openapi.json shows them.

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

from forecaster.forecast.notices import NoticeCode, ShortHistory

MOST_COLUMNS = 10_000
MOST_ITEMS = 1000
"""The most series of a panel that a model card names."""
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
Numbers: TypeAlias = Annotated[list[float | None], Field(fail_fast=True, min_length=1)]
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
    | Annotated[list[Word | None], Field(fail_fast=True, min_length=1), Tag("<words>")],
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
    other series is scaled by its own history."""
    start: Annotated[str, Field(max_length=40)] | None = None
    """The time of the first row, ISO 8601; required."""
    target: Target
    """The values in their units, oldest first: one list of columns per time step, or one number
    per time step for a single column. null where one is missing: it is masked, never filled, and
    each column needs at least one value in the look-back."""
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
    short_history: ShortHistory = "refuse"
    """What to do with a series that has fewer rows than the model needs: `refuse` it, or `drop` the
    parts of the model that need more, with a notice."""


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


class Answer(BaseModel):
    """Base of everything that clients get."""

    model_config = ConfigDict(
        allow_inf_nan=False, frozen=True, use_attribute_docstrings=True, protected_namespaces=()
    )


class ModelIdentity(Answer):
    """Which model made a forecast."""

    name: str
    version: str | None
    """The version of the registered model."""
    alias: str | None
    """The alias under which it was found in the registry."""
    run_id: str | None
    """The MLflow run that trained it."""
    attn: str
    """The attention of its network."""
    attn_weight: float
    """The weight of that network in the forecast, from 0 to 1; `made_of` of the model's card lists
    the other parts."""
    digest: str
    """SHA-256 of the bundle's manifest: the same digest, the same model."""


Values: TypeAlias = list[float] | list[list[float]]


class Prediction(Answer):
    """The forecast of one series."""

    item_id: str | None
    start: str
    """The time of the first forecast step, ISO 8601."""
    freq: str
    columns: list[str]
    """What is forecast, in the order of `mean`."""
    mean: Values | None = None
    """In units: a list of columns per time step, or one number per time step when the request's
    target was such a list."""
    quantiles: dict[str, Values] | None = None
    """By level, e.g. "0.1", where levels were requested; values never fall as the level rises."""


class Timing(Answer):
    queue_ms: float
    """Time spent waiting for the device."""
    inference_ms: float
    """Time on the device, together with the other series of its batch."""
    batch_size: int
    """The number of series that ran together, including those of other requests."""


class Notice(Answer):
    """Something that may surprise in a forecast."""

    code: NoticeCode
    """What it is about, as a word for programs."""
    input: int | None
    """The series that it is about, by its place in `inputs`, from 0; null for all series, and for a
    request with one series at the top."""
    text: str
    """What it is about, as a sentence for people."""


class ForecastResponse(Answer):
    """The forecasts, in the order of the request's series."""

    id: str
    """The request's id, as in the header X-Request-ID."""
    model: ModelIdentity
    predictions: list[Prediction]
    warnings: list[str]
    """The notices in words, for people."""
    notices: list[Notice]
    """What was done with the input, and what stands out in the forecast, for programs."""
    timing: Timing


class StaticAttribute(Answer):
    """A static attribute that a model reads."""

    name: str
    words: list[str] | None
    """The words that it may be; null for any number."""


class PartOfModel(Answer):
    """A part that has a share in the forecast."""

    name: str
    kind: str
    """For example network, ridge or cycle-mean."""
    weight: float
    """Its mean weight over the steps of the horizon; the weights of all parts sum to 1."""
    test_mse: float | None
    """The MSE of this part alone, on the windows of the test split."""
    validation_mse: float | None
    """The MSE of this part alone, on the windows that the weights were fitted on."""
    chosen: str
    """Its options that were chosen on validation, in words; for the network its attention."""


class Band(Answer):
    """How many of the values of the test split a band covered."""

    share: float
    """The nominal share of values between its quantiles (1 - share) / 2 and (1 + share) / 2."""
    coverage: float
    """The share of values that lay there, over all targets."""
    again: bool
    """Whether the band was calibrated again since, with the errors of these values."""
    columns: dict[str, float | None]
    """The same for each target; null where no value was observed."""


class ModelCard(ModelIdentity):
    """What a model reads and forecasts."""

    made_of: list[PartOfModel]
    """The parts of its forecast, the heaviest first."""

    effective: str
    """What its attention amounts to at the lengths of this model."""
    device: str
    columns: list[str]
    """The columns that it reads, in its order."""
    time: str
    """The name of the time column in its data."""
    id: str | None
    """`id_columns` joined by " / "; null if there are none."""
    id_columns: list[str]
    """The names of the columns that identify the series of a long panel; an item_id joins their
    values by " / "."""
    wide: bool
    """Whether each series of its panel was a column of its data."""
    targets: list[str]
    """The columns that it forecasts."""
    past_covariates: list[str]
    """Those of `columns` that it does not forecast."""
    future_covariates: list[str]
    """The covariates that it needs for each step of the look-back and of the horizon."""
    effects: list[str]
    """How one more of each of them moves the forecast of the targets, in words."""
    static_covariates: list[StaticAttribute]
    """The static attributes that it needs of each series."""
    items: int
    """The number of series in the panel that it was trained on; 0 for a model of one series."""
    item_names: list[str]
    """The names of the first 1000 of them."""
    freq: str
    timezone: str
    """UTC, or naive: the local time of the data's source."""
    policy: str
    reading: dict[str, Any]
    """What was done with gaps, repeated and unsorted times in its data: error, sort or resample."""
    look_back: int
    """The most rows that it reads, the newest ones."""
    needs: int
    """The fewest rows that a request needs."""
    least: int
    """The fewest rows from which some of its parts forecast, where short_history is drop."""
    horizon: int
    """The most steps that it forecasts."""
    forecast: str
    """What it forecasts: the mean."""
    quantile_levels: list[float]
    """The levels that it was calibrated for; a request may ask for any level from the
    first to the last."""
    intervals: str
    """How its quantiles were made, or why there are none."""
    bands: list[Band]
    """The measured coverage of its bands, the narrowest first."""
    test: dict[str, Any]
    """Its metrics on the test split: MSE and MAE in scaled values, those of its floors (forecasts
    that need no training, each alone) and a verdict in words; in `network` those of the network
    alone, and what it adds to the forecast with its paired interval."""
    refit: bool
    """Whether it was trained once more on all rows after those metrics were measured."""


class Models(Answer):
    models: list[ModelCard]


class Status(Answer):
    status: str
    model: str | None = None


class Version(Answer):
    version: str
    """The version of forecaster."""
    api: str
    """The version of this interface; /predict is the newest."""
