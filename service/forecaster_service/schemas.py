"""The shapes of requests and answers, as /openapi.json tells them.

Requests are strict: no unknown keys, no numbers in strings, no NaN (a missing value is null),
bounded lengths. Checking stops at the first bad value of a list, so that a large bad request costs
little.
"""

from array import array
from itertools import chain
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from forecaster.notices import NoticeCode, ShortHistory

MOST_COLUMNS = 10_000
MOST_ITEMS = 1000
"""Series of a panel that are told by name."""
ARRAYS = {"targets": "arrays"}
"""The context of validation in which targets become arrays, where they can."""


class Strict(BaseModel):
    """Base of what clients send."""

    model_config = ConfigDict(
        strict=True, allow_inf_nan=False, extra="forbid", use_attribute_docstrings=True
    )


def _rank(target: Any) -> str:
    """Which of the two kinds of target a list means to be."""
    return "rows" if isinstance(target, list) and target and isinstance(target[0], list) else "list"


def _table(target: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Where ARRAYS is the context, a full table of finite numbers as an array (N, C), or (N,) of a
    plain list: checked and converted in one step. Anything else is what pydantic makes of it, or
    says of it.
    """
    if info.context is not ARRAYS or not isinstance(target, list) or not target:
        return handler(target)
    plain = not isinstance(target[0], list)
    rows, numbers = [target] if plain else target, array("d")
    try:
        for row in rows:
            numbers.fromlist(row)  # takes numbers alone, but true and false among them
    except (TypeError, OverflowError):
        return handler(target)
    values, width = np.frombuffer(numbers), len(rows[0])
    if not plain and not (0 < width <= MOST_COLUMNS and set(map(len, rows)) == {width}):
        return handler(target)
    if not np.isfinite(values).all():
        return handler(target)
    if ((values == 0) | (values == 1)).any() and bool in set(map(type, chain(*rows))):
        return handler(target)
    return values if plain else values.reshape(-1, width)


def _form(body: Any) -> str:
    """Which of the two forms a body means to be."""
    full = isinstance(body, dict) and ("inputs" in body or "parameters" in body)
    return "full" if full else "flat"


def _cells(values: Any) -> str:
    """Which of the two kinds of covariate a list means to be."""
    there = (value for value in values if value is not None) if isinstance(values, list) else ()
    return "words" if isinstance(next(iter(there), None), str) else "numbers"


Row: TypeAlias = Annotated[
    list[float | None], Field(fail_fast=True, min_length=1, max_length=MOST_COLUMNS)
]
Past: TypeAlias = Annotated[list[float | None], Field(fail_fast=True, min_length=1)]
Future: TypeAlias = Annotated[list[float], Field(fail_fast=True, min_length=1)]
Target: TypeAlias = Annotated[
    Annotated[Past, Tag("list")]
    | Annotated[list[Row], Field(fail_fast=True, min_length=1), Tag("rows")],
    Discriminator(_rank),
    WrapValidator(_table),
]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Word: TypeAlias = Annotated[str, Field(max_length=256)]
PastCovariate: TypeAlias = Annotated[
    Annotated[Past, Tag("numbers")]
    | Annotated[list[Word | None], Field(fail_fast=True, min_length=1), Tag("words")],
    Discriminator(_cells),
]
FutureCovariate: TypeAlias = Annotated[
    Annotated[Future, Tag("numbers")]
    | Annotated[list[Word], Field(fail_fast=True, min_length=1), Tag("words")],
    Discriminator(_cells),
]
Attribute: TypeAlias = Annotated[
    Annotated[float, Tag("number")] | Annotated[Word, Tag("word")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "number"),
]
Levels: TypeAlias = Annotated[
    list[Annotated[float, Field(gt=0, lt=1)]], Field(fail_fast=True, max_length=100)
]


class SeriesInput(Strict):
    """One series up to now."""

    item_id: Name | None = None
    """A name that comes back with the forecast: letters, digits, spaces and _ . : @ -, or any name
    of a series that the model was trained on. By it a model of a panel knows the series; another
    one is scaled by its own history."""
    start: Annotated[str, Field(max_length=40)] | None = None
    """The time of the first row, ISO 8601; needed by models with calendar features."""
    target: Target
    """The values in their units, oldest first: one list of columns per time step, or one number
    per time step for a single column. null where one is missing: it is masked, never filled, and
    each column needs at least one value in the look-back."""
    columns: Annotated[list[Name], Field(fail_fast=True, max_length=MOST_COLUMNS)] | None = None
    """The names of the columns of `target`, in any order; by default the model's, in its order,
    without those in `past_covariates`."""
    past_covariates: Annotated[dict[Name, PastCovariate], Field(max_length=MOST_COLUMNS)] = {}
    """By name, one value per row of `target`: all covariates known ahead, complete in the
    look-back; and, where they are no columns of `target`, covariates of the past, null where
    missing. A covariate of words has words that the model knows."""
    future_covariates: Annotated[dict[Name, FutureCovariate], Field(max_length=MOST_COLUMNS)] = {}
    """By name, all covariates known ahead, complete: one value per step of the model's horizon,
    also where fewer steps are asked for."""
    static_covariates: Annotated[dict[Name, Attribute], Field(max_length=MOST_COLUMNS)] = {}
    """By name, the static attributes of the series: a number, or one of the words that the model
    knows."""


class Parameters(Strict):
    """What to forecast."""

    prediction_length: Annotated[int, Field(ge=1)] | None = None
    """Time steps; by default and at most the model's horizon."""
    freq: Annotated[str, Field(pattern=r"^[0-9]{0,6}[A-Za-z]{1,3}(-[A-Z]{3})?$")] | None = None
    """The time step, such as h, 15min, D; by default the model's, the only one it knows."""
    quantile_levels: Levels = []
    """Quantiles beside the forecast, within the range of levels that GET /models tells; levels
    between those of the model are taken linearly."""
    short_history: ShortHistory = "refuse"
    """What becomes of a series with fewer rows than the model needs: `refuse` it, or `drop` the
    parts of the model that read more, which `notices` tells."""


ModelName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@/-]{0,127}$")]


