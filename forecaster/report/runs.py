"""The report of trained models, which are judged anew on their own data, side by side."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import yaml

from forecaster.base.machine import hardware
from forecaster.base.progress import Advance, Bar
from forecaster.evaluate import SHARES, Evaluation, Verdict, interval_text, percent
from forecaster.evaluate.display import effect_figure, step_figure
from forecaster.evaluate.figures import Cost, ErrorMetric, IntervalMetric, shown, whole
from forecaster.evaluate.inference import TOGETHER, Inference, inference
from forecaster.evaluate.judge import as_judged, draw_window, judge
from forecaster.evaluate.problem import Problem, reopen
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import load_bundle
from forecaster.model.base import parameters
from forecaster.record import Backtest, InputEffect
from forecaster.report import tables
from forecaster.report.page import Chart, Page, Section, Table
from forecaster.report.parts import EFFECTS, EXAMPLES, Costs, frontier_chart


@dataclass(frozen=True)
class Judged:
    """A bundle with everything that its report shows."""

    name: str
    source: str
    bundle: Bundle
    problem: Problem
    evaluation: Evaluation
    cost: Inference
    examples: Sequence[Chart] = ()

    @property
    def test(self) -> Backtest:
        """What was found on the test split."""
        return self.evaluation.record

    @property
    def task(self) -> str:
        """The task of the run; only runs with the same task are comparable."""
        window, data = self.problem.config.window, self.problem.config.data
        return f"{data.label} ({data.features}, {', '.join(self.problem.schema.targets)}), " + (
            f"T = {window.horizon}"
        )

    @property
    def costs(self) -> dict[str, float | None]:
        """The costs by the names of metrics; the memory is that of forecasts."""
        train = self.bundle.record.train
        return {
            "train_seconds": train.seconds if train else None,
            "windows_per_second": train.windows_per_second if train else None,
            "inference_ms": self.cost.milliseconds,
            "peak_mib": self.cost.mib,
        }

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for runs whose errors are of the same test windows on the same scale."""
        problem, windows = self.problem, self.evaluation.model.windows
        targets = problem.schema.target_scaler
        scale = targets.mean.tobytes(), targets.std.tobytes()
        # which series of a panel are long enough for a window depends on the look-back
        past = None if problem.series.items is None else self.bundle.past
        return self.task, problem.borders, problem.digest, scale, windows, past


def of_runs(sources: Sequence[str], command: str, device: str) -> Page:
    """The page for bundles, named by folder, run id or registered name.

    Every model is judged anew on every test window. Raises the errors of `load_bundle` and
    `problem.reopen`.
    """
    sources = list(dict.fromkeys(sources))
    short = [Path(source).name or source for source in sources]
    names = short if len(set(short)) == len(short) else sources
    bundles = [load_bundle(source) for source in sources]
    with Bar("judging", 2 * len(bundles)) as bar:
        runs = []
        for name, source, bundle in zip(names, sources, bundles, strict=True):
            runs.append(_judge(name, source, bundle, device, bar.advance))
            test = runs[-1].evaluation.model
            bar.line(f"{name}: test MSE {test.mse:.4f} on {test.windows} windows")
    groups: dict[object, list[Judged]] = {}
    for run in runs:
        groups.setdefault(run.key, []).append(run)
    together = list(groups.values())
    return Page(
        title=f"Report of {names[0]}" if len(names) == 1 else f"Report of {len(names)} runs",
        lead="Every model was judged anew on every test window of its data, beside forecasts that "
        "need no training. MSE and MAE are on values scaled by the training rows.",
        sections=[
            Section(
                "figures",
                "Figures",
                tables=[_table(group) for group in together],
                charts=[frontier_chart(group[0].task, _costs(group)) for group in together
                        if len(group) > 1],
            ),
            Section("verdicts", "Verdicts",
                    [f"{run.name}: {run.test.verdict} {run.test.headline}" for run in runs],
                    [*_pairs(together)]),
            Section(
                "parts",
                "What the forecast is made of",
                [f"{run.name}: {run.test.network.verdict}" for run in runs if run.test.network],
                [table for run in runs for table in _parts(run)],
            ),
            *_intervals(runs),
            *_effects(runs),
            Section("columns", "Figures by column", tables=[_columns(run) for run in runs]),
            *_series(runs),
            Section("steps", "Error by horizon step", charts=[_steps(group) for group in together]),
            Section(
                "forecasts",
                "Forecasts against truth",
                [EXAMPLES],
                charts=[chart for run in runs for chart in run.examples],
            ),
            Section("commands", "Commands and hardware", _where(runs, device),
                    code=_code(runs, command)),
        ],
    )  # fmt: skip


