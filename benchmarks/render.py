"""Render the tables of the documents, with figures only from benchmarks/results/*.json.

    python benchmarks/render.py               rewrite the text between the markers
    python benchmarks/render.py --check       exit 1 if a document differs from its results
    python benchmarks/render.py --csv FOLDER  write every measurement as data: FOLDER/KIND.csv

A table is between `<!-- begin NAME -->` and `<!-- end NAME -->` in a page of docs/. The script also
writes what `forecaster advise` knows of the comparisons (evidence.py).
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, get_args

import evidence
import pandas as pd
import study
from recall import LIMITS

from forecaster.attention import ATTENTIONS
from forecaster.attention.base import SelfAttention
from forecaster.evaluate import Verdict
from forecaster.evaluate.figures import METRICS, Where, whole
from forecaster.study import bench
from forecaster.study.compare.regimes import REGIMES

ROOT = Path(__file__).resolve().parent.parent
Result = dict[str, Any]
Cell = str | Callable[..., str]
"""A template for str.format or a function; both take the fields of a line by their names."""
HORIZONS = (96, 192, 336, 720)
PUBLISHED = {
    "P chosen for each set": {
        "ETTh1": (0.390, 0.414, "VisionTS"), "ETTh2": (0.333, 0.375, "VisionTS"),
        "ETTm1": (0.338, 0.369, "DUET"), "ETTm2": (0.247, 0.306, "TimeBridge"),
        "weather": (0.218, 0.252, "DUET"),
    },
    "P = 96 for everybody": {
        "ETTh1": (0.432, 0.427, "CycleNet"), "ETTm1": (0.374, 0.377, "OLinear"),
        "weather": (0.237, 0.260, "OLinear"),
    },
}  # fmt: skip
"""The best published means over HORIZONS that we know of, by the rule for the look-back."""
MARKETS = ("epf-NP", "epf-PJM", "epf-BE", "epf-FR", "epf-DE")
TIMEXER = {"mse": (0.236, 0.093, 0.379, 0.385, 0.440), "mae": (0.268, 0.192, 0.243, 0.208, 0.415)}
"""The best published errors for the markets that we know of (Wang et al., NeurIPS 2024)."""
CELL = ("config", "data", "features", "horizon", "past", "attn")
TASK = ("data", "past", "config", "features", "attn")  # a cell at any horizon
NONE = "No figures are kept here yet."
SOURCE = "`{command}`: {hardware}, commit {commit:.9}"
READY = f"{SOURCE}; the service was ready {{ready_seconds:.1f}} s after its start."


def results(kind: str = "") -> list[Result]:
    """The finished measurements, of one kind or all, in the order of their file names."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    rows = [{"file": file.stem, **json.loads(file.read_text())} for file in files]
    return [row for row in rows if kind in ("", row["kind"])]


def split(measurement: Result) -> list[Result]:
    """One line, or one for each row that it holds; `row.` marks a row's field if both have it."""
    for value in measurement.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = [{f"row.{k}" if k in measurement else k: row[k] for k in row} for row in value]
            return [measurement | row for row in rows]
    return [measurement]


