"""How a file is read: what the user states about it, and what the reader finds for the rest."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

Policy: TypeAlias = Literal["error", "sort", "resample", "rows"]
Timezone: TypeAlias = Literal["UTC", "naive"]
Fill: TypeAlias = Literal["linear", "previous", "zero", "season"]
ALL = "*"
"""The key of `Reading.fill` that stands for every covariate."""


@dataclass(frozen=True)
class Text:
    """How a text file is written; "" means that the reader finds it.

    `decimal` is "." or ",", or "" if no number has decimals.
    """

    encoding: str = ""
    separator: str = ""
    decimal: str = ""


@dataclass(frozen=True)
class Stamps:
    """How the stamps of a file are written: `form` is a name in `reader.stamps.FORMS`."""

    form: str


@dataclass(frozen=True)
class Reading:
    """What the user states about a file; the reader finds and fills in the rest.

    `time` and `id` name columns: the stamps, and the series id of a row of a long file, in one
    column or several. If several columns give the time together, `time` names them with commas;
    once they are found, `time_columns` holds them, and `time` is the name of the one time column of
    a forecast. `stamps` describes how they are written.
    `targets` are forecast; `past_covariates` are known only for the past, `future_covariates` also
    over the horizon; `static` attributes belong to a whole series. `freq` is the time step,
    `seasons` its cycles in steps. With `panel`, every target column of a wide file becomes a
    series.

    `policy` states what happens to rows that are not one step apart: `error` refuses them; `sort`
    orders them, drops identical repetitions and leaves gaps missing; `resample` also averages rows
    that share a step; `rows` takes each row as one step, whatever its stamp.

    `timezone` is UTC if stamps carry a zone or count as UTC. `text` describes how a text file is
    written; a file without a header has the columns `header`, a file without stamps begins at
    `first`. Cells equal to one of `missing` have no value; `fill` states how gaps of covariates are
    filled (`reader.filling`), by column, or ALL of them. `categories` holds the words of
    covariates with words: a column `sky` of clear and rain is read as `sky=clear` and `sky=rain`,
    each 0 or 1; `categorical` ones hold words even if they look like numbers. `sheet` names that of
    a workbook, by default the first. Neither in the ranges of steps of a week that are `closed` nor
    on the public holidays of the region `holidays` is a row expected. With `drop_last`, the last
    step of the table, which is not over, is left out.

    A model keeps the reading of its training file and uses it to read the next file.
    """

    time: str | None = None
    id: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    freq: str | None = None
    seasons: tuple[int, ...] = ()
    panel: bool | None = None
    policy: Policy = "error"
    text: Text | None = None
    missing: tuple[str, ...] = ()
    fill: dict[str, Fill] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    timezone: Timezone | None = None
    header: tuple[str, ...] = ()
    first: str | None = None
    time_columns: tuple[str, ...] = ()
    stamps: Stamps | None = None
    closed: tuple[tuple[int, int], ...] = ()
    holidays: str = ""
    categorical: tuple[str, ...] = ()
    sheet: str = ""
    drop_last: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left to find, as for a model or a card: it states the zone then."""
        return self.timezone is not None

    @property
    def covariates(self) -> tuple[str, ...]:
        return self.past_covariates + self.future_covariates

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self.targets + self.covariates

    def read_as(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of the series that these columns of the file become."""
        parts = ([name] if name not in self.categories else self._parts(name) for name in columns)
        return tuple(part for names in parts for part in names)

    def read_from(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of the file from which these columns of the series come."""
        whole = {part: name for name in self.categories for part in self._parts(name)}
        return tuple(dict.fromkeys(whole.get(name, name) for name in columns))

    def _parts(self, name: str) -> list[str]:
        return [f"{name}={word}" for word in self.categories[name]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Reading":
        """A reading from `to_dict`, also after JSON. Raises ValueError for anything else."""
        if unknown := set(state) - set(cls.__dataclass_fields__):
            raise ValueError(f"unknown fields of a reading: {', '.join(sorted(unknown))}")
        return _ADAPTER.validate_python(state)


NOTHING_SAID = Reading()
"""The reading that states nothing: the reader finds everything."""

_ADAPTER = TypeAdapter(Reading)
