"""A data set as it was read, whether it has a card or is your file."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from forecaster.datasets.card import Split
from forecaster.datasets.reading import Reading, Timezone
from forecaster.datasets.series import Series

Features: TypeAlias = Literal["M", "S", "MS"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A series, or a panel of many, and how it was read.

    `reading` is complete: it says all that the next file of the kind needs. `series` has the
    columns that are read, `targets` are those to be predicted (of a wide panel the one column of
    all its series), `features` what they are predicted from unless somebody says otherwise.
    `main_target` is shown where there is room for one. `split` tells where the parts end, if that
    is fixed; `whole` is the series before columns were left out, if any were; `past` is the
    look-back of samples that were made for one, which window.past=auto takes, and what is
    `as_it_is` is not standardised. `said` are sentences about what was found, `counts` are what was
    irregular, in plain JSON.
    """

    name: str
    reading: Reading
    series: Series
    targets: tuple[str, ...]
    features: Features
    main_target: str
    said: tuple[str, ...]
    counts: dict[str, Any]
    split: Split | None = None
    whole: Series | None = None
    past: int | None = None
    as_it_is: bool = False

    @property
    def digest(self) -> str:
        """Of the data, whichever of its columns are used."""
        return (self.whole or self.series).digest

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of values: the targets and what is known of the past."""
        return self.series.columns

    @property
    def time(self) -> str:
        """The time column."""
        return self.reading.time or ""

    @property
    def id(self) -> tuple[str, ...]:
        """The columns that name the series of a panel."""
        return self.reading.id

    @property
    def freq(self) -> str:
        """The time step."""
        return self.series.freq

    @property
    def seasons(self) -> tuple[int, ...]:
        """The cycles in steps, the main one first; (1,) where none shows."""
        return self.reading.seasons

    @property
    def timezone(self) -> Timezone:
        """Whether the stamps are UTC, or keep the clock of their source."""
        return self.reading.timezone or "naive"
