"""The display of an evaluation: a table for the terminal, and figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.datasets import future_times
from forecaster.evaluate.backtest import NETWORK
from forecaster.evaluate.figures import ErrorMetric, IntervalMetric, QuantileMetric, shown
from forecaster.evaluate.intervals import SHARES, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORECAST, TRUTH, MUTED = "#c2410c", "#1e3a5f", "#94a3b8"
BAND = f"{percent(SHARES[0])} %"


def text(test: dict[str, Any]) -> str:
    """The text for the terminal of `test`, the result of Evaluation.to_dict."""
    which = "all of them" if test["every"] == 1 else f"every {test['every']}th of them"
    lines = [f"test split, {test['windows']} windows ({which}), values scaled by training rows"]
    head, *rows = table(test)
    for name, *figures, remark in [("", *head[1:-1], ""), *rows]:
        lines.append(f"{name:<23}{''.join(f'{each:>9}' for each in figures)}  {remark}".rstrip())
    lines.append(test["verdict"])
    if test["network"] is not None:
        lines.append(test["network"]["verdict"])
    lines += interval_lines(test["intervals"])
    metrics = shown(ErrorMetric, "columns")
    for name, own in test["columns"].items():
        said = [f"{metric.label} {metric.text(own[metric.name])}" for metric in metrics]
        lines.append(f"  {name:<22}{', '.join(said)}")
    return "\n".join(lines)


def table(test: dict[str, Any]) -> list[tuple[str, ...]]:
    """Rows for the head, the model, the network alone and the floors.

    A row has the name, its metrics, the skill of the model against it, its weight in the model, and
    a remark.
    """
    metrics = shown(ErrorMetric, "terminal")
    network = test["network"]

    def row(name: str, own: dict[str, Any], skill: str, remark: str) -> tuple[str, ...]:
        weight = f"{own['weight']:.0%}" if own.get("weight") else ""
        return name, *(metric.text(own[metric.name]) for metric in metrics), skill, weight, remark

    return [
        ("forecast", *(metric.label for metric in metrics), "skill", "weight", "chosen"),
        row("model", test, "", ""),
        *([] if network is None else [row("network", network, "", "")]),
        *(
            row(name, own, "" if own["skill"] is None else f"{own['skill']:+.1%}", own["chosen"])
            for name, own in test["floors"].items()
        ),
    ]


def interval_lines(fixed: dict[str, Any] | None) -> list[str]:
    """The metrics of intervals and quantiles, with those of the online form in separate columns."""
    if fixed is None:
        return []
    forms = [form for form in (fixed, fixed["online"]) if form is not None]
    metrics, room = shown(IntervalMetric, "terminal"), 9
    head = "".join(f"{metric.label:>{room}}" for metric in metrics)
    lines = [f"{'intervals':<23}{head}" + f"   online:{head}" * (len(forms) - 1)]
    for share in map(percent, SHARES):
        found = [form[share] for form in forms if form[share] is not None]
        cells = (
            "".join(f"{metric.text(own[metric.name]):>{room}}" for metric in metrics)
            for own in found
        )
        if found:
            lines.append(f"{share + ' %':<23}{(' ' * 10).join(cells)}")
    for metric in shown(QuantileMetric, "terminal"):
        cells = (f"{metric.text(form[metric.name]):>{len(head)}}" for form in forms)
        lines.append(f"{metric.label:<23}{(' ' * 10).join(cells)}")
    return [*lines, *(form["verdict"] for form in forms)]


def forecast_figure(
    times: "pd.DatetimeIndex",
    history: np.ndarray,
    truth: np.ndarray,
    forecast: np.ndarray,
    names: tuple[str, ...],
    title: str,
    band: np.ndarray | None = None,
) -> "Figure":
    """A figure of forecast and truth after their history, in units, for up to four columns.

    Lines have gaps at missing values (nan). times (h + T,), history (h, K), truth and forecast
    (T, K), band (T, K, 2): the ends of the intervals of the first share.
    """
    some = min(4, len(names))
    figure = _figure(10, 2.4 * some + 0.6)
    axes = np.atleast_1d(figure.subplots(some, 1, sharex=True))
    h = len(history)
    for i, axis in enumerate(axes):
        axis.plot(times[: h + 1], [*history[:, i], truth[0, i]], color=MUTED, lw=1, label="history")
        axis.plot(times[h:], truth[:, i], color=TRUTH, lw=1.2, label="truth")
        axis.plot(times[h:], forecast[:, i], color=FORECAST, lw=1.4, label="forecast")
        if band is not None:
            axis.fill_between(
                times[h:], *band[:, i].T, color=FORECAST, alpha=0.18, lw=0, label=BAND
            )
        axis.axvline(times[h], color=MUTED, lw=0.8, ls=":")
        axis.set_ylabel(names[i])
    axes[0].legend(loc="upper left", ncols=4, frameon=False)
    rest = f" (first {some} of {len(names)} columns)" if some < len(names) else ""
    axes[0].set_title(title + rest, loc="left")
    figure.autofmt_xdate()
    return figure


def ahead_figure(
    times: "pd.DatetimeIndex",
    history: np.ndarray,
    paths: Mapping[str, np.ndarray],
    names: Sequence[str],
    freq: str,
    ends: Sequence[np.ndarray] = (),
    share: str = "",
) -> "Figure":
    """A figure of forecasts after a history, in units, for up to four columns.

    times (h,), history (h, K), each of the named paths (T, K). `ends` is empty, or the lower and
    the upper end (T, K) of the interval `share` of the only path. If there are several paths, their
    differences from the first are drawn below.
    """
    some, several = min(4, len(names)), len(paths) > 1
    figure = _figure(10, 2.4 * some * (1 + several) + 0.6)
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
                below.legend(loc="upper left", ncols=3, frameon=False)
                below.set_ylabel("difference")
        if len(ends):
            low, high = (end[:, i] for end in ends)
            axis.fill_between(ahead, low, high, color=FORECAST, alpha=0.18, lw=0, label=share)
        axis.axvline(times[-1], color=MUTED, lw=0.8, ls=":")
        axis.set_ylabel(names[i])
        axis.legend(loc="upper left", ncols=4, frameon=False)
    if some < len(names):
        axes[0].set_title(f"first {some} of {len(names)} columns", loc="left")
    figure.autofmt_xdate()
    return figure


def step_figure(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]], best: str, windows: int
) -> "Figure":
    """A figure of MSE, and below it MAE, by step of the horizon, for the model and others.

    `curves` has the errors (T,) of each kind by name, the model first, nan where there are none;
    `best` is the highlighted floor. Curves far above the model leave the figure at its upper edge.
    """
    from matplotlib import colormaps

    figure = _figure(9, 6)
    axes = figure.subplots(2, 1, sharex=True)
    first, *others = curves
    hues = {name: colormaps["tab20"](number % 20) for number, name in enumerate(others)}
    for place, (axis, kind) in enumerate(zip(axes, ("MSE", "MAE"), strict=True)):
        drawn = {name: found[place].astype(float) for name, found in curves.items()}
        for name in sorted(others, key=lambda name: np.nan_to_num(drawn[name]).mean()):
            stands: dict[str, Any] = {"color": hues[name], "lw": 0.9}
            if name == best:
                stands = {"color": TRUTH, "lw": 1.6}
            elif name == NETWORK:
                stands = {"color": FORECAST, "lw": 1.2, "ls": "--"}
            axis.plot(np.arange(1, len(drawn[name]) + 1), drawn[name], label=name, **stands)
        own = drawn[first]
        axis.plot(np.arange(1, len(own) + 1), own, color=FORECAST, lw=1.8, label=first)
        axis.set_ylim(0, (2 * np.nanmax(own) or None) if np.isfinite(own).any() else None)
        axis.set_ylabel(f"{kind} (scaled)")
    axes[0].set_title(f"Error by step, {windows} test windows", loc="left")
    axes[1].set_xlabel("step of the horizon")
    lines, names = axes[0].get_legend_handles_labels()
    order = [len(lines) - 1, *range(len(lines) - 1)]  # the model, then the others, the best first
    figure.legend(
        [lines[each] for each in order], [names[each] for each in order],
        loc="outside right upper", frameon=False, fontsize=8,
    )  # fmt: skip
    return figure


def column_figure(metrics: dict[str, Any]) -> "Figure":
    """A figure of MSE and MAE by predicted column, scaled; up to 40 columns, the worst first."""
    known = [(name, own) for name, own in metrics["columns"].items() if own["mse"] is not None]
    columns = sorted(known, key=lambda item: -item[1]["mse"])[:40]
    figure = _figure(8, 0.32 * len(columns) + 1.6)
    axis = figure.subplots()
    place = np.arange(len(columns))
    axis.barh(place - 0.2, [c["mse"] for _, c in columns], 0.38, color=FORECAST, label="MSE")
    axis.barh(place + 0.2, [c["mae"] for _, c in columns], 0.38, color=TRUTH, label="MAE")
    axis.set_yticks(place, [name for name, _ in columns])
    axis.invert_yaxis()
    axis.set(xlabel="error (scaled)")
    rest = f", the worst 40 of {len(metrics['columns'])}" if len(metrics["columns"]) > 40 else ""
    axis.set_title(f"Error by column{rest}", loc="left")
    axis.legend(frameon=False)
    return figure


def _figure(width: float, height: float) -> "Figure":
    from forecaster.evaluate.drawing import Drawing

    return Drawing(figsize=(width, height), layout="constrained")
