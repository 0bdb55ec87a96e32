"""What a person sees of an evaluation: a table for the terminal, three pictures."""

from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.evaluate.intervals import SHOWN, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORECAST, TRUTH, MUTED = "#c2410c", "#1e3a5f", "#94a3b8"
BAND = f"{percent(SHOWN[0])} %"


def table(metrics: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Rows of (name, MSE, MAE, skill, remark), the model first; `metrics` as Evaluation.to_dict."""
    rows = [("model", f"{metrics['mse']:.4f}", f"{metrics['mae']:.4f}", "", "")]
    for name, floor in metrics["floors"].items():
        skill = "" if floor["skill"] is None else f"{floor['skill']:+.1%}"
        rows.append((name, f"{floor['mse']:.4f}", f"{floor['mae']:.4f}", skill, floor["chosen"]))
    return rows


def interval_lines(metrics: dict[str, Any]) -> list[str]:
    """Coverage, scaled width and CRPS of intervals, the online form in columns of its own."""
    fixed = metrics["intervals"]
    if fixed is None:
        return []
    forms = [fixed] if fixed["online"] is None else [fixed, fixed["online"]]
    lines = [f"{'intervals':<24}{'covered':>8}{'width':>9}"]
    if fixed["online"] is not None:
        lines[0] += f"{'online: covered':>19}{'width':>9}"
    for share in map(percent, SHOWN):
        shown = [form[share] for form in forms if form[share] is not None]
        cells = [
            f"{own['coverage']:>{room}.1%}{own['width']:>9.3f}"
            for own, room in zip(shown, (8, 19), strict=False)
        ]
        if cells:
            lines.append(f"{share + ' %':<24}{''.join(cells)}")
    scores = [f"{form['crps']:>{room}.3f}" for form, room in zip(forms, (17, 28), strict=False)]
    lines.append(f"{'CRPS':<24}{''.join(scores)}")
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
    """Forecast against truth with the history before it, in units; up to four columns.

    Lines have gaps where a value is missing (nan). times (h + T,), history (h, K), truth and
    forecast (T, K), band (T, K, 2) the ends of the first interval of SHOWN.
    """
    shown = min(4, len(names))
    figure = _figure(10, 2.4 * shown + 0.6)
    axes = np.atleast_1d(figure.subplots(shown, 1, sharex=True))
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
    rest = f" (first {shown} of {len(names)} columns)" if shown < len(names) else ""
    axes[0].set_title(title + rest, loc="left")
    figure.autofmt_xdate()
    return figure


def step_figure(metrics: dict[str, Any]) -> "Figure":
    """MSE and MAE by horizon step, with the best floor's mean as a line."""
    figure = _figure(8, 4)
    axis = figure.subplots()
    mse, mae = (np.array(metrics["by_step"][name], dtype=float) for name in ("mse", "mae"))
    steps = np.arange(1, len(mse) + 1)
    axis.plot(steps, mse, color=FORECAST, label="MSE")
    axis.plot(steps, mae, color=TRUTH, label="MAE")
    name = metrics["best_floor"]
    floor = metrics["floors"][name]["mse"]
    axis.axhline(floor, color=MUTED, ls="--", label=f"{name}, mean MSE over all steps")
    axis.set(xlabel="step of the horizon", ylabel="error (scaled)", ylim=(0, None))
    axis.set_title(f"Error by step, {metrics['windows']} test windows", loc="left")
    axis.legend(frameon=False)
    return figure


def column_figure(metrics: dict[str, Any]) -> "Figure":
    """MSE and MAE of each predicted column, scaled; up to 40 columns, the worst first."""
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
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
