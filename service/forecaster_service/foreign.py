"""The schemas of MLflow's scoring requests and KServe's forecasts, as strict as `schemas`."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, GetPydanticSchema, Tag, model_validator
from pydantic_core import PydanticCustomError

from forecaster_service.schemas import (
    MOST_COLUMNS,
    Answer,
    Levels,
    ModelName,
    Name,
    Notice,
    Steps,
    Strict,
    Target,
    Word,
)

Whole: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]


def _one_error(source: Any, handler: Callable[[Any], Any]) -> Any:
    """The schema of a union that reports one error for a value, not one for each type."""
    message = "expected a finite number, a word, true, false or null"
    return {**handler(source), "custom_error_type": "cell", "custom_error_message": message}


_Given: TypeAlias = Annotated[Whole | float | Word | bool, Field(union_mode="left_to_right")]
Cell: TypeAlias = Annotated[_Given, GetPydanticSchema(_one_error)] | None
"""A number, a time, a name, or null where a value is missing."""
Column: TypeAlias = Annotated[list[Cell], Field(fail_fast=True, min_length=1)]
Columns: TypeAlias = Annotated[dict[Name, Column], Field(min_length=1, max_length=MOST_COLUMNS)]
Records: TypeAlias = Annotated[
    list[Annotated[dict[Name, Cell], Field(max_length=MOST_COLUMNS)]],
    Field(fail_fast=True, min_length=1),
]
Table: TypeAlias = Annotated[
    Annotated[Columns, Tag("<columns>")] | Annotated[Records, Tag("<records>")],
    Discriminator(lambda table: "<records>" if isinstance(table, list) else "<columns>"),
]


class Params(Strict):
    """What to forecast."""

    horizon: Steps | None = None
    """Time steps; by default and at most the model's horizon."""
    quantile_levels: Levels = Field(default_factory=list)
    """Quantiles beside the forecast, in columns such as "load 0.1"."""


class Split(Strict):
    """A table by its rows, and its names apart."""

    columns: Annotated[list[Name], Field(fail_fast=True, min_length=1, max_length=MOST_COLUMNS)]
    data: Annotated[
        list[Annotated[list[Cell], Field(fail_fast=True, max_length=MOST_COLUMNS)]],
        Field(fail_fast=True, min_length=1),
    ]
    """One list per row, in the order of `columns`."""
    index: Annotated[list[Cell], Field(fail_fast=True)] | None = None
    """Not used: times are in their column."""


class ScoringRequest(Strict):
    """A table in one of four forms, and what to forecast."""

    dataframe_split: Split | None = None
    """By its rows, with its names apart."""
    dataframe_records: Records | None = None
    """By its rows, each with its names."""
    inputs: Table | None = None
    """By its columns, or by its rows."""
    instances: Records | None = None
    """By its rows, each with its names."""
    params: Params = Params()

    @property
    def tables(self) -> list[Any]:
        """The tables that were given, of which there must be one."""
        return [table for key in TABLES if (table := getattr(self, key)) is not None]

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        if len(self.tables) != 1:
            raise PydanticCustomError("tables", f"expected exactly one of {', '.join(TABLES)}")
        return self


TABLES = tuple(key for key in ScoringRequest.model_fields if key != "params")


class Predictions(Answer):
    """The forecast as a table: its rows, each with the names of `Predictor.predict`."""

    predictions: list[dict[str, str | float]]
    notices: list[Notice]
    """As in the answer of /predict; `input` is the place of the series in the table, from 0."""


SeriesType: TypeAlias = Literal["univariate_time_series", "multivariate_time_series"]


class TimeSeries(Strict):
    """One series up to now."""

    type: SeriesType
    """Whether `series` has one number per time step, or a list of columns."""
    name: Name
    """A name that is returned with the forecast; for a model of a panel, the name of the series."""
    series: Target
    """The values in their units, oldest first; null where one is missing."""
    frequency: Annotated[str, Field(min_length=1, max_length=16)]
    """The time step: second, minute, hour, day, week, month, quarter, year, or S, T, H, D, W, M, Q,
    Y; or as GET /models shows it, e.g. 15min."""
    start_timestamp: Annotated[str, Field(max_length=40)] | None = None
    """The time of the first row, ISO 8601; required."""


class Options(Strict):
    """What to forecast."""

    horizon: Steps
    """Time steps, at most the model's horizon."""
    quantiles: Levels | None = None
    """Levels, within the range that GET /models shows."""


class TimeSeriesRequest(Strict):
    """One or many series."""

    model: ModelName
    """A name that GET /models lists."""
    inputs: Annotated[list[TimeSeries], Field(fail_fast=True, min_length=1)]
    options: Options
    metadata: dict[str, Any] | None = None
    """Anything; not used."""
