"""Render the tables of the documents, with figures only from benchmarks/results/*.json.

    python benchmarks/render.py               rewrite the text between the markers
    python benchmarks/render.py --check       exit 1 if a document differs from its results
    python benchmarks/render.py --csv FOLDER  write every measurement as data: FOLDER/KIND.csv

A table is between `<!-- begin NAME -->` and `<!-- end NAME -->` in README.md or a page of docs/.
The script also writes what `forecaster advise` knows of the comparisons (evidence.py).
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, get_args

import evidence
import numpy as np
import pandas as pd
import study
import yaml

from forecaster.attention import ATTENTIONS
from forecaster.attention.base import SelfAttention
from forecaster.evaluate.figures import METRICS, Where, whole
from forecaster.evaluate.metrics import Verdict
from forecaster.study.compare.regimes import REGIMES

ROOT = Path(__file__).resolve().parent.parent
Result = dict[str, Any]
HORIZONS = (96, 192, 336, 720)
PUBLISHED = {
    ("ETTh1", False): (0.388, "LightGTS"),
    ("ETTh2", False): (0.333, "VisionTS"),
    ("ETTm1", False): (0.327, "LightGTS"),
    ("ETTm2", False): (0.247, "TimeBridge"),
    ("weather", False): (0.208, "LightGTS"),
    ("ETTh1", True): (0.432, "CycleNet"),
    ("ETTm1", True): (0.374, "OLinear"),
    ("weather", True): (0.237, "OLinear"),
}
"""The lowest published means of the MSE over HORIZONS that we know of, by whether P is 96."""
MARKETS = ("epf-NP", "epf-PJM", "epf-BE", "epf-FR", "epf-DE")
OF_MARKETS = {
    "MS": (
        "published: GCGNet, what is known ahead",
        ((0.197, 0.233), (0.058, 0.148), (0.323, 0.227), (0.332, 0.179), (0.282, 0.328)),
    ),
    "S": (
        "published: TimeXer, past covariates",
        ((0.236, 0.268), (0.093, 0.192), (0.379, 0.243), (0.385, 0.208), (0.440, 0.415)),
    ),
}
"""The lowest published errors, MSE and MAE, for each of MARKETS that we know of."""
FEV_NAIVE = {
    "epf-NP": (1.7613, 1.5298), "epf-PJM": (0.5812, 0.5153), "epf-BE": (1.0271, 1.1503),
    "epf-FR": (0.8501, 1.2455), "epf-DE": (1.7086, 1.3877),
    "ETT, hours": (1.3227, 1.2069), "ETT, quarter-hours": (0.9169, 0.7625),
}  # fmt: skip
FEV: dict[tuple[str, float, float], tuple[float, ...]] = {
    ("TiRex-2, pretrained", 0.600, 0.492): (0.796, 0.470, 0.666, 0.434, 0.610, 1.102, 0.710),
    ("PatchTST, trained", 0.605, 0.499): (0.806, 0.465, 0.692, 0.421, 0.573, 1.199, 0.734),
    ("Chronos-2, pretrained", 0.605, 0.497): (0.850, 0.472, 0.647, 0.450, 0.604, 1.126, 0.695),
    ("TabPFN-TS-3, pretrained", 0.616, 0.504): (0.783, 0.472, 0.681, 0.474, 0.561, 1.174, 0.794),
    ("TFT, trained", 0.655, 0.537): (0.859, 0.428, 0.811, 0.493, 0.656, 1.201, 0.826),
    ("CatBoost, trained", 0.790, 0.819): (1.203, 0.597, 0.745, 0.579, 1.092, 1.273, 0.824),
    ("LightGBM, trained", 0.811, 0.840): (1.302, 0.598, 0.807, 0.554, 1.096, 1.300, 0.861),
}
"""The MASE and SQL of the seasonal naive forecast on seven tasks, and those of others, relative to
it, with their MASE in each task: fev-bench's published results of 2026-08-19."""
CELL = ("config", "data", "features", "horizon", "past", "attn")
TASK = ("data", "past", "config", "features", "attn")  # a cell at any horizon
MEASURED: dict[str, list[Result]] = yaml.safe_load(
    (ROOT / "benchmarks" / "measured.yaml").read_text()
)
NONE = "No figures are kept here yet."


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
    """The served blends, as means over the four usual horizons."""
    lines: list[list[object]] = []
    for (data, past, _, features, _), seeds in complete().items():
        served = [_mean_row(rows.values()) for rows in seeds]
        network = [_mean_row([row["network"] for row in rows.values()]) for rows in seeds]
        floors = _mean_row([_best(row) for row in seeds[0].values()])
        against = ["–", "–"]
        if features == "M" and (data, past == 96) in PUBLISHED:
            mse, name = PUBLISHED[data, past == 96]
            more = mean(each["mse"] for each in served) / mse - 1
            against = [f"{mse:.3f}, {name}", f"{more:+.1%}"]
        figures = (_metrics(*network), _metrics(floors), *against)
        lines.append([data, past, f"**{_metrics(*served)}**", len(seeds), *figures])
    lines.sort(key=lambda line: line[1] == 96)
    heads = [
        *("data", "P", f"served, {_labels()}", "seeds", "its network alone"),
        *("best closed form of each", "published MSE", "MSE against it"),
    ]
    return markdown(heads, lines)


