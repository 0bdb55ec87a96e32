"""The list of all metrics: the definition of each, how it is printed, and where it is shown.

Terminal, tracker, reports, grids and the tables of the documents read METRICS. A metric that is
added there, with its definition, is shown in all its places.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from forecaster.base.spelling import rounded
from forecaster.evaluate.metrics import Score, average

By = Literal["all", "step", "column", "item"]
"""One value for a whole forecast, or one for each step ahead, target, or series of a panel."""
Where = Literal["terminal", "columns", "tracker", "report", "grid", "tables"]
"""`terminal`: beside the floors, for which it is measured, too; `columns`: in the line of each
target there; `report` and `grid`: a page of forecaster report, a table of forecaster compare;
`tables`: the data in benchmarks/results/ that the documents are made of."""
EVERYWHERE: frozenset[Where] = frozenset(get_args(Where))
WHOLE: frozenset[By] = frozenset(get_args(By))


@dataclass(frozen=True)
class Errors:
    """The errors of one forecast, and the scales that they are measured by.

    `std` (1, K) or (S, K): the standard deviations of the targets in units, by series; `naive`, of
    the same shape: the scaled mean absolute error of the seasonal naive on the training rows.
    """

    score: Score
    std: np.ndarray
    naive: np.ndarray

    def mean(self, kind: Literal["squared", "absolute"], by: By) -> np.ndarray:
        """The mean of all scaled errors, or of those of each step, target or series."""
        if by == "item":
            means, counts = self.by_item(kind)
            return average(means, counts, axis=1)
        axis = {"all": None, "step": 1, "column": 0}[by]
        return average(getattr(self.score, kind), self.score.observed, axis)

    def by_item(self, kind: Literal["squared", "absolute"]) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean scaled errors (S, K), and the number of values in each; one series has one row."""
        items = self.score.by_item
        if items is None:
            return self.mean(kind, "column")[None], None
        return items[kind], items["observed"]

    def in_units(self, kind: Literal["squared", "absolute"], power: int) -> np.ndarray:
        """The mean error of each target (K,), in the target's unit raised to `power`."""
        means, counts = self.by_item(kind)
        return average(means * self.std**power, counts, axis=0)


class Ends(NamedTuple):
    """Intervals of a batch for a `share` of the values, and the truth, scaled (B, T, K).

    `std`, the standard deviations of the targets in units, broadcasts.
    """

    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray
    std: np.ndarray
    share: float


@dataclass(frozen=True)
class Metric:
    """`form` prints a value, rounded for people where it says {}; `missing` replaces one that is
    not defined.

    `short` is the head of a narrow column, by default the label.
    """

    name: str
    label: str
    form: str
    unit: str
    _: KW_ONLY
    better: Literal["lower", "higher", "nominal"] = "lower"
    shown_in: frozenset[Where] = EVERYWHERE
    missing: str = "–"
    short: str = ""

    @property
    def head(self) -> str:
        """The head of a narrow column."""
        return self.short or self.label

    def text(self, value: float | None) -> str:
        if value is None or not np.isfinite(value):
            return self.missing
        return self.form.format(rounded(value, 4) if "{}" in self.form else value)


@dataclass(frozen=True, kw_only=True)
class ErrorMetric(Metric):
    """A metric of a point forecast: `of` returns a value, or an array of them, for each of `by`."""

    of: Callable[[Errors, By], Any]
    by: frozenset[By] = WHOLE


@dataclass(frozen=True, kw_only=True)
class IntervalMetric(Metric):
    """A metric of an interval: the mean over all observed values of the results of `of`."""

    of: Callable[[Ends], np.ndarray]
    by: frozenset[By] = frozenset({"all", "step", "column"})


@dataclass(frozen=True, kw_only=True)
class QuantileMetric(Metric):
    """A metric of all quantiles: `of` takes the levels (Q,) and their scaled mean pinball loss."""

    of: Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True, kw_only=True)
class Cost(Metric):
    """The cost of a training or a forecast, measured where it runs."""


def _mase(errors: Errors, by: By) -> np.ndarray:
    """The error over that of the seasonal naive (Hyndman and Koehler 2006), a mean of ratios."""
    means, _ = errors.by_item("absolute")
    ratios = means / errors.naive
    if by == "item":
        return known_mean(ratios, axis=1)
    columns = known_mean(ratios, axis=0)
    return columns if by == "column" else known_mean(columns)


def _crps(levels: np.ndarray, pinball: np.ndarray) -> float:
    """Twice the integral of the pinball loss; each level represents those nearest to it."""
    edges = np.concatenate([[0], (levels[1:] + levels[:-1]) / 2, [1]])
    return float(2 * (pinball * np.diff(edges)).sum())


