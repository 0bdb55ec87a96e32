"""What the service answers: the schemas of /openapi.json."""

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

from forecaster.forecast.notices import NoticeCode

MOST_ITEMS = 1000
"""The most series of a panel that a model card names."""


class Reply(BaseModel):
    """Base of everything that clients get."""

    model_config = ConfigDict(
        allow_inf_nan=False, frozen=True, use_attribute_docstrings=True, protected_namespaces=()
    )


class ModelIdentity(Reply):
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


class Prediction(Reply):
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
    samples: list[Values] | None = None
    """Paths, as `mean`, where they were requested; path n of all series belongs together."""


class Total(Reply):
    """The total of a series, or of a group of series, over a period."""

    name: str | None
    """That of the series, or the value that the group has in common; `all` for all series."""
    start: str
    """The time of its first step."""
    steps: int
    """How many steps it has."""
    mean: list[float]
    """The sum of the forecasts of each column, in units."""
    quantiles: dict[str, list[float]]
    """By level, those of the sum."""


class Timing(Reply):
    queue_ms: float
    """Time spent waiting for the device."""
    inference_ms: float
    """Time on the device, together with the other series of its batch."""
    batch_size: int
    """The number of series that ran together, including those of other requests."""


class Notice(Reply):
    """Something that may surprise in a forecast."""

    code: NoticeCode
    """What it is about, as a word for programs."""
    input: int | None
    """The series that it is about, by its place in `inputs`, from 0; null for all series, and for a
    request with one series at the top."""
    text: str
    """What it is about, as a sentence for people."""


class ForecastResponse(Reply):
    """The forecasts, in the order of the request's series."""

    id: str
    """The request's id, as in the header X-Request-ID."""
    model: ModelIdentity
    predictions: list[Prediction]
    totals: list[Total] | None = None
    """The totals, where they were requested."""
    warnings: list[str]
    """The notices in words, for people."""
    notices: list[Notice]
    """What was done with the input, and what stands out in the forecast, for programs."""
    timing: Timing


class StaticAttribute(Reply):
    """A static attribute that a model reads."""

    name: str
    words: list[str] | None
    """The words that it may be; null for any number."""


class PartOfModel(Reply):
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


class Band(Reply):
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
    flags: list[str]
    """Those of them that are 1 for on and 0 for off."""
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
    new_series: bool
    """Whether it forecasts series that it was not trained on from any number of rows."""
    horizon: int
    """The most steps that it forecasts."""
    forecast: str
    """What it forecasts: the mean."""
    quantile_levels: list[float]
    """The levels that it was calibrated for; a request may ask for any level from the
    first to the last."""
    paths_from: int
    """The number of windows whose errors its paths and totals are made of; 0 if it makes none."""
    intervals: str
    """How its quantiles were made, or why there are none."""
    bands: list[Band]
    """The measured coverage of its bands, the narrowest first."""
    test: dict[str, Any]
    """Its metrics on the test split: MSE and MAE in scaled values, for each target also in units,
    those of its floors (forecasts that need no training, each alone) and a verdict in words; in
    `network` those of the network alone, and what it adds to the forecast with its paired
    interval."""
    refit: bool
    """Whether it was trained once more on all rows after those metrics were measured."""
    seen_until: str | None
    """The time of the last row that it was trained on, ISO 8601."""


class Models(Reply):
    models: list[ModelCard]


class Status(Reply):
    status: str
    model: str | None = None


class Version(Reply):
    version: str
    """The version of forecaster."""
    api: str
    """The version of this interface; /predict is the newest."""
