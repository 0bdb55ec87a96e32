"""What a run found: one typed document, which every page, table and command reads.

It is `metrics.json` in a bundle. Errors and widths are those of values scaled by the training rows
unless the metric says otherwise; None stands for what is not defined. Imports `base` alone.

Beside it: `folder` is a run on disk, `ledger` keeps live forecasts, which `live` scores, `alarms`
tests and `look` shows, and `challenge` is the rule by which a model replaces another. Begin reading
here.
"""

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

NETWORK = "network"
"""The name and the kind of the trained network among the parts of a model."""
Value: TypeAlias = float | None
Steps: TypeAlias = tuple[Value, ...]
"""A value for each step of the horizon."""


class Document(BaseModel):
    """A frozen part of a record; `to_dict` gives plain JSON types, and `read` is its inverse."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, state: Any) -> Self:
        """The document of `to_dict`, also after JSON. Raises ValueError naming what is wrong."""
        try:
            return cls.model_validate(state)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{where}: {first['msg'].lower()}") from None

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class Scores(Document):
    """Values by the names of the metrics (`evaluate.figures.METRICS`), beside the fields."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Value]

    def __getitem__(self, metric: str) -> Value:
        """The value of a metric; None if it was not measured."""
        return self.__pydantic_extra__.get(metric)

    @property
    def measured(self) -> Mapping[str, Value]:
        return self.__pydantic_extra__


class FloorScores(Scores):
    """A part judged alone, which needs no training: a floor under the model."""

    skill: Value
    """1 - MSE of the model / MSE of the floor; None against an error of 0."""
    paired_low: Value
    paired_high: Value
    """The paired 95 % interval of the difference, model - floor; None with too few windows."""
    chosen: str
    """Its options that validation chose, in words."""
    weight: float
    """Its share in the model, the mean over the steps."""
    by_step: dict[str, Steps] = {}
    """Of the best floor alone."""


class Difference(Document):
    """What a kind of part adds: the MSE of the model less that of the rest alone."""

    mse: Value
    paired_low: Value
    paired_high: Value


class NetworkScores(Scores):
    """The network alone."""

    weight: float
    adds: Difference | None
    """None where the network is the whole model, or has no share."""
    verdict: str
    by_step: dict[str, Steps] = {}


class ItemScores(Document):
    """The series of a panel: all that were tested or, of many, the best and the worst."""

    count: int
    tested: int
    shown: str
    errors: dict[str, Scores]


class BandScores(Scores):
    """The intervals for one share of the values."""

    by_step: dict[str, Steps]
    columns: dict[str, Scores]