def prices() -> str:
    """The five markets of electricity prices, with and without future covariates."""
    tables = []
    for words, features in (("With what is known ahead", "MS"), ("The price alone", "S")):
        rows = [r for r in results("served") if r["data"] in MARKETS and r["features"] == features]
        first = list({row["data"]: row for row in reversed(rows)}.values())
        who, errors = OF_MARKETS[features]
        quoted = [*errors, tuple(map(mean, zip(*errors, strict=True)))]
        lines: list[list[object]] = [
            ["**served**", *_markets(rows, lambda row: row)],
            ["its network alone", *_markets(rows, lambda row: row["network"])],
            ["best closed form of each", *_markets(first, _best)],
            [who, *(f"{mse:.3f} / {mae:.3f}" for mse, mae in quoted), ""],
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
    served = _first_seeds("served")
    adds = {name: row["network"]["adds"] for name, row in served.items()}
    asked = {
        "served against the best closed form": {name: _best(row) for name, row in served.items()},
        "served against the same without its network": adds,
    }
    lines = []
    for words, paired in asked.items():
        sides = {name: _side(each) for name, each in paired.items() if each}
        numbers = map([*sides.values()].count, (Verdict.BETTER, Verdict.SAME, Verdict.WORSE))
        worse = "; ".join(name for name, side in sides.items() if side == Verdict.WORSE)
        if sides:
            lines.append([words, len(sides), *numbers, worse or "nowhere"])
    return markdown(["", "cells", "better", "not measurable", "worse", "where worse"], lines)


def suite() -> str:
    """Ours beside what a user would pick instead, as geometric means over the tasks of suite.py."""
    return _suite(slow=False)


def suite_slow() -> str:
    """The same over the tasks with steps of a week or more."""
    return _suite(slow=True)


def _suite(*, slow: bool) -> str:
    lines, ratios = [], _ratios("mase", slow=slow)
    best = ratios.min(axis=1)
    for method in ratios.mean().sort_values().index:
        own, wide = ratios[method], _ratios("pinball", slow=slow).get(method)
        lines.append([
            f"**{method}**" if method == "ours" else method,
            f"{_geometric(own):.3f}",
            "–" if wide is None else f"{_geometric(wide):.3f}",
            f"{(own <= best).sum()} of {len(own)}",
            f"{(own > 1.05 * best).sum()}",
        ])  # fmt: skip
    heads = ["", "error", "pinball loss", "best in", "5 % worse than the best in"]
    return markdown(heads, lines)


def suite_by_task() -> str:
    """The errors of each task, over those of the seasonal naive forecast."""
    ratios = _ratios("mase", complete=False)
    lines = [
        [task, *("–" if np.isnan(ratio) else f"{ratio:.3f}" for ratio in row)]
        for task, row in ratios.iterrows()
    ]
    return markdown(["task", *ratios], lines)


def fev() -> str:
    """Ours beside the pretrained and trained models of fev-bench, on seven of its tasks."""
    rows = {row["task"]: row for row in results("fev")}
    if set(rows) != set(FEV_NAIVE):
        return NONE
    errors = [rows[task]["mase"] for task in FEV_NAIVE]
    ratios = [
        _geometric(pd.Series([rows[task][of] / naive[place] for task, naive in FEV_NAIVE.items()]))
        for place, of in enumerate(("mase", "sql"))
    ]
    scores = [("**ours**, trained once", *ratios, *errors), *((*k, *v) for k, v in FEV.items())]
    lines = [
        [name, *(f"{score:.3f}" for score in of)]
        for name, *of in sorted(scores, key=lambda line: line[1])
    ]
    return markdown(["", "MASE", "SQL", *FEV_NAIVE], lines)


def totals() -> str:
    """What share of later totals their 80 % bands held."""
    lines = []
    for row in results("totals"):
        held = [row["steps"], *(row["total"][key] for key in ("held", "added", "apart"))]
        held += [row.get(part, {}).get("held") for part in ("season", "all")]
        cells = ["" if share is None else f"{100 * share:.0f}" for share in held]
        scores = [f"{row[score]:.2f}" for score in ("energy", "variogram")]
        lines.append([row["task"], f"{row['independent']:.0f}", *cells, *scores])
    heads = ["held, %", "apart", "each step", "total", "added up", "independent", "a season",
             "all series", "energy", "variogram"]  # fmt: skip
    return markdown(heads, lines)


def verdicts() -> str:
    """What runs said of their models, and how it stood on the rows that came later."""
    rows, lines = results("verdicts"), []
    for key, words in (("outcome", "corrected for the choice"), ("chosen_there", "as chosen")):
        cells = []
        for outcome in (Verdict.BETTER, Verdict.WORSE):
            said = [row["later_ratio"] for row in rows if row[key] == outcome]
            true = sum((ratio < 1) == (outcome is Verdict.BETTER) for ratio in said)
            cells.append(f"{len(said)}, true later of {true}")
        neither = sum(row[key] == Verdict.SAME for row in rows)
        lines.append([f"verdicts, {words}", *cells, neither])
    return markdown(["", "better", "worse", "neither"], lines) + "\n\n" + _bands(rows)


def _bands(rows: Sequence[Result]) -> str:
    """How far the 80 % bands of verdicts.py are from 80 %, in points."""
    lines = []
    for key, words in (
        ("covered", "judged, on the test split"),
        ("later_judged", "judged, on later rows"),
        ("later_served", "served, on later rows"),
    ):
        held = [100 * row[key] for row in rows if row[key] is not None]
        off = [abs(each - 80) for each in held]
        lines.append([f"80 % band {words}", len(held), f"{np.mean(off):.1f}",
                      f"{min(held):.0f} to {max(held):.0f} %"])  # fmt: skip
    return markdown(["", "sets", "mean distance from 80 %, points", "held"], lines)


def _ratios(metric: str, *, slow: bool = False, complete: bool = True) -> pd.DataFrame:
    """A metric of suite.py by task and method, over that of the seasonal naive forecast; methods
    that lack a task are left out if `complete`."""
    rows = pd.DataFrame(results("suite")).dropna(subset=[metric])
    rows = rows[~rows["freq"].isin(("h", "D"))] if slow else rows
    table = rows.pivot(index="task", columns="method", values=metric)
    table = table.dropna(axis=1) if complete else table
    return table.div(table["seasonal naive"], axis=0)


def _geometric(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean()))