class FullRequest(Strict):
    """One or many series."""

    inputs: Annotated[list[SeriesInput], Field(fail_fast=True, min_length=1)]
    parameters: Parameters = Parameters()
    model: ModelName | None = None
    """A name that GET /models tells; by default the model that is served."""


class FlatRequest(SeriesInput, Parameters):
    """One series, everything at the top."""

    model: ModelName | None = None
    """A name that GET /models tells; by default the model that is served."""

    @property
    def inputs(self) -> list[SeriesInput]:
        return [self]

    @property
    def parameters(self) -> Parameters:
        return self


ForecastRequest: TypeAlias = Annotated[
    Annotated[FullRequest, Tag("full")] | Annotated[FlatRequest, Tag("flat")], Discriminator(_form)
]


class Answer(BaseModel):
    """Base of what clients get."""

    model_config = ConfigDict(
        allow_inf_nan=False, frozen=True, use_attribute_docstrings=True, protected_namespaces=()
    )


class ModelIdentity(Answer):
    """Which model made a forecast."""

    name: str
    version: str | None
    """Of the registered model."""
    alias: str | None
    """Under which it was found in the registry."""
    run_id: str | None
    """The MLflow run that trained it."""
    attn: str
    """The attention of its network."""
    attn_weight: float
    """The weight of that network in what the model forecasts, from 0 to 1; the other parts are told
    by `made_of` of its card."""
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
    median: Values | None = None
    """In place of `mean`, from a model that was trained for quantiles alone."""
    quantiles: dict[str, Values] | None = None
    """By level, such as "0.1", where levels were asked for; they rise with the level."""


