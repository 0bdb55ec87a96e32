"""Render the tables of the documents: figures from benchmarks/results/*.json and nothing else.

    python benchmarks/render.py           rewrite what stands between the markers
    python benchmarks/render.py --check   exit 1 if a document differs from its results

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, get_args

from forecaster.evaluate import Verdict, interval_text
from forecaster.evaluate.figures import METRICS, Cost, IntervalMetric, Metric, Where, shown, whole

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    "docs/attentions.md",
    "docs/results.md",
    "docs/recipe.md",
    "docs/evaluation.md",
    "docs/comparison.md",
    "docs/serving.md",
)
Result = dict[str, Any]
BOTH = (False, True)  # not causal and causal
GROUP = ("data", "horizon", "regime", "linear")  # of a comparison: only the attention varies
HORIZONS = (96, 192, 336, 720)
PUBLISHED = {
    "P of one's choice": {
        "ETTh1": "0.398 / 0.418, DUET",
        "ETTh2": "0.334 / 0.383, DUET",
        "ETTm1": "0.338 / 0.369, DUET",
        "ETTm2": "0.247 / 0.306, TimeBridge",
        "weather": "0.218 / 0.252, DUET",
    },
    "P = 96 for everybody": {"ETTh1": "0.432 / 0.427, CycleNet"},
}
"""The best means over HORIZONS that we know of, by the rule of the look-back, as published."""


def results(kind: str) -> list[Result]:
    """The finished measurements of one kind, in the order of their file names."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    rows = [json.loads(file.read_text()) for file in files]
    return [row for row in rows if row["kind"] == kind]