def _first_seeds(kind: str) -> dict[str, Result]:
    """The first seed of every cell of a kind, by a label that identifies the cell."""
    rows = sorted(results(kind), key=lambda row: ([row[name] for name in CELL], -row["seed"]))
    return {"{config}, {data}, T = {horizon}".format(**row): row for row in rows}


def _side(paired: Result) -> Verdict:
    low, high = paired["paired_low"], paired["paired_high"]
    return Verdict.SAME if None in (low, high) else Verdict.of(low, high)  # None: too few windows


def choices() -> str:
    """Each regime that was studied, how to recognise data that resemble it, and what was found."""
    lines, known = [], evidence.known(results("comparison"), results("compare"))
    for regime in REGIMES.values():
        own = known[regime.name]
        sets = "; ".join(own["on"])
        lines.append([f"**{regime.name}**: {regime.about}", regime.wants, own["found"], sets])
    return markdown(["regime", "your data have", "what was found", "on"], lines)


def matrix() -> str:
    """In how many tables of the study each type is better or worse than the controls."""
    return study.matrix(results("comparison"))


def over_sets() -> str:
    """By how much each type errs more than none where inputs are known, over all sets."""
    return study.over_sets(results("comparison"))


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


def gpu() -> str:
    """Each attention on a GPU: its time over that of torch's fused kernel by steps, and that of a
    training step as it is and by CUDA graphs."""
    [run] = results("on_gpu")
    found = {row["item"]: row for name in ("cores", "graphs") for row in run["parts"][name]}
    names = list(dict.fromkeys(row["item"].split()[2] for row in run["parts"]["cores"]))
    cases = [[f"{n} {causal}" for n in (96, 336, 2048, 8192)] for causal in (False, True)]

    def shown(between: str, values: Sequence[float]) -> str:
        texts = [f"{x:.{1 if x < 10 else 0}f}" if x > 0 else "–" for x in values]
        return between.join(texts) if any(x > 0 for x in values) else "–"

    def get(item: str, figure: str) -> float:
        return float(found.get(item, {}).get(figure, 0))

    lines = [["SDPA, ms"], *([name] for name in names)]
    for own in cases:
        medians = [median(get(f"{case} {name}", "SDPA ms") for name in names) for case in own]
        lines[0].append(shown("/", medians))
        for line, name in zip(lines[1:], names, strict=True):
            line.append(shown("/", [get(f"{case} {name}", "ratio") for case in own]))
    for network in ("default", "informer"):
        lines[0].append("")
        for line, name in zip(lines[1:], names, strict=True):
            step = [get(f"{network} {name}", figure) for figure in ("ms", "graphs ms")]
            line.append(shown(" → ", step))
    heads = ["", "both directions", "causal", "step, default recipe, ms", "Informer, ms"]
    return markdown(heads, lines) + "\n\n`{command}`, {hardware}, {date}".format(**run)


