"""The figures of an evaluation, as pictures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.datasets import future_times
from forecaster.record import NETWORK

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORECAST, TRUTH, MUTED = "#c2410c", "#1e3a5f", "#94a3b8"
HUES = ("#047857", "#7c3aed", "#0891b2", "#db2777", "#a16207", "#64748b")
STYLES = ("-", "--", "-.", ":")
SPAN = 4
"""The ratio of the largest and the smallest mean error from which their axis is logarithmic."""


def band_label(share: str, part: float | None) -> str:
    """The name of a band in a legend: "80 %", or "80 % (covered 76 %)" if that is known."""
    return f"{share} %" + ("" if part is None else f" (covered {100 * part:.0f} %)")


def forecast_figure(
    times: "pd.DatetimeIndex",
    history: np.ndarray,
    truth: np.ndarray,
    forecast: np.ndarray,
    names: tuple[str, ...],
    title: str,
    band: np.ndarray | None = None,
    labels: Sequence[str] = (),
) -> "Figure":
    """A figure of forecast and truth after their history, in units, for up to four columns.

    Lines have gaps at missing values (nan). times (h + T,), history (h, K), truth and forecast
    (T, K), band (T, K, 2) with a label for each column.
    """
    some = min(4, len(names))
    figure = _figure(10, 2.6 * some + 0.6)
    axes = np.atleast_1d(figure.subplots(some, 1, sharex=True))
    h = len(history)
    for i, axis in enumerate(axes):
        axis.plot(times[: h + 1], [*history[:, i], truth[0, i]], color=MUTED, lw=1, label="history")
        axis.plot(times[h:], truth[:, i], color=TRUTH, lw=1.2, label="truth")
        axis.plot(times[h:], forecast[:, i], color=FORECAST, lw=1.4, label="forecast")
        if band is not None:
            axis.fill_between(
                times[h:], *band[:, i].T, color=FORECAST, alpha=0.18, lw=0, label=labels[i]
            )
        axis.axvline(times[h], color=MUTED, lw=0.8, ls=":")
        axis.set_ylabel(names[i])
        _legend_above(axis)
    rest = f" (first {some} of {len(names)} columns)" if some < len(names) else ""
    axes[0].set_title(title + rest, loc="left", pad=24)
    figure.autofmt_xdate()
    return figure


def ahead_figure(
    times: "pd.DatetimeIndex",
    history: np.ndarray,
    paths: Mapping[str, np.ndarray],
    names: Sequence[str],
    freq: str,
    ends: Sequence[np.ndarray] = (),
    labels: Sequence[str] = (),
) -> "Figure":
    """A figure of forecasts after a history, in units, for up to four columns.

    times (h,), history (h, K), each of the named paths (T, K). `ends` is empty, or the lower and
    the upper end (T, K) of an interval of the only path, with a label for each column. If there are
    several paths, their differences from the first are drawn below.
    """
    some, several = min(4, len(names)), len(paths) > 1
    figure = _figure(10, 2.6 * some * (1 + several) + 0.6)
    axes = np.atleast_1d(figure.subplots(some * (1 + several), 1, sharex=True))
    first = next(iter(paths.values()))
    ahead = future_times(times[-1], len(first), freq)
    colors = [FORECAST, TRUTH, "#047857", "#7c3aed", "#b45309", "#0e7490"]
    for i in range(some):
        axis = axes[i * (1 + several)]
        axis.plot(times, history[:, i], color=MUTED, lw=1, label="history")
        for number, (name, path) in enumerate(paths.items()):
            color = colors[number % len(colors)]
            axis.plot(ahead, path[:, i], color=color, lw=1.4, label=name)
            if several and number:
                below = axes[i * 2 + 1]
                label = f"{name} − {next(iter(paths))}"
                below.plot(ahead, path[:, i] - first[:, i], color=color, lw=1.4, label=label)
                below.axhline(0, color=MUTED, lw=0.8)
                _legend_above(below)
                below.set_ylabel("difference")
        if len(ends):
            low, high = (end[:, i] for end in ends)
            axis.fill_between(ahead, low, high, color=FORECAST, alpha=0.18, lw=0, label=labels[i])
        axis.axvline(times[-1], color=MUTED, lw=0.8, ls=":")
        axis.set_ylabel(names[i])
        _legend_above(axis)
    if some < len(names):
        axes[0].set_title(f"first {some} of {len(names)} columns", loc="left", pad=24)
    figure.autofmt_xdate()
    return figure


def step_figure(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]], best: str, windows: int
) -> "Figure":
    """A figure of MSE, and below it MAE, by step of the horizon, for the model and others.

    `curves` has the errors (T,) of each kind by name, the model first, nan where there are none;
    `best` is the highlighted floor. The axes are logarithmic if the means differ by more than SPAN;
    errors of 0 then leave a gap.
    """
    first, *others = curves
    squares = {name: np.nan_to_num(mse.astype(float)).mean() for name, (mse, _) in curves.items()}
    means = [mean for mean in squares.values() if mean > 0]
    log = bool(means and max(means) > SPAN * min(means))
    others.sort(key=lambda name: squares[name])
    order = [first, *others]
    figure = _figure(9, 6 + 0.2 * -(-len(order) // 3))
    axes = figure.subplots(2, 1, sharex=True)
    for place, (axis, kind) in enumerate(zip(axes, ("MSE", "MAE"), strict=True)):
        for number, name in enumerate(order):
            stands: dict[str, Any] = {
                "color": HUES[number % len(HUES)], "lw": 1.1,
                "ls": STYLES[(number + number // len(HUES)) % len(STYLES)],
            }  # fmt: skip
            if name == first:
                stands = {"color": FORECAST, "lw": 2.2, "zorder": 3}
            elif name == best:
                stands = {"color": TRUTH, "lw": 1.8, "zorder": 2.5}
            elif name == NETWORK:
                stands = {"color": FORECAST, "lw": 1.4, "ls": "--"}
            found = curves[name][place].astype(float)
            axis.plot(np.arange(1, len(found) + 1), found, label=name, **stands)
        if log:
            axis.set_yscale("log", nonpositive="mask")
            _plain_decades(axis)
        else:
            axis.set_ylim(bottom=0)
        axis.set_ylabel(f"{kind} (scaled{', logarithmic' * log})")
    axes[0].set_title(f"Error by step, {windows} test windows", loc="left")
    axes[1].set_xlabel("step of the horizon")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(
        lines, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9, handlelength=3
    )
    return figure


def _plain_decades(axis: "Axes") -> None:
    """Ticks such as 0.1, 0.2, 0.5 on a logarithmic axis, instead of powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(NullLocator())


def _legend_above(axis: "Axes") -> None:
    """A legend over the picture, where it hides no curve."""
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0.1)


def _figure(width: float, height: float) -> "Figure":
    from forecaster.evaluate.drawing import Drawing

    return Drawing(figsize=(width, height), layout="constrained")