def _interval_score(ends: Ends) -> np.ndarray:
    """The width, plus 2 / (1 - share) times the distance of the truth outside the interval.

    The interval with equal probability on either side has the smallest mean score (Winkler 1972;
    Gneiting and Raftery 2007, eq. 43).
    """
    outside = np.maximum(np.maximum(ends.low - ends.truth, ends.truth - ends.high), 0)
    score: np.ndarray = ends.high - ends.low + 2 / (1 - ends.share) * outside
    return score


def known_mean(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """The mean of the values that are not nan; nan if there are none."""
    return average(values, ~np.isnan(values), axis)


SCALED, SQUARED = (f"{what} of the training rows" for what in ("standard deviations", "variances"))
TARGETS, FORECASTS = frozenset[By]({"column"}), EVERYWHERE - {"columns"}
COSTS = FORECASTS - {"terminal"}
METRICS: tuple[Metric, ...] = (
    ErrorMetric("mse", "MSE", "{:.4f}", SQUARED, shown_in=FORECASTS,
                of=lambda errors, by: errors.mean("squared", by)),
    ErrorMetric("mae", "MAE", "{:.4f}", SCALED, shown_in=FORECASTS,
                of=lambda errors, by: errors.mean("absolute", by)),
    ErrorMetric("rmse_units", "RMSE", "{} in units", "the target's", by=TARGETS,
                of=lambda errors, by: np.sqrt(errors.in_units("squared", 2)),
                shown_in=frozenset({"tracker"})),
    ErrorMetric("mae_units", "MAE", "{} in units", "the target's", by=TARGETS,
                of=lambda errors, by: errors.in_units("absolute", 1),
                shown_in=frozenset({"columns", "tracker"})),
    ErrorMetric("mase", "MASE", "{:.3f}", "errors of the seasonal naive", by=WHOLE - {"step"},
                of=_mase, missing="undefined (constant)",
                shown_in=frozenset({"columns", "tracker", "report"})),
    IntervalMetric("coverage", "covered", "{:.1%}", "share of the values", better="nominal",
                   of=lambda ends: (ends.low <= ends.truth) & (ends.truth <= ends.high),
                   shown_in=FORECASTS - {"grid"}),
    IntervalMetric("width", "width", "{:.3f}", SCALED, of=lambda ends: ends.high - ends.low,
                   shown_in=FORECASTS - {"grid", "tables"}),
    IntervalMetric("width_units", "width", "{} in units", "the target's", by=TARGETS,
                   of=lambda ends: (ends.high - ends.low) * ends.std,
                   shown_in=frozenset({"tracker"})),
    IntervalMetric("interval_score", "score", "{:.3f}", SCALED, of=_interval_score,
                   shown_in=FORECASTS - {"grid"}),
    QuantileMetric("crps", "CRPS", "{:.3f}", SCALED, of=_crps,
                   shown_in=frozenset({"terminal", "tracker"})),
    Cost("train_seconds", "train s", "{:.1f}", "s", shown_in=COSTS),
    Cost("windows_per_second", "windows/s", "{:.0f}", "1/s", better="higher", short="win/s",
         shown_in=COSTS),
    Cost("inference_ms", "inference ms", "{:.2f}", "ms", short="ms",
         shown_in=COSTS),
    Cost("peak_mib", "memory MiB", "{:.1f}", "MiB", short="MiB",
         shown_in=COSTS),
)  # fmt: skip

Kind = TypeVar("Kind", bound=Metric)


def shown(kind: type[Kind], where: Where | None = None) -> list[Kind]:
    """The metrics of a kind that are shown in a place, or all of them, in their order."""
    metrics = [metric for metric in METRICS if isinstance(metric, kind)]
    return [metric for metric in metrics if where is None or where in metric.shown_in]


def whole(where: Where | None = None) -> list[ErrorMetric]:
    """The error metrics that give one value for a whole forecast."""
    return [metric for metric in shown(ErrorMetric, where) if "all" in metric.by]


def measure(errors: Errors, by: By = "all", where: Where | None = None) -> dict[str, Any]:
    """The metrics of a forecast by name, in plain JSON types; None for undefined ones."""
    return {
        metric.name: plain(metric.of(errors, by))
        for metric in shown(ErrorMetric, where)
        if by in metric.by
    }


def plain(value: Any) -> Any:
    """A number, or a list of numbers, with None for values that are not finite."""
    array = np.asarray(value, dtype=float)
    return np.where(np.isfinite(array), array, None).tolist()  # type: ignore[call-overload]