def write_csv(folder: Path) -> None:
    """A file for each kind of measurement; dots join nested names, and lists are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in {each["kind"] for each in results()}:
        frame = pd.json_normalize([line for each in results(kind) for line in split(each)])
        lists = frame.map(lambda value: isinstance(value, list)).any()
        frame.loc[:, ~lists].to_csv(folder / f"{kind}.csv", index=False)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; NONE if it has no rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) if rows else NONE


def known(template: str, **line: Any) -> str:
    """The template with the fields of a line, or a dash if the line lacks the figure."""
    try:
        return template.format(**line)
    except (KeyError, TypeError):  # no such field, or its value is None
        return "–"


@dataclass(frozen=True)
class Table:
    """A table of the measurements of one kind, with a note on each that has lines."""

    kind: str
    columns: dict[str, Cell]
    note: str = ""
    lines: Callable[[Result], list[Result]] = split

    def __call__(self) -> str:
        cells = [each.format if isinstance(each, str) else each for each in self.columns.values()]
        measured = [(each, self.lines(each)) for each in results(self.kind)]
        rows = [[cell(**line) for cell in cells] for _, lines in measured for line in lines]
        notes = [self.note.format(**each) for each, lines in measured if lines and self.note]
        return "\n\n".join([markdown([*self.columns], rows), *notes])


def _by_alone(at_once: int, **line: Any) -> str:
    ratio = "p50 x {p50_ms_by_alone:.2f}" if at_once == 1 else "rate x {per_second_by_alone:.2f}"
    return ratio.format(**line) if "p50_ms_by_alone" in line else ""


def complete() -> dict[tuple[Any, ...], list[dict[int, Result]]]:
    """For each task the seeds that have all HORIZONS, each with its rows by horizon."""
    seeds: dict[tuple[Any, ...], dict[int, Result]] = defaultdict(dict)
    for row in results("served"):
        seeds[*(row[name] for name in TASK), row["seed"]][row["horizon"]] = row
    tasks: dict[tuple[Any, ...], list[dict[int, Result]]] = defaultdict(list)
    for (*task, _), rows in sorted(seeds.items()):
        if set(rows) >= set(HORIZONS):
            tasks[tuple(task)].append(rows)
    return tasks


def _mean_row(rows: Collection[Result]) -> Result:
    """The mean of each metric of the tables, for metrics that all rows have."""
    columns: Result = {each.name: [row.get(each.name) for row in rows] for each in whole("tables")}
    return {name: mean(values) for name, values in columns.items() if values and None not in values}


def _best(row: Result) -> Result:
    """The row of the closed form with the least error on the test split."""
    return dict(min(row["floors"].values(), key=lambda floor: floor["mse"]))


def _labels() -> str:
    return " / ".join(metric.label for metric in whole("tables"))


def _metrics(*rows: Result) -> str:
    """The means of the metrics, with standard deviations where there are several rows."""
    means, parts = _mean_row(rows), []
    for metric in whole("tables"):
        text = metric.text(means.get(metric.name))
        if len(rows) > 1 and metric.name in means:
            text += f" ± {metric.text(stdev(row[metric.name] for row in rows))}"
        parts.append(text)
    return " / ".join(parts) if rows else "–"


def means() -> str:
    """The served blends, as means over the four usual horizons, a table for each rule for P."""
    ruled: dict[str, list[list[object]]] = {rule: [] for rule in PUBLISHED}
    for (data, past, config, features, _), seeds in complete().items():
        rule = "P = 96 for everybody" if past == 96 else "P chosen for each set"
        served = [_mean_row(rows.values()) for rows in seeds]
        network = [_mean_row([row["network"] for row in rows.values()]) for rows in seeds]
        floors = _mean_row([_best(row) for row in seeds[0].values()])
        against = ["–", "–"]
        if features == "M" and data in PUBLISHED[rule]:
            mse, mae, name = PUBLISHED[rule][data]
            more = mean(each["mse"] for each in served) / mse - 1
            against = [f"{mse:.3f} / {mae:.3f}, {name}", f"{more:+.1%}"]
        ruled[rule].append([
            data, past, config, f"**{_metrics(*served)}**", len(seeds),
            *(f"{mean(rows[T]['mse'] for rows in seeds):.4f}" for T in HORIZONS),
            _metrics(*network), _metrics(floors), *against,
        ])  # fmt: skip
    heads = [
        "data", "P", "config", f"served, {_labels()}", "seeds", *map(str, HORIZONS),
        "its network alone", "best closed form of each", "best published", "MSE against it",
    ]  # fmt: skip
    tables = [f"**{rule}**\n\n{markdown(heads, rows)}" for rule, rows in ruled.items() if rows]
    return "\n\n".join(tables) or NONE


def prices() -> str:
    """The five markets of electricity prices, with and without future covariates."""
    tables = []
    published = zip(*((*errors, mean(errors)) for errors in TIMEXER.values()), strict=True)
    quoted = [" / ".join(f"{x:.3f}" for x in errors) for errors in published]
    for words, features in (("With what is known ahead", "MS"), ("The price alone", "S")):
        rows = [r for r in results("served") if r["data"] in MARKETS and r["features"] == features]
        first = list({row["data"]: row for row in reversed(rows)}.values())
        lines: list[list[object]] = [
            ["**served**", *_markets(rows, lambda row: row)],
            ["its network alone", *_markets(rows, lambda row: row["network"])],
            ["best closed form of each", *_markets(first, _best)],
            ["best published: TimeXer, past covariates", *quoted, ""],
        ]
        if rows:
            tables += [f"**{words}**", markdown([_labels(), *MARKETS, "mean", "seeds"], lines)]
    return "\n\n".join(tables) or NONE


def _markets(rows: list[Result], of: Callable[[Result], Result]) -> list[object]:
    """What `of` takes from each market, the mean over all, and the seeds that have all markets."""
    markets = [{row["seed"]: of(row) for row in rows if row["data"] == name} for name in MARKETS]
    common = sorted(set.intersection(*map(set, markets)))
    every = [_mean_row([market[seed] for market in markets]) for seed in common]
    return [*(_metrics(*market.values()) for market in markets), _metrics(*every), len(common)]


def counts() -> str:
    """In how many cells a paired interval excludes zero, and on which side, for the first seed."""
    served, best_part = _first_seeds("served"), _first_seeds("best-part")
    adds = {name: row["network"]["adds"] for name, row in served.items()}
    asked = {
        "served against the best closed form": {name: _best(row) for name, row in served.items()},
        "served against the same without its network": adds,
        "on the calibrating half: served against its best part": best_part,
    }
    lines = []
    for words, paired in asked.items():
        sides = {name: _side(each) for name, each in paired.items() if each}
        numbers = map([*sides.values()].count, (Verdict.BETTER, Verdict.SAME, Verdict.WORSE))
        worse = "; ".join(name for name, side in sides.items() if side == Verdict.WORSE)
        if sides:
            lines.append([words, len(sides), *numbers, worse or "nowhere"])
    return markdown(["", "cells", "better", "not measurable", "worse", "where worse"], lines)


def _first_seeds(kind: str) -> dict[str, Result]:
    """The first seed of every cell of a kind, by a label that identifies the cell."""
    rows = sorted(results(kind), key=lambda row: ([row[name] for name in CELL], -row["seed"]))
    return {"{config}, {data}, T = {horizon}".format(**row): row for row in rows}


def _side(paired: Result) -> Verdict:
    low, high = paired["paired_low"], paired["paired_high"]
    return Verdict.SAME if None in (low, high) else Verdict.of(low, high)  # None: too few windows


def attention() -> str:
    """For each machine a row per type: its time at each shape, and its memory; causal after "/"."""
    parts = []
    for document in results("attention"):
        cells = {}
        for row in document["rows"]:
            name, shape, causal = row["attn"], row["shape"], row["causal"]
            cells["SDPA", shape, causal] = known("{sdpa_milliseconds:.3g} ms", **row)
            cells["SDPA", f"memory, {shape}", causal] = known("{sdpa_memory:.3g}", **row)
            cells[name, shape, causal] = known("{ratio:.3g}", **row)
            cells[name, f"memory, {shape}", causal] = known("{memory:.3g}", **row)
        timed = dict.fromkeys(row["shape"] for row in document["rows"] if "ratio" in row)
        heads = (*timed, "memory, L=8192", "memory, L=16384")
        lines = [
            [name, *(" / ".join(cells.get((name, head, causal), "–") for causal in (False, True))
                     for head in heads)]
            for name in dict.fromkeys(name for name, *_ in cells)
        ]  # fmt: skip
        parts.append(f"{document['hardware']}:\n\n{markdown(['attention', *heads], lines)}")
    return "\n\n".join(parts) or NONE


def recall() -> str:
    """What each type can look up by construction, and its mean error by length; *: few seeds."""
    tables = study.tables(results("comparison"), "recall")
    columns = [
        {row["attn"]: f"{row['mse']:.4f}" + "*" * (not evidence.judged(row)) for row in rows}
        for rows in tables.values()
    ]
    lengths = [f"MSE, L = {data.split('-')[1]}" for data, *_ in tables]
    return markdown(
        ["attention", "what a question reaches", *lengths],
        [[name, limit.text, *(column.get(name, "–") for column in columns)]
         for name, limit in LIMITS.items()],
    )  # fmt: skip


def choices() -> str:
    """Each regime that was studied, how to recognise data that resemble it, and what was found."""
    lines, known = [], evidence.known(results("comparison"), results("compare"))
    for regime in REGIMES.values():
        own = known[regime.name]
        sets = "; ".join(own["on"])
        lines.append([f"**{regime.name}**: {regime.about}", regime.wants, own["found"], sets])
    return markdown(["regime", "your data have", "what was found", "on"], lines)


def evidence_text() -> str:
    """The contents that evidence.FILE should have."""
    return evidence.write(results("comparison"), results("compare"))


def attentions() -> str:
    """The table of mechanisms, from what each states about itself."""
    lines = []
    for name, kind in ATTENTIONS.items():
        about = kind.about
        paper = "a control" if about.year is None else f"{about.paper}, {about.year}"
        cross = "no" if issubclass(kind, SelfAttention) else "yes"
        lines.append([f"[{name}](#{name})", paper, about.cost, about.causal, cross, about.random])
    return markdown(["name", "paper", "cost", "causal", "cross", "random"], lines)


def metrics() -> str:
    """The table of metrics."""
    lines = []
    for metric in METRICS:
        where = ", ".join(each for each in get_args(Where) if each in metric.shown_in)
        lines.append([f"`{metric.name}`", metric.label, metric.unit, metric.better, where])
    return markdown(["metric", "", "unit", "better", "shown in"], lines)


def curves() -> str:
    """For each machine the picture, and the tables that the command prints."""
    form = "![Time and memory against the length](pictures/{}.png)\n\n```text\n{}\n```"
    return "\n\n".join(form.format(x["file"], bench.tables(x)) for x in results("curves")) or NONE


def studied(make: Callable[..., str], *regime: str) -> str:
    """A table of the study in docs/comparison.md."""
    return make(results("comparison"), *regime)


TABLES: dict[str, Callable[[], str]] = {
    "serving": Table("serving", {
        "model": "{model} {width}, {attn}, {past} + {horizon} x {columns}", "": "{what}",
        "at once": "{at_once}", "p50, ms": "{p50_ms:.1f}", "p99, ms": "{p99_ms:.1f}",
        "series / s": "{per_second:.1f}", "by the model alone": _by_alone,
    }, READY),
    "overload": Table("overload", {
        "connections": "{connections}", "requests": "{requests:,}",
        "sustainable / s": "{sustainable_per_second:.0f}", "asked / s": "{asked_per_second:.0f}",
        "200": lambda statuses, **_: f"{statuses['200']:,}",
        "503, all with Retry-After": "{with_retry_after:,}",
        "answered: p50, p99, most, s": lambda accepted, accepted_most_ms, **_: ", ".join(
            f"{ms / 1e3:.2f}" for ms in (accepted["p50_ms"], accepted["p99_ms"], accepted_most_ms)
        ),
        "/livez, /readyz: most, ms": "{probes_most_ms[/livez]:.0f}, {probes_most_ms[/readyz]:.0f}",
        "MiB before, peak": "{mib_before:.0f}, {mib_peak:.0f}",
    }, READY),
    "workers": Table("workers", {
        "clients": "{at_once}", "processes": "{processes}", "p50, ms": "{p50_ms:.0f}",
        "p99, ms": "{p99_ms:.0f}", "series / s": "{per_second:.1f}",
        "service, ms a series": "{service_ms:.1f}",
        "of the cores": lambda cores, **line: f"{line['row.cores'] / cores:.0%}",
    }, READY),
    "step": Table("step", {
        "network": "{config}", "P / start / T": "{past} / {start} / {horizon}",
        "batch": "{batch}", "threads": "{threads}", "step": "{step_s:.3f} s",
        "products": "{products_s:.3f} s, {products_gflop:.1f} GFLOP",
        "by products": partial(known, "{ratios[by_products]:.3f}"),
        "by reference": partial(known, "{ratios[by_reference]:.3f}"),
        "by NeuralForecast": partial(known, "{ratios[by_neuralforecast]:.3f}"),
        "peak memory": partial(known, "{peak_mib[ours]:.0f} MiB"),
        "memory by reference": partial(known, "{ratios[memory_by_reference]:.3f}"),
        "hardware": "{hardware}",
    }),
    "inference": Table("inference", {
        "model": "{model}", "batch": "{batch}", "threads": "{threads}", "ours": "{ours_ms:.2f} ms",
        "ONNX Runtime": "{onnx_ms:.2f} ms", "by ONNX Runtime": "{by_onnx:.2f}",
        "hardware": "{hardware}",
    }),
    "start": Table("start", {
        "case": "{case}", "wall": "{wall_s:.2f} s", "processor": "{cpu_s:.2f} s",
        "must / aim": lambda must, aim, of, **_:
            f"{must:g} / {aim:g} s {'wall' if of == 'wall_s' else 'processor'}",
    }, f"{SOURCE}.", lambda each: [{"case": case, **own} for case, own in each["cases"].items()]),
    "fit": Table("fit", {
        "threads": "{threads}", "steps": "{steps}", "batch": "{batch}", "`fit()`": "{fit_s:.2f} s",
        "bare loop": "{bare_s:.2f} s", "ratio": "{ratio:.3f}", "must / aim": "{must:g} / {aim:g}",
    }, f"{SOURCE}."),
    "evaluation": Table("evaluation", {
        "forecast": "{name}", "fit and weigh": partial(known, "{fit_and_weigh_s:.2f} s"),
        "validation, intervals": "{validation_s:.2f} s",
        "test windows, verdicts": "{test_s:.2f} s", "whole": "{whole:.2f} s",
    }, "The network: {alone_s:.2f} s (must {must[alone_s]:g}, aim {aim[alone_s]:g}); each of "
       "{further_parts} further parts: {part_s:.2f} s (must {must[part_s]:g}, aim "
       f"{{aim[part_s]:g}}).\n\n{SOURCE}.", lambda each: [
        {"name": "the network", "whole": each["alone_s"], **each["alone"]},
        {"name": "with every closed form", "whole": each["all_s"], **each["all"]},
    ]),
    "memory": Table("memory", {
        "recipe": "{recipe}", "attention": "{attn}", "P, T": "{past}, {horizon}",
        "columns": "{columns}", "batch": "{batch}", "estimate, MiB": "{expected_mib:,.0f}",
        "peak, MiB": "{peak_mib:,.0f}",
        "by peak": lambda expected_mib, peak_mib, **_: f"{expected_mib / peak_mib:.2f}",
        "windows/s": "{windows_per_second:.1f}", "machine": "{hardware}",
    }),
    "large": Table("large", {
        "set": "{data}", "rows x columns": "{rows:,} x {columns}",
        "code": lambda label, commit, sets, **_: ", ".join([f"{label} ({commit[:7]})", *sets]),
        "CPU-s in all": "{cpu_seconds:,.0f}",
        "minutes": lambda seconds, **_: f"{seconds / 60:.0f}", "peak, MiB": "{peak_mib:,}",
        "training, s": "{train_seconds:,.0f}", "windows/s": "{windows_per_second:.1f}",
        "test windows": "{test_windows:,}", "machine": "{hardware}",
    }),
    **{make.__name__: make for make in (attention, attentions, choices, counts, curves, means,
                                        metrics, prices, recall)},
    **{make.__name__: partial(studied, make) for make in (study.matrix, study.fronts)},
    **{f"regime_{name}": partial(studied, study.regime, name) for name in study.REGIMES},
}  # fmt: skip


def render(text: str) -> str:
    """The document with every marked table rendered again. Raises KeyError for an unknown table."""
    marked = r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)"
    return re.sub(marked, lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Render the tables of the documents.")
    parser.add_argument("--check", action="store_true", help="only report what is out of date")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="only write every measurement")
    options = parser.parse_args()
    if options.csv:
        write_csv(options.csv)
        return
    texts = {path: render(path.read_text()) for path in sorted((ROOT / "docs").glob("*.md"))}
    texts[evidence.FILE] = evidence_text()
    stale = [path for path, text in texts.items() if path.read_text() != text]
    if stale and options.check:
        sys.exit(f"out of date: {', '.join(path.name for path in stale)}; run benchmarks/render.py")
    for path in stale:
        path.write_text(texts[path])


if __name__ == "__main__":
    main()
