"""The figures of an evaluation, as pictures."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.base.errors import UsageError
from forecaster.base.names import did_you_mean
from forecaster.datasets.dataset import id_parts
from forecaster.forecast.history import TOGETHER, History, read
from forecaster.record import NETWORK, Backtest, Example, InputEffect

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecaster.forecast.answer import Answer
    from forecaster.forecast.predictor import Predictor
    from forecaster.forecast.question import Question

FORECAST, TRUTH, MUTED = "#c2410c", "#1e3a5f", "#94a3b8"
HUES = ("#047857", "#7c3aed", "#0891b2", "#db2777", "#a16207", "#64748b")
STYLES = ("-", "--", "-.", ":")
SPAN = 4
"""The ratio of the largest and the smallest mean error from which their axis is logarithmic."""


def band_label(share: str, part: float | None, *, again: bool = False) -> str:
    """The name of a band in a legend: "80 %", or "80 % (covered 76 %)" if that is known of it, or
    of what it was before it was calibrated `again`."""
    before = " before it was calibrated again" if again else ""
    return f"{share} %" + ("" if part is None else f" (covered {100 * part:.0f} %{before})")


def forecast_figure(
    times: "pd.DatetimeIndex",
    history: np.ndarray,
    paths: Mapping[str, np.ndarray],
    names: Sequence[str],
    title: str = "",
    band: np.ndarray | None = None,
    labels: Sequence[str] = (),
    differences: bool = False,
    samples: np.ndarray | None = None,
) -> "Figure":
    """A figure of forecasts after a history, in units, for up to four columns.

    Lines have gaps at missing values (nan). times (h + T,), history (h, K), each of the named paths
    (T, K), band (T, K, 2) of the first of them with a label for each column. `differences` of the
    others from the first are drawn below. `samples` (N, T, K) are thin lines.
    """
    some, rows, h = min(4, len(names)), 1 + differences, len(history)
    figure = _figure(10, 2.6 * some * rows + 0.6)
    axes = np.atleast_1d(figure.subplots(some * rows, 1, sharex=True))
    main = next(iter(paths))
    for i in range(some):
        axis = axes[i * rows]
        axis.plot(times[:h], history[:, i], color=MUTED, lw=1, label="history")
        for name, color in zip(paths, cycle((FORECAST, TRUTH, *HUES))):
            axis.plot(times[h:], paths[name][:, i], color=color, lw=1.4, label=name)
            if differences and name != main:
                change = paths[name][:, i] - paths[main][:, i]
                axes[i * rows + 1].plot(
                    times[h:], change, color=color, lw=1.4, label=f"{name} − {main}"
                )
        if samples is not None:
            axis.plot(times[h:], samples[..., i].T, color=FORECAST, lw=0.5, alpha=0.4)
        if band is not None:
            axis.fill_between(
                times[h:], *band[:, i].T, color=FORECAST, alpha=0.18, lw=0, label=labels[i]
            )
        axis.axvline(times[max(h - 1, 0)], color=MUTED, lw=0.8, ls=":")
        axis.set_ylabel(names[i])
        if differences:
            axes[i * rows + 1].axhline(0, color=MUTED, lw=0.8)
            axes[i * rows + 1].set_ylabel("difference")
    for axis in axes:  # where a legend hides no curve
        axis.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0.1
        )
    rest = f" (first {some} of {len(names)} columns)" if some < len(names) else ""
    axes[0].set_title((title + rest).strip(), loc="left", pad=24)
    figure.autofmt_xdate()
    return figure


def future_figure(
    model: "Predictor",
    history: Any,
    scenarios: Mapping[str, Any],
    ends: Sequence[float],
    series: str | None = None,
    samples: int | None = None,
    **how: Any,
) -> "Figure":
    """A figure of the end of a history and the steps after it, with the band between the quantiles
    `ends`, if there are any, and a line for each of `scenarios`: what is known ahead, by name.

    `series` is one of a panel, by default its first; so many `samples` of paths of the first
    scenario are drawn, too; `how` are options of `Predictor.predict`,
    whose errors are raised.
    """
    import pandas as pd

    schema = model.schema
    histories = [
        read(model.form, history, None, ends, future=known, **how) for known in scenarios.values()
    ]
    names = [*histories[0].items.names]
    chosen = names[0] if series is None else str(series)
    if chosen not in names:
        raise UsageError(f"no series '{chosen}'.{did_you_mean(chosen, names)}")
    place = names.index(chosen)
    times, past = histories[0].newest(place, 2 * model.horizon)

    def answered(history: History) -> "pd.DataFrame":
        first = int(np.searchsorted(history.chosen, place)) // TOGETHER * TOGETHER
        batch = replace(history, chosen=history.chosen[first : first + TOGETHER])
        table = batch.answer(model.answer, lambda _: None)  # to the bit as all are answered
        parts = id_parts(chosen, len(schema.id)) if schema.id else ()
        for column, part in zip(schema.id, parts, strict=True):
            table = table[table[column].astype(str) == part]
        return table

    targets = (chosen,) if schema.wide else schema.targets
    ahead, drawn = [answered(history) for history in histories], None
    if samples:
        from forecaster.forecast.predictor import joined

        alone = replace(histories[0], chosen=np.array([place]))

        def with_paths(question: "Question") -> "Answer":
            answer = model.answer(question, model.levels)
            return joined(model, replace(question, samples=samples), answer)

        table = alone.answer(with_paths, lambda _: None)[[*targets]]
        drawn = table.to_numpy().reshape(samples, -1, len(targets))
    test, share = model.bundle.record.test, f"{100 * (ends[1] - ends[0]):g}" if ends else ""
    columns = schema.targets[:1] if schema.wide else targets
    bands = [ahead[0][[f"{target} {end}" for target in targets]] for end in ends]
    return forecast_figure(
        pd.DatetimeIndex(
            times.append(pd.DatetimeIndex(ahead[0][schema.time]).tz_localize(None))
        ),
        past[:, [0] if schema.wide else list(schema.target_positions)],
        {
            name: table[[*targets]].to_numpy()
            for name, table in zip(scenarios, ahead, strict=True)
        },
        targets,
        chosen if schema.id else "",
        band=np.stack(bands, axis=-1) if bands else None,
        labels=[
            band_label(
                share, test.covered(share, name) if test else None,
                again=test is not None and test.calibrated_again,
            )
            for name in columns if ends
        ],
        differences=len(ahead) > 1,
        samples=drawn,
    )  # fmt: skip


def example_figure(example: Example, freq: str, test: Backtest) -> "Figure":
    """A figure of a test window, whose times are `freq` apart; `test` says what bands covered."""
    import pandas as pd

    names, share = [*example.targets], example.share
    history, forecast, truth, *ends = (
        np.array([getattr(drawn, kind) for drawn in example.targets.values()], float).T
        for kind in ("history", "forecast", "truth", *(("low", "high") if share else ()))
    )
    return forecast_figure(
        pd.date_range(example.begin, periods=len(history) + len(forecast), freq=freq),
        history,
        {"forecast": forecast, "truth": truth},
        names,
        example.title,
        np.stack(ends, axis=-1) if ends else None,
        [band_label(share, test.covered(share, name)) for name in names],
    )


def by_step(test: Backtest) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """MSE and MAE (T,) by step of the model, its network alone and the best floor."""
    curves = {}
    for name, row in test.rows.items():
        if row.by_step:
            curves[name] = np.array(row.by_step["mse"], float), np.array(row.by_step["mae"], float)
    return curves


def step_figure(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    best: str,
    windows: int,
    from_zero: bool = True,
) -> "Figure":
    """A figure of MSE, and below it MAE, by step of the horizon, for the model and others.

    `curves` has the errors (T,) of each kind by name, the model first, nan where there are none;
    `best` is the highlighted floor. The axes are logarithmic if the means differ by more than SPAN;
    errors of 0 then leave a gap. Otherwise they begin at 0 if `from_zero`.
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
            curve = curves[name][place].astype(float)
            axis.plot(np.arange(1, len(curve) + 1), curve, label=name, **stands)
        if log:
            axis.set_yscale("log", nonpositive="mask")
            _plain_decades(axis)
        elif from_zero:
            axis.set_ylim(bottom=0)
        axis.set_ylabel(f"{kind} (scaled{', logarithmic' * log})")
    axes[0].set_title(f"Error by step, {windows} test windows", loc="left")
    axes[1].set_xlabel("step of the horizon")
    axes[1].xaxis.get_major_locator().set_params(integer=True)
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(
        lines, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9, handlelength=3
    )
    return figure