class IntervalScores(Document):
    """The quantiles of a model on the test windows.

    Beside the fields stand the bands, by their share in percent, and the metrics of all quantiles.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, BandScores | Value]

    levels: tuple[float, ...]
    calibration_windows: int
    again: bool
    """Whether the served ones were calibrated again since, with the errors of the test windows."""
    pinball: dict[str, Value]
    """The scaled pinball loss of each level."""
    verdict: str
    totals: Value = None
    """The share of totals over the horizon that their 80 % bands held."""

    def band(self, share: str) -> BandScores | None:
        """The band of a share such as "80"; None if it could not be calibrated."""
        band = self.__pydantic_extra__.get(share)
        return band if isinstance(band, BandScores) else None

    @property
    def bands(self) -> dict[str, BandScores]:
        """Those that there are, by their share."""
        extra = self.__pydantic_extra__
        return {key: band for key, band in extra.items() if isinstance(band, BandScores)}

    def __getitem__(self, metric: str) -> Value:
        """The value of a metric of all quantiles."""
        value = self.__pydantic_extra__.get(metric)
        return None if isinstance(value, BandScores) else value


class Backtest(Scores):
    """The model on every window of the test split, beside its network and the floors."""

    windows: int
    every: int
    """1 if all windows were judged, n if every n-th was."""
    columns: dict[str, Scores]
    by_step: dict[str, Steps]
    items: ItemScores | None
    network: NetworkScores | None
    floors: dict[str, FloorScores]
    best_floor: str
    lost_to: tuple[str, ...]
    """The floors with a smaller MSE than the model."""
    adds: dict[str, Difference]
    """What each kind of part adds, if there are several."""
    headline: str
    """What was found in one sentence, in units and percent."""
    outcome: str
    """Against the best floor: better, worse or "no measurable difference"."""
    verdict: str
    intervals: IntervalScores | None
    errors: tuple[float, ...] = ()
    """By stretch of time (`challenge.stretches`), for a comparison with other models; empty where
    the windows are too few for one."""

    @property
    def bar(self) -> FloorScores:
        return self.floors[self.best_floor]

    @property
    def rows(self) -> "dict[str, Backtest | NetworkScores | FloorScores]":
        """The model, its network if it has one, and the floors, by name."""
        network = {NETWORK: self.network} if self.network else {}
        return {"model": self, **network, **self.floors}

    @property
    def verdicts(self) -> list[str]:
        """Sentences on the typical error, on whether the model beats the best floor, on what the
        network adds, and on the intervals."""
        others = [part.verdict for part in (self.network, self.intervals) if part]
        return [verdict for verdict in (self.headline, self.verdict, *others) if verdict]

    def band(self, share: str) -> BandScores | None:
        """The intervals for a share such as "80"; None if there are none."""
        return self.intervals.band(share) if self.intervals else None

    @property
    def calibrated_again(self) -> bool:
        """Whether the intervals that are served are not those that were judged."""
        return self.intervals is not None and self.intervals.again

    def covered(self, share: str, column: str) -> Value:
        """The share of the values of a column that its band of `share` covered, if known."""
        band = self.band(share)
        return band.columns[column]["coverage"] if band and column in band.columns else None


class Drawn(Document):
    """A target in an example, in units: its history, the forecast, what came, and the ends of the
    band, which are empty without intervals."""

    history: Steps
    forecast: Steps
    truth: Steps
    low: Steps = ()
    high: Steps = ()


class Example(Document):
    """A window of the test split with its main target and some others."""

    title: str
    mse: float
    """Over all targets."""
    begin: str
    """The time of the first value of the history."""
    share: str
    """That of the band; empty without one."""
    targets: dict[str, Drawn]


class Training(Document):
    """What training took."""

    windows: int
    peak_mib: Value
    expected_mib: float
    epochs: int
    seconds: float
    best_epoch: float
    steps: int
    windows_per_second: float
    still_falling: bool
    """Whether the error of validation was still falling at the end."""


class Weighed(Document):
    """A part as validation weighed it."""

    weight: float
    validation_mse: Value
    chosen: str


class Spread(Document):
    """Mean and sample standard deviation over cut-offs."""

    mean: Value
    sd: Value


class MeanErrors(Document):
    mse: Value
    mae: Value


class Spreads(Document):
    mse: Spread
    mae: Spread


class FloorSpreads(Spreads):
    better_in: int
    """At how many cut-offs the model was better than this floor."""


class AtCutoff(MeanErrors):
    """The model at one cut-off."""

    first: str
    last: str
    steps: tuple[int, int]
    trained: int
    windows: int
    coverage: Value
    intervals: str
    network: MeanErrors | None
    floors: dict[str, MeanErrors]
    best_floor: str
    weights: dict[str, float]


class Cutoffs(Spreads):
    """Models trained at several cut-offs of the test split, each weighed equally."""

    count: int
    each: tuple[AtCutoff, ...]
    coverage: Spread
    network: Spreads | None
    floors: dict[str, FloorSpreads]
    best_floor: str
    better_in: int
    paired_low: Value
    paired_high: Value
    verdict: str


class Contest(Document):
    """What compares the model with the champion of its task (`challenge.stretches`)."""

    errors: tuple[float, ...]
    windows: str
    """Those that the errors are of: equal texts, equal windows."""


class InputEffect(Document):
    """How the served forecast of a target moves with one more of an input known ahead, or with a
    word at every step, on average over the horizon and over `forecasts` of the newest rows.

    From `low` to `high` lie 80 % of those; None where the training rows do not determine it. In
    units. `curve` holds a value at which the input stays over the horizon, the move from the
    forecast with the input as it was, and the ends of 80 % of those moves.
    """

    input: str
    target: str
    effect: Value = None
    low: Value = None
    high: Value = None
    forecasts: int = 0
    curve: tuple[tuple[float, float, float, float], ...] = ()

    @property
    def is_flag(self) -> bool:
        """Whether the training rows hold only 0 and 1 for the input."""
        return [value for value, *_ in self.curve] == [0, 1]


class NewSeries(Document):
    """How series of a panel that training never saw are forecast (`evaluate.newcomers`).

    What the attributes of `series` tell counts as much as `worth` rows for the level and, for what
    is typical at a place in the main cycle, as `worth_in_cycle` there. After each number of
    `rows`, bands are as many times as wide as `widths` says, and the mean absolute error of the
    forecasts of `windows`, in standard deviations of each series, was that of `errors`.
    """

    series: int
    worth: float
    worth_in_cycle: float
    windows: int = 0
    rows: tuple[int, ...] = (0,)
    widths: tuple[float, ...] = (1.0,)
    errors: tuple[float, ...] = ()


class Record(Document):
    """What a run found."""

    origins: dict[str, str] = {}
    """Where the values of the configuration come from, by their dotted names; defaults are left
    out."""
    parameters: int | None = None
    """The number of weights of the network."""
    train: Training | None = None
    parts: dict[str, Weighed] = {}
    """All that were tried, by name; the network among them."""
    validation_mse: Value = None
    validation_windows: int = 0
    validation_every: int = 1
    stopping_windows: int = 0
    contest: Contest | None = None
    test: Backtest | None = None
    cutoffs: Cutoffs | None = None
    effects: tuple[InputEffect, ...] = ()
    """What each input known ahead does; empty for a model without any."""
    newcomers: NewSeries | None = None
    """None for a model of a single series."""
    examples: dict[str, Example] = {}
    """The best, the median and the worst test window, by these names."""

    @property
    def judged(self) -> Backtest:
        """The model on the test split, which every run has; only a model that is being made has
        none."""
        assert self.test
        return self.test