class Timing(Answer):
    queue_ms: float
    """Waiting for the device."""
    inference_ms: float
    """On the device, with those of its batch."""
    batch_size: int
    """Series that ran together, those of other requests included."""


class Notice(Answer):
    """What may surprise in a forecast."""

    code: NoticeCode
    """What it is about: a program decides by this word."""
    input: int | None
    """The series that it is about, by its place in `inputs`, from 0; null for all of them, and
    where the request is one series at the top."""
    text: str
    """The same for people."""


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
    """What it may be; null for any number."""


class PartOfModel(Answer):
    """A part that has a share in the forecast."""

    name: str
    kind: str
    """Such as network, ridge or cycle-mean."""
    weight: float
    """The mean over the steps of the horizon; those of all parts sum to 1."""
    test_mse: float | None
    """Of this part alone, on the windows of the test split."""
    validation_mse: float | None
    """Of this part alone, on the windows that the weights were found on."""
    chosen: str
    """What was chosen of it on validation, in words; of the network its attention."""


class Band(Answer):
    """What a band covered of the values of the test split."""

    share: float
    """What it promises: that so much lies between its quantiles (1 - share) / 2 and
    (1 + share) / 2."""
    coverage: float
    """What lay there, of all targets."""
    columns: dict[str, float | None]
    """What lay there of each target; null where no value was observed."""


class ModelCard(ModelIdentity):
    """What a model reads and forecasts."""

    made_of: list[PartOfModel]
    """The parts of its forecast, the heaviest first."""

    effective: str
    """What its attention amounts to at its lengths."""
    device: str
    graphs: bool
    """Whether it runs as CUDA graphs: on a GPU, where its attention allows it."""
    columns: list[str]
    """What it reads, in its order."""
    time: str
    """What the column of times was called in its data."""
    id: str | None
    """`id_columns` joined by " / "; null without any."""
    id_columns: list[str]
    """What the columns were called that name the series of a long panel; an item_id joins their
    values by " / "."""
    wide: bool
    """Whether each series of its panel was a column of its data."""
    targets: list[str]
    """What it forecasts."""
    past_covariates: list[str]
    """Those of `columns` that it does not forecast."""
    future_covariates: list[str]
    """What it needs for each step of the look-back and of the horizon."""
    static_covariates: list[StaticAttribute]
    """What it needs of a series as a whole."""
    items: int
    """Series of the panel that it was trained on; 0 for a model of one series."""
    item_names: list[str]
    """The first 1000 of them."""
    freq: str
    timezone: str
    """UTC, or naive: the clock of the data's source."""
    policy: str
    reading: dict[str, Any]
    """What became of gaps, repeated and unsorted times in its data: error, sort or resample."""
    look_back: int
    """Rows that it reads at most, the newest ones."""
    needs: int
    """Rows that a request needs at least."""
    least: int
    """Rows from which some of its parts forecast, where short_history is drop."""
    horizon: int
    """Steps that it forecasts at most."""
    forecast: str
    """mean or median: what it answers."""
    quantile_levels: list[float]
    """Those it was calibrated or trained for; the first and the last bound what can be asked."""
    intervals: str
    """How its quantiles came to be, or why there are none."""
    bands: list[Band]
    """What those of them that were measured cover, the narrowest first."""
    test: dict[str, Any]
    """Its honest figures: MSE and MAE in scaled values on the windows of the test split, those of
    its floors (forecasts that need no training, each alone) and a verdict in words; in `network`
    those of the network alone, and what it adds to the forecast with its paired interval."""
    refit: bool
    """Trained once more on all rows after those figures were measured."""


class Models(Answer):
    models: list[ModelCard]


class Status(Answer):
    status: str
    reason: str | None = None
    model: str | None = None


class Version(Answer):
    version: str
    """Of forecaster."""
    api: str
    """Of this interface; /predict is the newest."""
