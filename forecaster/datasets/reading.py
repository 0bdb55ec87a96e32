"""How a file is read: what is said about it, and what was found where nothing was said."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

Policy: TypeAlias = Literal["error", "sort", "resample", "rows"]
Timezone: TypeAlias = Literal["UTC", "naive"]


@dataclass(frozen=True)
class Text:
    """How a text file is written; "" where it is to be found.

    The lines `before` the header, `after` it and at the end, the `footer`, are no rows. `decimal`
    is "." or ",", and "" where no number has one; `thousands` marks them. `signs` are those of
    currencies and percent, by column.
    """

    encoding: str = ""
    separator: str = ""
    decimal: str = ""
    thousands: str = ""
    before: int = 0
    after: int = 0
    footer: int = 0
    signs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stamps:
    """How the stamps of a file are written.

    `form` is a name in `reader.stamps.FORMS`; `parts` tells for each further time column what it
    counts, by a name in `reader.parts.PARTS`.
    """

    form: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What is said about a file; what is not said is found, and the reader fills it in.

    `time` and `id` name columns: the stamps, and the series that a row of a long file belongs to,
    told by one column or by several together. Where several columns tell the time together, `time`
    names them with commas; once that is found, `time_columns` has them, and `time` is what the one
    column of a forecast is called. `stamps` tells how they are written.
    `targets` are to be predicted; `past_covariates` are known up to now, `future_covariates` for
    the steps to come as well; `static` attributes belong to a series as a whole. `freq` is the time
    step, `seasons` its cycles in steps. With `panel` every target column of a wide file becomes a
    series of its own.

    `policy` tells what becomes of rows that are not one step apart: `error`; `sort` orders them,
    drops identical repetitions and leaves gaps missing; `resample` also averages rows that share a
    step; `rows` takes each row as one step, whatever its stamp says.

    `timezone` is UTC where stamps carry a zone or count as UTC. `text` tells how a text file is
    written; one without a header has the columns `header`, one without stamps begins at `first`.
    Cells like one of `missing` have no value. `categories` are the words of covariates that hold
    words: a column `sky` of clear and rain is read as `sky=clear` and `sky=rain`, 0 and 1.

    A model keeps the reading of its training file and reads the next file by it.
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
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    timezone: Timezone | None = None
    header: tuple[str, ...] = ()
    first: str | None = None
    time_columns: tuple[str, ...] = ()
    stamps: Stamps | None = None

    def read_as(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of the series that these of the file become."""
        parts = ([name] if name not in self.categories else self._parts(name) for name in columns)
        return tuple(part for own in parts for part in own)

    def read_from(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of the file that these of the series come from."""
        whole = {part: name for name in self.categories for part in self._parts(name)}
        return tuple(dict.fromkeys(whole.get(name, name) for name in columns))

    def _parts(self, name: str) -> list[str]:
        return [f"{name}={word}" for word in self.categories[name]]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Reading":
        """What `to_dict` gave, even through JSON. Raises ValueError for anything else."""
        if unknown := set(state) - set(cls.__dataclass_fields__):
            raise ValueError(f"unknown in a reading: {', '.join(sorted(unknown))}")
        return _ADAPTER.validate_python(state)


NOTHING_SAID = Reading()
"""Everything is to be found."""

_ADAPTER = TypeAdapter(Reading)
