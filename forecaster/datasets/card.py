"""The facts about a data set, read from `data/cards/NAME.yaml`."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
)

from forecaster.base import installation
from forecaster.base import names as lookup
from forecaster.base.errors import ConfigError, DataError
from forecaster.datasets.calendar import normalise_freq

End: TypeAlias = int | tuple[int, ...]
"""The step of the grid at which a part ends, for all items or for each."""

Fraction = Annotated[float, Field(gt=0, lt=1)]


def _freq(text: str) -> str:
    try:
        return normalise_freq(text)
    except DataError as error:
        raise ValueError(str(error)) from None


def _names(given: Any) -> Any:
    """The column names; "0..319" is short for the whole numbers from 0 to 319."""
    if not isinstance(given, list | tuple):
        return given
    names: list[Any] = []
    for name in given:
        span = re.fullmatch(r"([0-9]{1,6})\.\.([0-9]{1,6})", str(name))
        names += [str(i) for i in range(int(span[1]), int(span[2]) + 1)] if span else [name]
    return names


GENERATED = re.compile(
    r"recall-[1-9][0-9]{1,5}(-2hops|-64pairs)?|phase-[1-9][0-9]{1,5}-(fixed|chirp|wander)"
)
"""The names of generated data sets."""

Columns = Annotated[tuple[str, ...], BeforeValidator(_names), Field(min_length=1)]


Part: TypeAlias = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Borders:
    """The steps at which the training, validation and test parts end (exclusive).

    `each` holds the borders of each series of a panel if they differ; the others are then the
    latest ones.
    """

    train: int
    validation: int
    test: int
    each: tuple[tuple[int, int, int], ...] = ()

    @property
    def parts(self) -> "dict[Part, tuple[End, End]]":
        """The steps [first, last) of each part."""
        train, validation, test = (
            tuple(zip(*self.each, strict=True))
            if self.each
            else (self.train, self.validation, self.test)
        )
        return {
            "train": (0, train), "validation": (train, validation), "test": (validation, test)
        }  # fmt: skip


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Package(_Facts):
    """A Python package that carries the file, which forecaster's extra EXTRA installs."""

    module: str
    file: str
    extra: str


class Bare(_Facts):
    """A file with values only: it has no stamps and, unless `header`, no header; the card has both.

    `first` is the stamp of its first row, `columns` the order of its columns if it differs from
    the card's.
    """

    first: datetime
    columns: Columns | None = None
    header: bool = False


class Source(_Facts):
    """One published form of a data set.

    `files` are the paths tried inside a data folder; the last is the original name of the file.
    `sha256` and `git_blob` (SHA-1 of "blob LENGTH", a zero byte and the content) are those of the
    file as published, compressed if it is. `page` is where a person finds the file if it cannot be
    fetched from `urls`. `bare` describes a file without stamps.
    """

    files: Annotated[tuple[str, ...], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    git_blob: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None = None
    urls: tuple[str, ...] = ()
    page: str | None = None
    package: Package | None = None
    bare: Bare | None = None

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.files[-1]).name


class SplitRule(_Facts):
    """Where the parts end, as rows or as fractions (train, validation, test) of all rows."""

    rows: tuple[PositiveInt, PositiveInt, PositiveInt] | None = None
    fractions: tuple[Fraction, Fraction, Fraction] | None = None

    def borders(self, rows: int, where: str) -> Borders:
        """Where the parts end in a file of `rows` rows.

        Fractions follow the benchmarks: the training part has int(0.7 n) rows, the test part
        int(0.2 n), validation the rest. Raises DataError, naming the file `where`, if it is too
        short.
        """
        if self.rows:
            borders = Borders(*self.rows)
        else:
            assert self.fractions  # a card has one of both
            train, _, test = self.fractions
            borders = Borders(int(rows * train), rows - int(rows * test), rows)
        if not 0 < borders.train < borders.validation < borders.test <= rows:
            raise DataError(
                f"{where}: the card splits at rows {borders.train}, {borders.validation} and "
                f"{borders.test}, but the file has {rows} rows."
            )
        return borders


class Card(_Facts):
    """One data set.

    `sources` are its forms, which hold the same values, the preferred one first; `columns` are the
    value columns in order, `seasons` the lengths of its cycles in steps, the main one first. With
    `timezone` UTC the stamps are in UTC; with `naive` they are in the local time of their source,
    whatever that was. They are one step of `freq` apart, unless they are `irregular`: then all rows
    count as evenly spaced. If some columns are `future_covariates`, these are known ahead, and by
    default the `targets` are forecast, or only `target` if the card names no others.
    """

    name: str
    title: str
    about: str
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    time: str
    timezone: Literal["UTC", "naive"]
    freq: Annotated[str, AfterValidator(_freq)]
    irregular: bool = False
    columns: Columns
    target: str
    targets: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()
    seasons: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    split: SplitRule
    licence: str
    citation: str

    def source_of(self, file: PurePath) -> Source:
        """The form of a file: the one whose name ends alike, or else the first."""
        for source in self.sources:
            if file.name.endswith("".join(PurePath(source.file_name).suffixes)):
                return source
        return self.sources[0]


def card_names() -> list[str]:
    """The names of all data sets that have a card, in alphabetical order."""
    return sorted(file.stem for file in installation.cards().glob("*.yaml"))


def is_generated(name: str) -> bool:
    """Whether a data set is generated (generated.py) and therefore has no card."""
    return bool(GENERATED.fullmatch(name))


def load_card(name: str) -> Card:
    """Load the card called `name`.

    Raises UsageError naming the nearest card, ConfigError naming the file and the key of an error.
    """
    import yaml

    files = {name: installation.cards() / f"{name}.yaml" for name in card_names()}
    name, file = lookup.find(files, name, "data set")
    try:
        facts: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        card = Card.model_validate(facts)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the card"
        raise ConfigError(f"{file}: {key}: {first['msg']} (got {first['input']!r:.80})") from None
    return card