def measured(lines: Sequence[Result]) -> str:
    """A table of MEASURED: for each line what was measured, its figure, and how to repeat it."""
    every = [row for measurement in results() for row in split(measurement)]
    table = []
    for line in lines:
        wanted = line["of"].items()
        for row in (each for each in every if wanted <= each.items()):
            source = "`{command}`, {hardware}, {commit:.9}".format(**row)
            table.append([line["what"], line["figure"].format(**row), source])
    return markdown(["what", "figure", "command, hardware, commit"], table)


TABLES: dict[str, Callable[[], str]] = {
    make.__name__: make
    for make in (
        attentions,
        choices,
        counts,
        gpu,
        matrix,
        over_sets,
        means,
        metrics,
        prices,
        suite,
        suite_slow,
        suite_by_task,
        fev,
        totals,
        verdicts,
    )
} | {name: partial(measured, lines) for name, lines in MEASURED.items()}


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
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = {path: render(path.read_text()) for path in pages}
    texts[evidence.FILE] = evidence_text()
    stale = [path for path, text in texts.items() if path.read_text() != text]
    if stale and options.check:
        sys.exit(f"out of date: {', '.join(path.name for path in stale)}; run benchmarks/render.py")
    for path in stale:
        path.write_text(texts[path])


if __name__ == "__main__":
    main()