def training() -> str:
    """Every trained cell, seeds joined, the best floor beside it."""
    cells: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for row in results("training"):
        key = ("config", "data", "features", "horizon", "past", "attn")
        cells[tuple(row[name] for name in key)].append(row)
    lines = [
        f"| config | data | T | P | attention | test {_labels()} | seeds | best floor "
        f"| model − floor, 95 % | 80 % and 95 % {_interval_labels()} | online | windows "
        "| training |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (config, data, features, horizon, past, attn), rows in sorted(cells.items(), key=_order):
        name, floor = min(rows[0]["floors"].items(), key=lambda item: item[1]["mse"])
        interval = interval_text(floor["paired_low"], floor["paired_high"])
        seconds = mean(row["train_seconds"] for row in rows)
        lines.append(
            f"| {config} | {data} ({features}) | {horizon} | {past} | {attn} | {_spreads(rows)} "
            f"| {len(rows)} | {name} {_metrics(floor)} | {interval} "
            f"| {_coverage(rows, 'intervals')} | {_coverage(rows, 'online')} "
            f"| {rows[0]['windows']} | {seconds:.0f} s |"
        )
    return "\n".join(lines)


def _interval_labels() -> str:
    """Of the metrics of `_coverage` that any result knows, the first as a verb."""
    kept = [(row.get("intervals") or {}).get("80") or {} for row in results("training")]
    _, *more = shown(IntervalMetric, "tables")
    known = [metric for metric in more if any(metric.name in own for own in kept)]
    return " / ".join(["cover", *map(_head, known)])


def _coverage(rows: list[Result], form: str) -> str:
    """The metrics of a form's 80 and 95 % intervals, means over seeds, that older lists know."""
    cells = []
    for name in ("80", "95"):
        found = [(row.get(form) or {}).get(name) or {} for row in rows]
        first, *more = shown(IntervalMetric, "tables")
        metrics = [first, *(metric for metric in more if any(metric.name in own for own in found))]
        values = [[own[metric.name] for own in found if metric.name in own] for metric in metrics]
        cells.append(" / ".join(
            _as_document(metric, mean(known) if len(known) == len(rows) else None)
            for metric, known in zip(metrics, values, strict=True)
        ))  # fmt: skip
    return ", ".join(cells)


def means() -> str:
    """Means over the four usual horizons, a table for each rule of the look-back."""
    cells: dict[tuple[Any, ...], dict[int, dict[int, Result]]] = defaultdict(dict)
    for row in results("training"):
        key = tuple(row[name] for name in ("data", "past", "config", "features", "attn"))
        cells[key].setdefault(row["seed"], {})[row["horizon"]] = row
    ruled: dict[str, list[str]] = {rule: [] for rule in PUBLISHED}
    for (data, past, config, features, attn), seeds in sorted(cells.items(), key=_order):
        complete = [rows for rows in seeds.values() if set(rows) >= set(HORIZONS)]
        if not complete:
            continue
        overall = [
            {
                metric.name: mean(rows[T][metric.name] for T in HORIZONS)
                for metric in whole("tables")
                if all(metric.name in rows[T] for T in HORIZONS)
            }
            for rows in complete
        ]
        each = [f"{mean(rows[T]['mse'] for rows in complete):.4f}" for T in HORIZONS]
        floor = mean(min(f["mse"] for f in complete[0][T]["floors"].values()) for T in HORIZONS)
        rule = "P = 96 for everybody" if past == 96 else "P of one's choice"
        published = PUBLISHED[rule].get(data, "–") if features == "M" else "–"
        ruled[rule].append(
            f"| {data} ({features}) | {past} | {config} | {attn} "
            f"| {_spreads(overall)} | {len(complete)} "
            f"| {' | '.join(each)} | {floor:.4f} | {published} |"
        )
    head = (
        f"| data | P | config | attention | {_labels()}, mean of T = 96, 192, 336, 720 | seeds "
        "| 96 | 192 | 336 | 720 | best floor of each | best published |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    parts = [f"**{rule}**\n\n{head}" + "\n".join(lines) for rule, lines in ruled.items() if lines]
    return "\n\n".join(parts)


def floors() -> str:
    """The floors of every data set and horizon that was measured."""
    shown: dict[tuple[Any, ...], Result] = {}
    for row in results("training"):
        shown.setdefault((row["data"], row["horizon"], row["past"]), row)
    lines = [f"| data | T | floor | {_labels()} | chosen |", "| --- | --- | --- | --- | --- |"]
    for (data, horizon, _), row in sorted(shown.items(), key=_order):
        for name, floor in row["floors"].items():
            lines.append(f"| {data} | {horizon} | {name} | {_metrics(floor)} | {floor['chosen']} |")
    return "\n".join(dict.fromkeys(lines))  # only the linear map depends on the look-back


def missing() -> str:
    """What removing values costs."""
    lines = [
        f"| data | T | P | removed | complete, {_labels()} | some missing, {_labels()} | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in results("missing"):
        complete, holed = row["complete"], row["holed"]
        lines.append(
            f"| {row['data']} | {row['horizon']} | {row['past']} | {row['removed']:.1%} "
            f"| {_metrics(complete)} | {_metrics(holed)} "
            f"| {holed['mse'] / complete['mse']:.3f} |"
        )
    return "\n".join(lines)


def recipe() -> str:
    """The trials behind the default recipe, best first by validation."""
    lines = [
        f"| data | P | T | change | validation {_labels()} | epochs | parameters |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    where = ("data", "past", "horizon", "validation_mse")
    rows = sorted(results("recipe"), key=lambda row: tuple(row[name] for name in where))
    for row in rows:
        figures = _metrics({key.removeprefix("validation_"): row[key] for key in row})
        lines.append(
            f"| {row['data']} | {row['past']} | {row['horizon']} | {row['variant']} | {figures} "
            f"| {row['best_epoch']:.2f} | {row['parameters']:,} |"
        )
    return "\n".join(lines)


def attention() -> str:
    """For each machine a row per type: its time at each shape, and memory; causal after the /."""
    tables = [f"{each['hardware']}:\n\n{_attention(each['rows'])}" for each in results("attention")]
    return "\n\n".join(tables)


def _attention(rows: list[Result]) -> str:
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    names = list(dict.fromkeys(row["attn"] for row in rows))
    timed = [s for s in shapes if any("ratio" in row for row in rows if row["shape"] == s)]
    weighed = [s for s in ("L=8192", "L=16384") if s in shapes]

    def line(name: str, time: str, memory: str, unit: str = "") -> str:
        def pair(shape: str, key: str, unit: str = "") -> str:
            own = [r for r in rows if r["shape"] == shape and (r["attn"] == name or name == "SDPA")]
            found = [
                next((r[key] for r in own if r["causal"] is c and key in r), None) for c in BOTH
            ]
            return " / ".join("–" if x is None else f"{x:.3g}{unit}" for x in found)

        times = [pair(shape, time, unit) for shape in timed]
        return f"| {' | '.join([name, *times, *(pair(shape, memory) for shape in weighed)])} |"

    heads = ["attention", *timed, *(f"memory, {shape}" for shape in weighed)]
    return "\n".join(
        [
            f"| {' | '.join(heads)} |",
            f"|{' --- |' * len(heads)}",
            line("SDPA", "sdpa_milliseconds", "sdpa_memory", " ms"),
            *(line(name, "ratio", "memory") for name in names),
        ]
    )


def comparison() -> str:
    """For each group of each grid a row per attention; figures from the cells, verdicts beside."""
    cells = {
        (row["grid"], *(row[key] for key in (*GROUP, "attn", "seed"))): row
        for row in results("compare")
    }
    parts = []
    for document in results("comparison"):
        groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
        for row in document["rows"]:
            groups[tuple(row[key] for key in GROUP)].append(row)
        for group, rows in groups.items():
            lines = [_compared(row, [cells[document["grid"], *group, row["attn"], seed]
                             for seed in row["seeds"]]) for row in rows]  # fmt: skip
            parts.append("\n".join([_group(rows[0]), *lines]))
    return "\n\n".join(parts) or "No grid's figures are kept here yet."


def _group(row: Result) -> str:
    path = "with" if row["linear"] else "without"
    costs = [_head(metric) for metric in shown(Cost, "tables")]
    return (
        f"**{row['data']}, T = {row['horizon']}, {row['regime']}: {row['tokens']} tokens, {path} "
        f"the linear path.** {row['steps']} steps, {row['windows']} test windows, seeds "
        f"{', '.join(map(str, row['seeds']))}; best floor: {row['best_floor']} "
        f"{row['floor_mse']:.4f}.\n\n"
        f"| attention | test {_labels()} | parameters | {' | '.join(costs)} | skill "
        "| − none, 95 % | − full, 95 % |\n"
        f"|{' --- |' * (6 + len(costs))}"
    )


def _compared(row: Result, cells: list[Result]) -> str:
    error = mean(cell["mse"] for cell in cells)
    parts = [
        f"{row['attn']}{' (full)' if row['is_full'] else ''}",
        _spreads(cells),
        f"{row['budget_parameters']:,}{'' if row['within_budget'] else ' *'}",
        *(_mean(cells, metric) for metric in shown(Cost, "tables")),
        f"{1 - error / row['floor_mse']:+.1%}",
        *(_verdict(row["against"].get(name)) for name in ("none", "full")),
    ]
    return f"| {' | '.join(parts)} |"


def _verdict(against: Result | None) -> str:
    if against is None:
        return "–"
    if against["low"] is None:
        return interval_text(None, None)
    ends = against["low"], against["high"]
    words, interval = Verdict.words(*ends), interval_text(*ends)
    return f"{words} {interval}" if Verdict.of(*ends) is Verdict.SAME else f"**{words}** {interval}"


def serving() -> str:
    """Servers beside the model alone, all in one run."""
    lines = [
        "| model | | at once | p50, ms | p99, ms | series / s | by the model alone |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for document in results("serving"):
        model = (
            f"{document['model']} {document['width']}, {document['attn']}, "
            f"{document['past']} + {document['horizon']} x {document['columns']}"
        )
        lines += [
            f"| {model} | {row['what']} | {row['at_once']} | {row['p50_ms']:.1f} "
            f"| {row['p99_ms']:.1f} | {row['per_second']:.1f} | {_by_alone(row)} |"
            for row in document["rows"]
        ]
    return "\n".join([*lines, *map(_made_by, results("serving"))])


def _by_alone(row: Result) -> str:
    if "p50_ms_by_alone" not in row:
        return ""
    if row["at_once"] == 1:
        return f"p50 x {row['p50_ms_by_alone']:.2f}"
    return f"rate x {row['per_second_by_alone']:.2f}"


def overload() -> str:
    """Requests at twice the rate that can be sustained."""
    lines = [
        "| requests | sustainable / s | asked / s | 200 | 503, all with Retry-After | others "
        "| answered: p50, p99, most, s | /livez: p50, most, ms | usual again after, s "
        "| MiB before, peak, after |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in results("overload"):
        counts = row["statuses"]
        refused = counts.get("503", 0)
        assert row["with_retry_after"] == refused
        took = (row["accepted"]["p50_ms"], row["accepted"]["p99_ms"], row["accepted_most_ms"])
        lines.append(
            f"| {row['requests']:,} | {row['sustainable_per_second']:.0f} "
            f"| {row['asked_per_second']:.0f} | {counts['200']:,} | {refused:,} "
            f"| {sum(counts.values()) - counts['200'] - refused} "
            f"| {', '.join(f'{each / 1e3:.2f}' for each in took)} "
            f"| {row['livez']['p50_ms']:.1f}, {row['livez_most_ms']:.1f} "
            f"| {row['recovered_seconds']:.1f} "
            f"| {row['mib_before']:.0f}, {row['mib_peak']:.0f}, {row['mib_after']:.0f} |"
        )
    return "\n".join([*lines, *map(_made_by, results("overload"))])


def _made_by(row: Result) -> str:
    return (
        f"\n`{row['command']}`: {row['hardware']}, commit {row['commit'][:9]}; the service was "
        f"ready {row['ready_seconds']:.1f} s after its start."
    )


def attentions() -> str:
    """What each mechanism says of itself."""
    from forecaster.attention import ATTENTIONS
    from forecaster.attention.base import SelfAttention

    lines = [
        "| name | paper | cost | causal | cross | random |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, kind in ATTENTIONS.items():
        about = kind.about
        paper = "a control" if about.year is None else f"{about.paper}, {about.year}"
        cross = "no" if issubclass(kind, SelfAttention) else "yes"
        lines.append(
            f"| [{name}](#{name}) | {paper} | {about.cost} | {about.causal} | {cross} "
            f"| {about.random} |"
        )
    return "\n".join(lines)


def metrics() -> str:
    """What a forecast is measured by."""
    lines = ["| metric | | unit | better | shown in |", "| --- | --- | --- | --- | --- |"]
    for metric in METRICS:
        where = ", ".join(each for each in get_args(Where) if each in metric.shown_in)
        lines.append(
            f"| `{metric.name}` | {metric.label} | {metric.unit} | {metric.better} | {where} |"
        )
    return "\n".join(lines)


def curves() -> str:
    """For each machine the picture and the tables that the command prints."""
    from forecaster import bench

    parts = []
    for file in sorted((ROOT / "benchmarks" / "results").glob("curves-*.json")):
        document = json.loads(file.read_text())
        parts += [f"![](pictures/{file.stem}.png)", f"```text\n{bench.tables(document)}\n```"]
    return "\n\n".join(parts) or "No machine's figures are kept here yet."


def commands() -> str:
    """The command behind each cell, with hardware and commit."""
    lines = [
        f"| `{row['command']}` | {row['hardware']} | {row['commit'][:9]} |"
        for kind in ("training", "attention", "curves", "comparison")
        for row in results(kind)
    ]
    return "\n".join(["| command | hardware | commit |", "| --- | --- | --- |", *lines])


TABLES: dict[str, Callable[[], str]] = {
    "attentions": attentions,
    "curves": curves,
    "metrics": metrics,
    "training": training,
    "means": means,
    "floors": floors,
    "missing": missing,
    "recipe": recipe,
    "attention": attention,
    "comparison": comparison,
    "serving": serving,
    "overload": overload,
    "commands": commands,
}


def render(text: str) -> str:
    """The document with every marked table made anew. Raises KeyError for an unknown table."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- begin {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->", table, text, flags=re.DOTALL)


def main() -> None:
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text()
        if render(text) != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(render(text))
    if stale and "--check" in sys.argv:
        sys.exit(f"not as the results say: {', '.join(stale)}; run python benchmarks/render.py")


def _order(item: tuple[tuple[Any, ...], Any]) -> tuple[str, ...]:
    return tuple(f"{part:>8}" if isinstance(part, int) else str(part) for part in item[0])


def _labels() -> str:
    return " / ".join(metric.label for metric in whole("tables"))


def _metrics(row: Result) -> str:
    """The metrics of one forecast."""
    return " / ".join(metric.text(row.get(metric.name)) for metric in whole("tables"))


def _spreads(rows: list[Result]) -> str:
    """Their means, and standard deviations where there are several rows."""
    return " / ".join(_spread(rows, metric) for metric in whole("tables"))


def _spread(rows: list[Result], metric: Metric) -> str:
    values = [row[metric.name] for row in rows if row.get(metric.name) is not None]
    if len(values) < len(rows):
        return metric.missing
    spread = f" ± {metric.text(stdev(values))}" if len(values) > 1 else ""
    return metric.text(mean(values)) + spread


def _mean(rows: list[Result], metric: Metric) -> str:
    """The mean of what is known."""
    values = [row[metric.name] for row in rows if row.get(metric.name) is not None]
    return _as_document(metric, mean(values) if values else None)


def _head(metric: Metric) -> str:
    return metric.document[0] if metric.document else metric.label


def _as_document(metric: Metric, value: float | None) -> str:
    form = metric.document[1] if metric.document else metric.form
    return metric.missing if value is None else form.format(value)


if __name__ == "__main__":
    main()
