"""The report of trained models, which are judged anew on their own data, side by side."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
import yaml

from forecaster.bench.inference import TOGETHER, Inference, inference
from forecaster.bundle import Bundle
from forecaster.datasets import Windows
from forecaster.evaluate import SHARES, Evaluation, Verdict, interval_text, is_borderline, percent
from forecaster.evaluate.examples import PICKED, Example, examples
from forecaster.evaluate.figures import Cost, ErrorMetric, IntervalMetric, measure, shown, whole
from forecaster.evaluate.lags import LagProfile, lag_profile
from forecaster.experiment import parameters
from forecaster.judge import forecast_with, in_band, judge
from forecaster.machine import hardware
from forecaster.parts import Blend
from forecaster.predict import load_bundle
from forecaster.problem import Problem, reopen
from forecaster.progress import Advance, Bar
from forecaster.report.page import Chart, Page, Section, Table
from forecaster.report.parts import (
    DRAWN,
    EXAMPLES,
    FRONTIER,
    LAGS,
    Band,
    Entry,
    figure,
    frontier_chart,
    lag_section,
    share_section,
    step_chart,
    window_chart,
)

LISTED = 40
"""The most columns in a table of their errors."""


@dataclass(frozen=True)
class Judged:
    """A bundle with everything that its report shows."""

    name: str
    source: str
    bundle: Bundle
    problem: Problem
    evaluation: Evaluation
    cost: Inference
    profile: LagProfile
    examples: list[Chart]

    @property
    def drawn(self) -> list[str]:
        """The targets with a chart of a forecast, the main one first."""
        main = self.problem.dataset.main_target
        return [main, *(name for name in self.problem.schema.targets if name != main)][:DRAWN]

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
    steps = sum(bundle.horizon + 2 for bundle in bundles)
    with Bar("judging", steps) as bar:
        runs = []
        for name, source, bundle in zip(names, sources, bundles, strict=True):
            runs.append(_judge(name, source, bundle, device, bar.advance))
            test = runs[-1].evaluation.model
            bar.line(f"{name}: test MSE {test.mse:.4f} on {test.windows} windows")
    groups: dict[object, list[Judged]] = {}
    for run in runs:
        groups.setdefault(run.key, []).append(run)
    together = list(groups.values())
    amounts = [
        f"{run.name}: attention {run.bundle.config.attn.name} amounts to: "
        f"{run.bundle.about['attn_effective']}."
        for run in runs
    ]
    verdicts = [f"{run.name}: {run.evaluation.verdict()}" for run in runs]
    return Page(
        title=f"Report of {names[0]}" if len(names) == 1 else f"Report of {len(names)} runs",
        lead="Every model was judged anew on every test window of its data, beside forecasts that "
        "need no training. MSE and MAE are on values scaled by the training rows.",
        sections=[
            Section("figures", "Figures", amounts, [_table(group) for group in together]),
            Section("verdicts", "Verdicts", verdicts, [*_pairs(together)]),
            _shares(runs),
            *_intervals(together),
            Section("columns", "Figures by column", tables=[_columns(run) for run in runs]),
            Section(
                "frontier",
                "Speed, memory and error",
                [FRONTIER],
                charts=[frontier_chart(group[0].task, _entries(group)) for group in together],
            ),
            Section("steps", "Error by horizon step", charts=[_steps(group) for group in together]),
            Section(
                "forecasts",
                "Forecasts against truth",
                [EXAMPLES, *filter(None, map(_targets, runs))],
                charts=[chart for run in runs for chart in run.examples],
            ),
            lag_section(
                LAGS,
                ((run.name, run.profile, run.problem.dataset.seasons[0]) for run in runs),
            ),
            Section("commands", "Commands and hardware", _where(runs, device),
                    code=_code(runs, command)),
        ],
    )  # fmt: skip


def _judge(name: str, source: str, bundle: Bundle, device: str, advance: Advance) -> Judged:
    problem = reopen(bundle)
    model = bundle.build()
    advance(f"{name}, all test windows", 0)
    evaluation = judge(problem, model, device, bundle.intervals)
    advance(f"{name}, speed and memory", 1)
    cost = inference(bundle)
    advance(f"{name}, lags", 1)
    windows = problem.test(device)
    profile = lag_profile(model, windows, report=lambda step: advance(f"{name}, lags", step))
    run = Judged(name, source, bundle, problem, evaluation, cost, profile, [])
    return replace(run, examples=_examples(run, model, windows))


def _examples(run: Judged, model: Blend, windows: Windows) -> list[Chart]:
    """Every example window of the main target, and the median one of the other targets drawn."""
    intervals, errors = run.bundle.intervals, run.evaluation.model
    share = intervals.widest(SHARES[0]) if intervals else None
    test = run.evaluation.record

    def band(example: Example) -> Band | None:
        if share is None:
            return None
        batch = windows.batch(torch.tensor([example.number], device=windows.values.device))
        _, ends = in_band(run.problem, model, intervals, batch)
        known = {name: test.covered(percent(share), name) for name in run.drawn}
        return None if ends is None else Band(f"{percent(share)} %", ends, known)

    found = examples(forecast_with(model), windows, errors)
    bands = {kind: band(example) for kind, example in found.items()}
    main, *others = run.drawn
    wanted = [(kind, main) for kind in PICKED] + [(PICKED[1], column) for column in others]
    return [
        window_chart(
            run.name, run.problem, windows, kind, found[kind], errors.by_window, column, bands[kind]
        )
        for kind, column in wanted
    ]


def _targets(run: Judged) -> str:
    """A sentence on which targets of a run are drawn; empty if there is only one."""
    count, (main, *others) = len(run.problem.schema.targets), run.drawn
    if not others:
        return ""
    left = count - len(run.drawn)
    rest = f"; targets not drawn: {left}" if left else ""
    return f"{run.name}: all three windows of {main}, the median one of {', '.join(others)}{rest}."


def _table(runs: Sequence[Judged]) -> Table:
    errors, costs = whole("report"), shown(Cost, "report")
    head = (
        "run", *(f"test {metric.label}" for metric in errors), "best floor", "its MSE", "skill",
        "model − floor, 95 %", "validation MSE", "attention", "parameters",
        *(metric.label for metric in costs), "seed", "P", "T", "test windows",
    )  # fmt: skip
    rows = []
    for run in runs:
        config, test = run.bundle.config, run.evaluation
        measured = measure(test.errors(test.model))
        floor = test.best_floor
        low, high = test.paired[floor]
        rows.append((
            run.name, *(metric.text(measured[metric.name]) for metric in errors), floor,
            f"{test.floors[floor].mse:.4f}", f"{test.skill(floor):+.1%}", interval_text(low, high),
            figure(run.bundle.record.validation_mse, ".4f"), config.attn.name,
            f"{parameters(run.bundle.build()):,}",
            *(metric.text(run.costs.get(metric.name)) for metric in costs), str(config.seed),
            str(run.bundle.past), str(run.bundle.horizon), str(test.model.windows),
        ))  # fmt: skip
    best = min(range(len(runs)), key=lambda i: runs[i].evaluation.model.mse)
    strong = frozenset({best}) if len(runs) > 1 else frozenset()
    return Table(head, rows, runs[0].task, strong)


def _columns(run: Judged) -> Table:
    """The errors of each predicted column, scaled and in units, and what its intervals covered."""
    test = run.evaluation.record
    metrics = [metric for metric in shown(ErrorMetric) if "column" in metric.by]
    (coverage,) = (metric for metric in shown(IntervalMetric) if metric.name == "coverage")
    shares = [share for share in map(percent, SHARES) if test.band(share)]
    units = " in units"
    head = (
        "column",
        *(metric.label + units * metric.form.endswith(units) for metric in metrics),
        *(f"{share} % band {coverage.label}" for share in shares),
    )
    worst = sorted(test.columns.items(), key=lambda item: -(item[1]["mse"] or 0))
    chosen = worst[:LISTED] if len(worst) > LISTED else list(test.columns.items())
    rows = [
        (
            name,
            *(metric.text(own[metric.name]).removesuffix(units) for metric in metrics),
            *(coverage.text(test.covered(share, name)) for share in shares),
        )
        for name, own in chosen
    ]
    rest = f", the worst {LISTED} of {len(worst)} columns" if len(worst) > LISTED else ""
    return Table(head, rows, run.name + rest)


def _shares(runs: Sequence[Judged]) -> Section:
    """The parts of the models, with the errors that were just measured."""
    found, notes = [], []
    for run in runs:
        test = run.evaluation.record
        record = run.bundle.record.model_copy(update={"test": test})
        found.append((run.name, replace(run.bundle, record=record)))
        if test.network:
            notes.append(f"{run.name}: {test.network.verdict}")
    return share_section(found, notes)


def _pairs(groups: Sequence[Sequence[Judged]]) -> Iterator[Table]:
    """Tables that compare pairs of runs by the paired interval over windows."""
    for group in groups:
        rows = []
        for a, b in combinations(group, 2):
            mine, theirs = a.evaluation.model, b.evaluation.model
            low, high = mine.against(theirs)
            mean = np.nanmean(mine.by_window - theirs.by_window)
            found = Verdict.of(low, high)
            better = {Verdict.BETTER: f"{a.name} is better", Verdict.WORSE: f"{b.name} is better"}
            rows.append((
                f"{a.name} − {b.name}", f"{mean:+.4f}", interval_text(low, high),
                better.get(found, found) + (", borderline" if is_borderline(low, high) else ""),
            ))  # fmt: skip
        if rows:
            yield Table(("pair", "MSE difference", "paired 95 % interval", "verdict"), rows)


def _intervals(groups: Sequence[Sequence[Judged]]) -> Iterator[Section]:
    """The metrics of the runs that have intervals; the coverage of the first share by step."""
    notes, rows, charts = [], [], []
    metrics = shown(IntervalMetric, "report")
    for group in groups:
        curves = {}
        for run in group:
            fixed = run.evaluation.intervals
            if fixed is None:
                continue
            for form, which in ((fixed, "calibrated once"), (fixed.online, "online")):
                if form is None:
                    continue
                notes.append(f"{run.name}: {form.verdict}")
                for share, band in form.bands.items():
                    figures = (metric.text(band[metric.name]) for metric in metrics)
                    rows.append((run.name, f"{share} %", which, *figures))
            if first := fixed.band(percent(SHARES[0])):
                curves[run.name] = first.by_step["coverage"]
        if curves:
            wanted = (f"{SHARES[0]:.0%}", [SHARES[0]] * group[0].bundle.horizon)
            charts.append(step_chart(group[0].task, curves, wanted, list(curves), "share covered"))
    if rows:
        head = ("run", "interval", "form", *(metric.label for metric in metrics))
        yield Section("intervals", "Intervals", notes, [Table(head, rows)], charts)


def _entries(runs: Sequence[Judged]) -> list[Entry]:
    return [
        Entry(run.name, run.evaluation.model.mse, run.cost.milliseconds, run.cost.mib)
        for run in runs
    ]


def _steps(runs: Sequence[Judged]) -> Chart:
    floors = runs[0].evaluation
    name = floors.best_floor
    curves = {run.name: run.evaluation.model.by_step[0].tolist() for run in runs}
    floor = floors.floors[name].by_step[0].tolist()
    return step_chart(runs[0].task, curves, (name, floor), list(curves))


def _where(runs: Sequence[Judged], device: str) -> list[str]:
    return [
        f"Errors and lags computed on {hardware(device)}. Inference measured on "
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