def _judge(name: str, source: str, bundle: Bundle, device: str, advance: Advance) -> Judged:
    problem = reopen(bundle)
    model = bundle.build().to(device).eval()
    advance(f"{name}, all test windows", 0)
    intervals, _, done = as_judged(bundle, problem, model, device)
    found = judge(problem, model, device, intervals, done=done)
    advance(f"{name}, speed and memory", 1)
    cost = inference(bundle)
    advance(name, 1)
    errors = found.model.by_window
    examples = [
        Chart(
            draw_window(problem, model, intervals, found.record, number, device),
            f"{name}, {kind} of {len(errors)} windows: MSE {errors[number]:.4f} over all columns.",
        )
        for kind, number in picked(errors).items()
    ]
    return Judged(name, source, bundle, problem, found, cost, examples)


def picked(errors: np.ndarray) -> dict[str, int]:
    """The windows with the least, the median and the largest error; `errors` (n,) are of all, nan
    without observations."""
    order = np.argsort(errors, kind="stable")[: np.count_nonzero(~np.isnan(errors))]
    places = {"best": 0, "median": len(order) // 2, "worst": -1}
    return {name: int(order[place]) for name, place in places.items()}


def _table(runs: Sequence[Judged]) -> Table:
    rows = []
    for run in runs:
        config, test = run.bundle.config, run.test
        rows.append({
            "run": run.name,
            **{f"test {each.label}": each.text(test[each.name]) for each in whole("report")},
            "best floor": test.best_floor,
            "its MSE": f"{test.bar['mse']:.4f}",
            "skill": tables.SKILL.text(test.bar.skill),
            "model − floor, 95 %": interval_text(*run.evaluation.paired[test.best_floor]),
            "validation MSE": tables.VALIDATION.text(run.bundle.record.validation_mse),
            "attention": config.attn.name,
            "amounts to": run.bundle.about["attn_effective"],
            "parameters": f"{parameters(run.bundle.build()):,}",
            **{each.label: each.text(run.costs.get(each.name)) for each in shown(Cost, "report")},
            "seed": str(config.seed),
            "P": str(run.bundle.past),
            "T": str(run.bundle.horizon),
            "test windows": str(test.windows),
        })  # fmt: skip
    return Table([*rows[0]], [[*row.values()] for row in rows], runs[0].task)


def _parts(run: Judged) -> list[Table]:
    """The parts of the model and the floors, with the errors that were just measured, and what each
    kind of part adds."""
    record = run.bundle.record.model_copy(update={"test": run.test})
    found = [Table(*tables.made_of(record, run.bundle.config.attn.name), run.name)]
    if run.test.adds:
        found.append(Table(*tables.added(run.test), f"{run.name}: the rest alone"))
    return found


def _columns(run: Judged) -> Table:
    """The errors of each predicted column, scaled and in units, and what its intervals covered."""
    share = percent(SHARES[0])
    metrics = [metric for metric in shown(ErrorMetric) if "column" in metric.by]
    found = [tables.TableColumn("column", "column"), *map(tables.of_metric, metrics)]
    if run.test.band(share):
        covered = next(each for each in shown(IntervalMetric) if each.name == "coverage")
        own = tables.of_metric(covered, f"{share} % band ")
        found.append(replace(own, key=f"coverage_{share}"))
    rows = tables.cells(found, tables.columns(run.test, share))
    return Table([column.head for column in found], rows, run.name)


def _series(runs: Sequence[Judged]) -> Iterator[Section]:
    """The errors by series, the worst first, of the runs that have several."""
    found = {run.name: tables.series(run.test) for run in runs}
    told = [
        Table(
            [column.head for column in heads],
            tables.cells(heads, rows),
            "; ".join(filter(None, [name, more])),
        )
        for name, (heads, rows, more) in found.items()
        if rows
    ]
    if told:
        yield Section("series", "Errors by series, the worst first", tables=told)


def _pairs(groups: Sequence[Sequence[Judged]]) -> Iterator[Table]:
    """Tables that compare pairs of runs by the paired interval over windows."""
    for group in groups:
        rows = []
        for a, b in combinations(group, 2):
            mine, theirs = a.evaluation.model, b.evaluation.model
            low, high = mine.against(theirs)
            mean = np.nanmean(mine.by_window - theirs.by_window)
            ends = interval_text(low, high), Verdict.words(low, high)
            rows.append((f"{a.name} − {b.name}", f"{mean:+.4f}", *ends))
        if rows:
            yield Table(("pair", "MSE difference", "paired 95 % interval", "the first is"), rows)


def _intervals(runs: Sequence[Judged]) -> Iterator[Section]:
    """The metrics of the runs that have intervals."""
    metrics = map(tables.of_metric, shown(IntervalMetric, "report"))
    found = [tables.TableColumn("share", "%"), *metrics]
    notes, rows = [], []
    for run in runs:
        if run.test.intervals:
            notes.append(f"{run.name}: {run.test.intervals.verdict}")
        rows += [(run.name, *cells) for cells in tables.cells(found, tables.intervals(run.test))]
    if rows:
        head = ("run", *(column.head for column in found))
        yield Section("intervals", "Intervals", notes, [Table(head, rows)])


def _effects(runs: Sequence[Judged]) -> Iterator[Section]:
    """What the inputs known ahead do, for the runs that have any."""
    found = {run.name: run.bundle.record.effects for run in runs}
    head = ("input", "target", "one more moves it by", "80 % from", "to")

    def cells(row: InputEffect) -> tuple[str, ...]:
        if row.effect is None:
            return (row.input, row.target, "not determined", "", "")
        return (row.input, row.target, *(f"{end:+.3g}" for end in (row.effect, row.low, row.high)))

    told = [Table(head, [*map(cells, rows)], name) for name, rows in found.items() if rows]
    if told:
        charts = [
            Chart(effect_figure(rows), f"{name}: change of the forecast while the input stays at a "
                  "value, from that with the input as it was; the band holds 80 % of forecasts.")
            for name, rows in found.items()
            if any(row.curve for row in rows)
        ]  # fmt: skip
        yield Section("effects", "What the inputs known ahead do", [EFFECTS], told, charts)


def _costs(runs: Sequence[Judged]) -> dict[str, Costs]:
    return {
        run.name: Costs(run.cost.milliseconds, run.evaluation.model.mse, run.cost.mib or 0.0)
        for run in runs
    }


def _steps(runs: Sequence[Judged]) -> Chart:
    """One run beside all floors, or several runs beside the best of them."""
    first = runs[0].evaluation
    curves = first.by_step()
    if len(runs) > 1:
        floor = {first.best_floor: curves[first.best_floor]}
        curves = {run.name: run.evaluation.model.by_step for run in runs} | floor
    return Chart(step_figure(curves, first.best_floor, first.model.windows), runs[0].task)


def _where(runs: Sequence[Judged], device: str) -> list[str]:
    return [
        f"Errors computed on {hardware(device)}. Inference measured on "
        f"{hardware('cpu', 1)}: one window, the median of several calls; memory is the rise of the "
        f"peak while {TOGETHER} windows are forecast at once.",
        *(
            f"{run.name}: trained at commit {run.bundle.about['commit']} with "
            + ", ".join(f"{name} {v}" for name, v in run.bundle.about["versions"].items())
            + f", on data {run.bundle.about['data_digest']}; bundle {run.bundle.digest}."
            for run in runs
        ),
    ]


def _code(runs: Sequence[Judged], command: str) -> list[str]:
    again = [f"forecaster evaluate --model {shlex.quote(run.source)}" for run in runs]
    configs = [
        f"# {run.name}: forecaster train --config THIS.yaml\n"
        + yaml.safe_dump(run.bundle.config.to_dict(), sort_keys=False).rstrip()
        for run in runs
    ]
    return ["\n".join([command, *again]), *configs]
