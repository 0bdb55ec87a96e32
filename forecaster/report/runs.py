"""The report of trained models, side by side, from what their bundles hold."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import yaml

from forecaster.base.errors import BundleError, ForecasterError
from forecaster.base.machine import hardware
from forecaster.base.spelling import in_shell
from forecaster.evaluate.display import (
    by_step,
    effect_figure,
    example_figure,
    future_figure,
    step_figure,
)
from forecaster.evaluate.figures import Cost, shown, whole
from forecaster.evaluate.inference import TOGETHER, inference
from forecaster.evaluate.metrics import Verdict, interval_text, paired_interval
from forecaster.forecast import effects
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.paths import windows_of
from forecaster.forecast.predictor import BAND, Predictor, band, load_bundle, own_history
from forecaster.model.base import parameters
from forecaster.report import tables
from forecaster.report.page import Chart, Page, Section, Table

Runs = Mapping[str, Bundle]
"""Bundles by their names on the page."""
HEADINGS = {
    "parts": "What the forecast is made of",
    "kinds": "What each kind of part adds",
    "intervals": "Intervals",
    "columns": "Figures by column",
    "series": "Errors by series, the worst first",
}
"""Of the sections with the tables of `tables.of_run`."""


def of_runs(sources: Sequence[str], command: str, samples: int | None = None) -> Page:
    """The page for bundles, named by folder, run id or registered name, with so many paths.

    Raises the errors of `load_bundle`, and BundleError for a record that no training wrote.
    """
    sources = list(dict.fromkeys(sources))
    short = [Path(source).name or source for source in sources]
    names = short if len(set(short)) == len(short) else sources
    runs = dict(zip(names, map(load_bundle, sources), strict=True))
    try:
        return _page(runs, sources, command, samples)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BundleError(
            f"{', '.join(names)}: the record is not one that a training writes: "
            f"{type(error).__name__}: {error}"
        ) from error


def _page(runs: Runs, sources: Sequence[str], command: str, samples: int | None) -> Page:
    names = [*runs]
    groups: dict[object, dict[str, Bundle]] = {}
    for name, bundle in runs.items():
        groups.setdefault(_windows(bundle), {})[name] = bundle
    together = list(groups.values())
    verdicts = [
        f"{name}: {verdict}" for name, run in runs.items() for verdict in run.record.judged.verdicts
    ]
    by_run = [tables.of_run(bundle, name) for name, bundle in runs.items()]
    sections = [
        _ahead(runs, samples),
        Section("figures", "Figures", tables=[*map(_figures, together)]),
        Section("verdicts", "Verdicts", verdicts, [*_pairs(together)]),
        *(
            Section(key, heading, tables=[by_key[key] for by_key in by_run if key in by_key])
            for key, heading in HEADINGS.items()
        ),
        _effects(runs),
        Section("steps", "Error by horizon step", charts=[*map(_steps, together)]),
        Section("forecasts", "Forecasts against truth", charts=[*_examples(runs)]),
        Section(
            "commands",
            "Commands and hardware",
            [*_where(runs)],
            code=["\n".join([command, *map(_again, sources)]), *_configurations(runs)],
        ),
    ]
    return Page(
        title=f"Report of {names[0]}" if len(names) == 1 else f"Report of {len(names)} runs",
        lead="Every model was judged when it was trained, on every test window of its data, beside "
        "forecasts that need no training. MSE and MAE are on values scaled by the training rows.",
        sections=[part for part in sections if part.notes or part.tables or part.charts],
    )


def _task(bundle: Bundle) -> str:
    data, targets = bundle.config.data, ", ".join(bundle.schema.targets)
    return f"{data.label} ({data.features}, {targets}), T = {bundle.horizon}"


def _windows(bundle: Bundle) -> tuple[object, ...]:
    """Equal for runs whose errors are of the same test windows on the same scale."""
    about, test = bundle.about, bundle.record.judged
    # which series of a panel are long enough for a window depends on the look-back
    past = bundle.past if bundle.schema.items else None
    data = about["data_digest"], str(about.get("borders"))
    return _task(bundle), *data, test.windows, test.every, len(test.errors), past


def _figures(runs: Runs) -> Table:
    rows = []
    for name, bundle in runs.items():
        config, record, test = bundle.config, bundle.record, bundle.record.judged
        costs, train, bar = inference(bundle), record.train, test.bar
        if train:
            costs["train_seconds"] = train.seconds
            costs["windows_per_second"] = train.windows_per_second
        rows.append({
            "run": name,
            **{f"test {one.label}": one.text(test[one.name]) for one in whole("report")},
            "best floor": test.best_floor,
            "its MSE": tables.VALIDATION.text(bar["mse"]),
            "skill": tables.SKILL.text(bar.skill),
            "model − floor, 95 %": interval_text(bar.paired_low, bar.paired_high),
            "validation MSE": tables.VALIDATION.text(record.validation_mse),
            "attention": config.attn.name,
            "amounts to": bundle.about["attn_effective"],
            "parameters": f"{parameters(bundle.build()):,}",
            **{one.label: one.text(costs.get(one.name)) for one in shown(Cost, "report")},
            "seed": str(config.seed),
            "P": str(bundle.past),
            "T": str(bundle.horizon),
            "test windows": str(test.windows),
        })  # fmt: skip
    return Table([*rows[0]], [[*row.values()] for row in rows], _task(next(iter(runs.values()))))


def _pairs(groups: Sequence[Runs]) -> Iterator[Table]:
    """Tables that compare pairs of runs by the paired interval over stretches of windows."""
    for group in groups:
        rows = []
        for (a, mine), (b, theirs) in combinations(group.items(), 2):
            apart = np.subtract(mine.record.judged.errors, theirs.record.judged.errors)
            low, high = paired_interval(apart, 1)
            mean = f"{apart.mean():+.4f}" if len(apart) else ""
            ends = interval_text(low, high), Verdict.words(low, high)
            rows.append((f"{a} − {b}", mean, *ends))
        if rows:
            yield Table(("pair", "MSE difference", "paired 95 % interval", "the first is"), rows)


def _ahead(runs: Runs, samples: int | None) -> Section:
    """The forecasts from the last row of the data on; of a window of the test split, where these
    are not here or an input known ahead is to be filled in."""
    notes, charts = list[str](), list[Chart]()
    for name, bundle in runs.items():
        try:
            history, model = own_history(bundle), Predictor(bundle, "cpu")
            known = {"forecast": None}
            figure = future_figure(model, history, known, band(model), samples=samples)
            total = _total(model, history)
        except ForecasterError as error:
            notes.append(f"{name}: no forecast from the last row of its data: {error}")
            charts += [*_examples({name: bundle})][1:2]
        else:
            charts.append(Chart(figure, f"{name}: the steps after the data, in units.{total}"))
    return Section("ahead", "The next steps", notes, charts=charts)


def _total(model: Predictor, history: str) -> str:
    """What the forecast of the first series comes to over its horizon, for up to four targets."""
    if not windows_of(model.facts.intervals):
        return ""
    (ahead, *_) = model.predict(history, total="horizon").to_dict("records")
    words = []
    for name in [name for name in (*model.schema.targets, *model.schema.items) if name in ahead][
        :4
    ]:
        ends = [ahead[end] for end in (f"{name} {BAND[0]}", f"{name} {BAND[1]}") if end in ahead]
        between = f" (80 % band {ends[0]:,.4g} to {ends[1]:,.4g})" if ends else ""
        words.append(f"{name} {ahead[name]:,.4g}{between}")
    return f" Totals over the horizon: {'; '.join(words)}."


def _effects(runs: Runs) -> Section:
    """What the inputs known ahead do, in words and as curves."""
    notes = [f"{name}: {line}" for name, run in runs.items() for line in effects.sentences(run)]
    charts = [
        Chart(effect_figure(bundle.record.effects), f"{name}: change of the forecast while the "
              "input stays at a value, from that with the input as it was; the band holds 80 % of "
              "forecasts.")
        for name, bundle in runs.items()
        if any(row.curve for row in bundle.record.effects)
    ]  # fmt: skip
    return Section("effects", "What the inputs known ahead do", notes, charts=charts)


def _steps(runs: Runs) -> Chart:
    """One run beside its network and the best floor, or several runs beside the latter."""
    first = next(iter(runs.values()))
    test = first.record.judged
    curves = by_step(test)
    if len(runs) > 1:
        models = {name: by_step(bundle.record.judged)["model"] for name, bundle in runs.items()}
        curves = models | {name: curves[name] for name in [test.best_floor] if name in curves}
    return Chart(step_figure(curves, test.best_floor, test.windows), _task(first))


def _examples(runs: Runs) -> Iterator[Chart]:
    """The windows that a run keeps: those with the smallest, the median and the largest error."""
    for name, bundle in runs.items():
        test = bundle.record.judged
        for kind, example in bundle.record.examples.items():
            what = f"{name}, {kind} of {test.windows} windows: MSE {example.mse:.4f}"
            figure = example_figure(example, bundle.schema.freq, test)
            yield Chart(figure, f"{what} over all columns.")


def _where(runs: Runs) -> Iterator[str]:
    yield (
        f"Inference measured on {hardware('cpu', 1)}: one window, the median of several calls; "
        f"memory is the rise of the peak while {TOGETHER} windows are forecast at once."
    )
    for name, bundle in runs.items():
        about = bundle.about
        versions = ", ".join(f"{package} {number}" for package, number in about["versions"].items())
        yield (
            f"{name}: trained and judged on {about.get('hardware', 'unknown')} at commit "
            f"{about['commit']} with {versions}, on data {about['data_digest']}; bundle "
            f"{bundle.digest}."
        )


def _again(source: str) -> str:
    return f"forecaster evaluate --model {in_shell([source])}"


def _configurations(runs: Runs) -> Iterator[str]:
    for name, bundle in runs.items():
        config = yaml.safe_dump(bundle.config.to_dict(), sort_keys=False).rstrip()
        yield f"# {name}: forecaster train --config THIS.yaml\n{config}"