def effect_figure(effects: Sequence[InputEffect]) -> "Figure":
    """The curves of inputs known ahead, with 80 % of the forecasts asked, in units."""
    drawn = [effect for effect in effects if effect.curve]
    figure = _figure(10, 2.6 * -(-len(drawn) // 2))
    axes = figure.subplots(-(-len(drawn) // 2), 2, squeeze=False).ravel()
    for axis, effect in zip(axes, drawn, strict=False):
        axis.axhline(0, color=MUTED, lw=0.6)
        values, change, low, high = np.array(effect.curve).T
        if len(values) < 4:
            axis.vlines(values, low, high, color=FORECAST, alpha=0.3, lw=4)
            axis.plot(values, change, "o", color=FORECAST)
        else:
            axis.fill_between(values, low, high, color=FORECAST, alpha=0.15, lw=0)
            axis.plot(values, change, color=FORECAST, lw=1.4)
        axis.set_xlabel(effect.input, fontsize=9)
        axis.set_ylabel(f"change of {effect.target}", fontsize=9)
    for axis in axes[len(drawn) :]:
        axis.remove()
    return figure


def cost_figure(points: Mapping[str, tuple[float, float, float]], best: Sequence[str]) -> "Figure":
    """A figure of error against time, with the names of models beside their dots.

    `points` are milliseconds, MSE and MiB, which is the area of a dot; `best` have a colour.
    """
    figure = _figure(9, 4.5)
    axis = figure.subplots()
    most = max(mib for _, _, mib in points.values()) or 1.0
    for name, (milliseconds, mse, mib) in points.items():
        color = FORECAST if name in best else MUTED
        axis.scatter(milliseconds, mse, 15 + 60 * mib / most, color=color, alpha=0.75, lw=0)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("{x:g}")
    axis.tick_params(which="both", labelsize=8)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set(xlabel="milliseconds for one forecast", ylabel="test MSE")
    axis.margins(x=0.15, y=0.1)
    figure.draw_without_rendering()  # so that the points have positions
    label_points(axis, [(x, y, name) for name, (x, y, _) in points.items()])
    return figure


def label_points(axis: "Axes", points: Sequence[tuple[float, float, str]]) -> None:
    """Write names beside points (x, y), each at the nearest place where it hides no other name."""
    high, wide = 10.0, 4.6  # height of a line and width of a letter, in pixels
    dots = [axis.transData.transform((x, y)) for x, y, _ in points]
    taken: list[tuple[float, float, float]] = [(x - 4, x + 4, y) for x, y in dots]
    for x, y, name in sorted(points):
        at = axis.transData.transform((x, y))
        places = [
            (dx, dy * high * 0.55)
            for dy in sorted(range(-16, 17), key=abs)
            for dx in (5.0, -5.0 - wide * len(name))
        ]
        for dx, dy in places:
            left, middle, right = at[0] + dx, at[1] + dy, at[0] + dx + wide * len(name)
            if all(
                abs(middle - other) >= high or right < begin or left > end
                for begin, end, other in taken
            ):
                break
        taken.append((left, right, middle))
        far = abs(dy) > high
        axis.annotate(
            name, (x, y), xytext=(dx * 0.72, dy * 0.72), textcoords="offset points", fontsize=7,
            va="center", arrowprops={"arrowstyle": "-", "lw": 0.3, "color": MUTED} if far else None,
        )  # fmt: skip


def svg(figure: "Figure") -> bytes:
    """The figure as SVG on a transparent ground, equal for equal figures."""
    from matplotlib import rc_context

    into = io.BytesIO()
    with rc_context({"svg.hashsalt": "forecaster", "svg.fonttype": "none"}):
        figure.savefig(into, format="svg", transparent=True, metadata={"Date": None})
    return into.getvalue()


def _plain_decades(axis: "Axes") -> None:
    """Ticks such as 0.1, 0.2, 0.5 on a logarithmic axis, instead of powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(NullLocator())


def _figure(width: float, height: float) -> "Figure":
    from forecaster.evaluate.drawing import Drawing

    return Drawing(figsize=(width, height), layout="constrained")
