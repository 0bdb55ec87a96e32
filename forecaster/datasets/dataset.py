"""A data set as it was read, from a card or from a user's file."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from forecaster.datasets.card import SplitRule
from forecaster.datasets.reading import Reading, Timezone
from forecaster.datasets.series import Series

Features: TypeAlias = Literal["M", "S", "MS"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A series, or a panel of many, and how it was read.

    `reading` is complete: it holds everything needed to read the next file of the kind. `series`
    has the columns that are read, `targets` are the columns to forecast (in a wide panel the one
    column of all its series), `features` the default inputs. `main_target` is shown where there is
    room for one. `split` gives the borders of the parts, if they are fixed; `whole` is the series
    before columns were left out, if any were; `past` is the look-back for which samples were made,
    which window.past=auto takes. Data `as_it_is` are not standardised. `said` holds sentences about
    what was found, `counts` the irregularities, in plain JSON.
    """

    name: str
    reading: Reading
    series: Series
    targets: tuple[str, ...]
    features: Features
    main_target: str
    said: tuple[str, ...]
    counts: dict[str, Any]
    split: SplitRule | None = None
    whole: Series | None = None
    past: int | None = None
    as_it_is: bool = False

    @property
    def digest(self) -> str:
        """The digest of the data, independent of the columns used."""
        return (self.whole or self.series).digest

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of values: the targets and the past covariates."""
        return self.series.columns

    @property
    def time(self) -> str:
        return self.reading.time or ""

    @property
    def id(self) -> tuple[str, ...]:
        return self.reading.id

    @property
    def freq(self) -> str:
        return self.series.freq

    @property
    def seasons(self) -> tuple[int, ...]:
        """The cycles in steps, the main one first; (1,) if none was found."""
        return self.reading.seasons

    @property
    def timezone(self) -> Timezone:
        """Whether the stamps are in UTC or, if naive, in the local time of their source."""
        return self.reading.timezone or "naive"
