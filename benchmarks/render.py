"""Render the tables of the documents, with figures only from benchmarks/results/*.json.

    python benchmarks/render.py           rewrite the text between the markers
    python benchmarks/render.py --check   exit 1 if a document differs from its results

A table is between `<!-- begin NAME -->` and `<!-- end NAME -->`. The script first writes what
`forecaster advise` knows of the comparisons to a file of the package
(forecaster/compare/evidence.py).
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from math import log2
from pathlib import Path
from statistics import geometric_mean, mean, stdev
from typing import Any, get_args

import study

from forecaster.advise import data as adviser
from forecaster.compare import evidence, table
from forecaster.compare.recall import LIMITS
from forecaster.compare.regimes import REGIMES
from forecaster.evaluate import Verdict, interval_text
from forecaster.evaluate.figures import METRICS, Cost, IntervalMetric, Metric, Where, shown, whole

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "docs/attentions.md",
    "docs/results.md",
    "docs/recipe.md",
    "docs/evaluation.md",
    "docs/intervals.md",
    "docs/comparison.md",
    "docs/comparison-tables.md",
    "docs/choosing.md",
    "docs/serving.md",
    "docs/performance.md",
)
Result = dict[str, Any]
BOTH = (False, True)  # not causal and causal
GROUP = ("data", "horizon", "regime", "linear")  # of a comparison: only the attention varies
HORIZONS = (96, 192, 336, 720)
PUBLISHED = {
    "P chosen for each set": {
        "ETTh1": (0.390, 0.414, "VisionTS"),
        "ETTh2": (0.333, 0.375, "VisionTS"),
        "ETTm1": (0.338, 0.369, "DUET"),
        "ETTm2": (0.247, 0.306, "TimeBridge"),
        "weather": (0.218, 0.252, "DUET"),
    },
    "P = 96 for everybody": {
        "ETTh1": (0.432, 0.427, "CycleNet"),
        "ETTm1": (0.374, 0.377, "OLinear"),
        "weather": (0.237, 0.260, "OLinear"),
    },
}
"""The best published means over HORIZONS that we know of, by the rule for the look-back."""
MARKETS = ("epf-NP", "epf-PJM", "epf-BE", "epf-FR", "epf-DE")
TIMEXER = {"mse": (0.236, 0.093, 0.379, 0.385, 0.440), "mae": (0.268, 0.192, 0.243, 0.208, 0.415)}
"""The best published errors for the markets that we know of (Wang et al., NeurIPS 2024)."""
CORES = [
    ("diff", "L=2048", False, 1.9), ("diff", "L=2048", True, 2.1),
    ("diff", "B=32 L=336", False, 1.6), ("aft-full", "L=2048 H=1 E=512", True, 1.2),
    ("flash", "B=32 L=336", False, 1.0), ("flash", "B=32 L=96", False, 1.5),
    ("gau", "L=2048", True, 1.15), ("gau", "B=32 L=336", False, 1.0),
    ("gau", "B=32 L=96", False, 0.8), ("lsh", "B=32 L=336", False, 1.5),
    ("topk", "B=32 L=96", False, 1.5), ("fastformer", "B=32 L=336", False, 0.25),
    ("single", "L=2048 H=1 E=512", True, 0.9),
]  # fmt: skip
"""Limits for the time of a function divided by SDPA's, for cases that once exceeded them; two
threads."""
CELL = ("config", "data", "features", "horizon", "past", "attn")
TASK = ("data", "past", "config", "features", "attn")  # a cell at any horizon
NONE = "No figures are kept here yet."


def results(kind: str) -> list[Result]:
    """The finished measurements of one kind, in the order of their file names."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    rows = [json.loads(file.read_text()) for file in files]
    return [row for row in rows if row["kind"] == kind]


def training() -> str:
    """Every network that was trained and evaluated alone, seeds joined, beside the best floor."""
    lines = [
        f"| config | data | T | P | attention | test {_labels()} | seeds | best floor "
        "| model − floor, 95 % | 80 % and 95 % cover | online | windows | training |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (config, data, features, horizon, past, attn), rows in joined("training", CELL).items():
        name, floor = _best(rows[0])
        seconds = mean(row["train_seconds"] for row in rows)
        lines.append(
            f"| {config} | {data} ({features}) | {horizon} | {past} | {attn} | {_spreads(rows)} "
            f"| {len(rows)} | {name} {_metrics(floor)} | {_interval(floor)} "
            f"| {_coverage(rows, 'intervals')} | {_coverage(rows, 'online')} "
            f"| {rows[0]['windows']} | {seconds:.0f} s |"
        )
    return "\n".join(lines)


def _coverage(rows: list[Result], form: str) -> str:
    """The metrics of a form's 80 and 95 % intervals, as means over seeds.

    A metric that is newer than the measurement is left out.
    """
    cells = []
    for name in ("80", "95"):
        found = [(row.get(form) or {}).get(name) for row in rows]
        if not all(found):
            cells.append("–")
            continue
        cells += [
            _mean(found, metric)
            for metric in shown(IntervalMetric, "tables")
            if all(metric.name in each for each in found)
        ]
    return ", ".join(cells)


def joined(kind: str, by: tuple[str, ...]) -> dict[tuple[Any, ...], list[Result]]:
    """The measurements of one kind in order, grouped by their values of `by`."""
    found: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for row in results(kind):
        found[tuple(row[name] for name in by)].append(row)
    return dict(sorted(found.items(), key=_order))


def over_horizons(rows: list[Result]) -> list[dict[int, Result]]:
    """For each seed that has all HORIZONS, its rows by horizon."""
    seeds: dict[int, dict[int, Result]] = defaultdict(dict)
    for row in rows:
        seeds[row["seed"]][row["horizon"]] = row
    return [each for each in seeds.values() if set(each) >= set(HORIZONS)]


def means() -> str:
    """The served blends, as means over the four usual horizons, a table for each rule for P."""
    before = {key: over_horizons(rows) for key, rows in joined("training", TASK).items()}
    ruled: dict[str, list[str]] = {rule: [] for rule in PUBLISHED}
    for key, rows in joined("served", TASK).items():
        if not (complete := over_horizons(rows)):
            continue
        data, past, config, features, _ = key
        rule = "P = 96 for everybody" if past == 96 else "P chosen for each set"
        each = [f"{mean(seed[T]['mse'] for seed in complete):.4f}" for T in HORIZONS]
        served = [_mean_row(seed.values()) for seed in complete]
        parts = _mean_row(_best(row)[1] for row in complete[0].values())
        network = [_mean_row(row["network"] for row in seed.values()) for seed in complete]
        old = [_mean_row(seed.values()) for seed in before.get(key, [])]
        quoted = PUBLISHED[rule].get(data) if features == "M" else None
        ruled[rule].append(
            f"| {data} | {past} | {config} | **{_spreads(served)}** | {len(complete)} "
            f"| {' | '.join(each)} | {_spreads(network)} | {_spreads(old) if old else '–'} "
            f"| {_metrics(parts)} | {_against(served, quoted)} |"
        )
    head = (
        f"| data | P | config | served, {_labels()} | seeds | {' | '.join(map(str, HORIZONS))} "
        "| its network alone | network of 0.1.0 | best closed form of each | best published "
        "| MSE against it |\n"
        f"|{' --- |' * 13}"
    )
    tables = [f"**{rule}**\n\n" + "\n".join([head, *lines])
              for rule, lines in ruled.items() if lines]  # fmt: skip
    return "\n\n".join(tables) or NONE


def _mean_row(rows: Iterable[Result]) -> dict[str, float]:
    """The mean of each metric of the tables, for metrics that all rows have."""
    kept = list(rows)
    return {
        metric.name: mean(row[metric.name] for row in kept)
        for metric in whole("tables")
        if all(row.get(metric.name) is not None for row in kept)
    }


def _best(row: Result) -> tuple[str, Result]:
    """The name and the row of the closed form with the least error on the test split."""
    name = min(row["floors"], key=lambda each: row["floors"][each]["mse"])
    return name, row["floors"][name]


def _against(served: list[Result], quoted: tuple[float, float, str] | None) -> str:
    """A published figure, and the relative difference of the mean MSE to it."""
    if quoted is None:
        return "– | –"
    mse, mae, name = quoted
    return f"{mse:.3f} / {mae:.3f}, {name} | {mean(each['mse'] for each in served) / mse - 1:+.1%}"


def prices() -> str:
    """The five markets of electricity prices, with and without future covariates."""
    tables = []
    for words, features in (("With what is known ahead", "MS"), ("The price alone", "S")):
        found = joined("served", ("config", "features", "data"))
        rows = {key[2]: own for key, own in found.items()
                if key[2] in MARKETS and key[1] == features}  # fmt: skip
        if not rows:
            continue
        first = {market: own[:1] for market, own in rows.items()}
        lines = [
            _market_line("**served**", rows, lambda row: row),
            _market_line("its network alone", rows, lambda row: row["network"]),
            _market_line("best closed form of each", first, lambda row: _best(row)[1]),
            _quoted_line("best published: TimeXer, past covariates", TIMEXER),
        ]
        head = f"| {_labels()} | {' | '.join(MARKETS)} | mean | seeds |\n|{' --- |' * 8}"
        tables.append(f"**{words}**\n\n" + "\n".join([head, *lines]))
    return "\n\n".join(tables) or NONE


def _market_line(
    name: str, markets: dict[str, list[Result]], of: Callable[[Result], Result]
) -> str:
    """A line with what `of` takes from each row; means are over the seeds that every market has."""
    cells = [_spreads([of(row) for row in markets.get(each, [])]) if each in markets else "–"
             for each in MARKETS]  # fmt: skip
    seeds = [{row["seed"]: of(row) for row in markets.get(each, [])} for each in MARKETS]
    common = sorted(set.intersection(*map(set, seeds)))
    whole = _spreads([_mean_row(own[seed] for own in seeds) for seed in common]) if common else "–"
    return f"| {name} | {' | '.join(cells)} | {whole} | {len(common)} |"


def _quoted_line(name: str, quoted: dict[str, tuple[float, ...]]) -> str:
    """A line of published figures, by market, with their mean."""
    rows = [*zip(*quoted.values(), strict=True), tuple(map(mean, quoted.values()))]
    return f"| {name} | {' | '.join(' / '.join(f'{x:.3f}' for x in row) for row in rows)} | |"


def cells() -> str:
    """Every measured cell, seeds joined; intervals are those of the first seed."""
    heads = ", ".join(_head(metric) for metric in shown(IntervalMetric, "tables"))
    lines = [
        f"| config | data | T | P | served, {_labels()} | seeds | its network alone | its share "
        "| it adds, 95 % | best closed form | served − it, 95 % "
        f"| of 80 % and 95 %: {heads} | windows | training |",
        f"|{' --- |' * 14}",
    ]
    for (config, data, features, horizon, past, _), rows in joined("served", CELL).items():
        name, best = _best(rows[0])
        network = [row["network"] for row in rows]
        adds = network[0]["adds"]
        lines.append(
            f"| {config} | {data} ({features}) | {horizon} | {past} | {_spreads(rows)} "
            f"| {len(rows)} | {_spreads(network)} | {mean(n['weight'] for n in network):.0%} "
            f"| {_interval(adds) if adds else '–'} | {name} {_metrics(best)} | {_interval(best)} "
            f"| {_coverage(rows, 'intervals')} | {rows[0]['windows']} "
            f"| {mean(row['train_seconds'] for row in rows):.0f} s |"
        )
    return "\n".join(lines) if len(lines) > 2 else NONE


def _interval(paired: Result) -> str:
    return interval_text(paired["paired_low"], paired["paired_high"])


def counts() -> str:
    """In how many cells a paired interval excludes zero, and on which side, for the first seed."""
    cells = _first_seeds("served")
    adds = {name: row["network"]["adds"] for name, row in cells.items()}
    asked = {
        "served against the best closed form": {n: _best(row)[1] for n, row in cells.items()},
        "served against the same without its network": {
            n: each for n, each in adds.items() if each
        },
        "on the calibrating half: served against its best part": _first_seeds("best-part"),
    }
    lines = ["| | cells | better | not measurable | worse | where worse |", f"|{' --- |' * 6}"]
    for words, paired in asked.items():
        sides: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
        for name, each in paired.items():
            low, high = each["paired_low"], each["paired_high"]
            known = low is not None and high is not None  # else too few windows
            sides[Verdict.of(low, high) if known else Verdict.SAME].append(name)
        worse = sides[Verdict.WORSE]
        numbers = (len(sides[v]) for v in (Verdict.BETTER, Verdict.SAME, Verdict.WORSE))
        if paired:
            lines.append(
                f"| {words} | {len(paired)} | {' | '.join(map(str, numbers))} "
                f"| {'; '.join(worse) or 'nowhere'} |"
            )
    return "\n".join(lines) if lines[2:] else NONE


def _first_seeds(kind: str) -> dict[str, Result]:
    """The first seed of every cell of a kind, by a label that identifies the cell."""
    found = joined(kind, CELL).items()
    return {f"{key[0]}, {key[1]}, T = {key[3]}": rows[0] for key, rows in found}


def best_part() -> str:
    """A row for each cell and seed: the served blend and its best part on the calibrating half."""
    lines = [
        "| config | data | T | P | seed | served, MSE | best part, MSE | served − it, 95 % "
        "| windows |",
        f"|{' --- |' * 9}",
    ]
    for (config, data, features, horizon, past, _), rows in joined("best-part", CELL).items():
        lines += [
            f"| {config} | {data} ({features}) | {horizon} | {past} | {row['seed']} "
            f"| {row['mse']:.4f} | {row['best']} {row['parts'][row['best']]['mse']:.4f} "
            f"| {_interval(row)} | {row['windows']} |"
            for row in rows
        ]
    return "\n".join(lines) if lines[2:] else NONE


def parts() -> str:
    """The parts of every cell: the MSE of each alone, and its share in the served blend."""
    found = joined("served", CELL)
    kinds = list(dict.fromkeys(
        _kind(name) for rows in found.values() for name in (*rows[0]["floors"], "network")
    ))  # fmt: skip
    lines = [f"| config | T | {' | '.join(kinds)} |", f"|{' --- |' * (2 + len(kinds))}"]
    for (config, data, _, horizon, *_), rows in found.items():
        shown: dict[str, list[str]] = defaultdict(list)
        for name in (*rows[0]["floors"], "network"):
            own = [row["network"] if name == "network" else row["floors"][name] for row in rows]
            share = mean(each["weight"] for each in own)
            text = f"{mean(each['mse'] for each in own):.4f}" + (f", {share:.0%}" if share else "")
            shown[_kind(name)].append(f"**{text}**" if share else text)
        label = config if data in config else f"{config}, {data}"
        columns = " | ".join("<br>".join(shown[kind]) or "–" for kind in kinds)
        lines.append(f"| {label} | {horizon} | {columns} |")
    return "\n".join(lines) if found else NONE


def _kind(name: str) -> str:
    """The name of a part without its look-back."""
    return name.split(", ")[0]


def missing() -> str:
    """The effect of removing values on the error."""
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


INTERVALS = {
    "ETTh1, ETTh2": ("ETTh1", "ETTh2"),
    "ETTm1, ETTm2": ("ETTm1", "ETTm2"),
    "weather": ("weather",),
    "prices": MARKETS,
}
"""The data sets whose intervals are judged together."""


def factors() -> str:
    """The rules for intervals, by the interval score relative to that of the first one."""
    rows = results("intervals")
    lines = [f"| rule | {' | '.join(INTERVALS)} |", f"|{' --- |' * (len(INTERVALS) + 1)}"]
    groups = [
        [row["rules"] for row in rows if row["data"] in names] for names in INTERVALS.values()
    ]
    for rule in rows[0]["rules"]:
        cells = []
        for group in groups:
            scores = [
                geometric_mean(
                    each[rule][share]["interval_score"] / first[share]["interval_score"]
                    for each in group
                    for first in [next(iter(each.values()))]
                )
                for share in ("80", "95")
            ]
            covered = [each[rule]["80"]["coverage"] for each in group]
            cells.append(
                f"{scores[0]:.3f}, {scores[1]:.3f} ({min(covered):.0%} to {max(covered):.0%})"
            )
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def intervals() -> str:
    """The first and the last rule for intervals, cell by cell."""
    lines = [
        "| data | T | P | windows | 80 %: score | covered | columns | 95 %: score | covered |",
        f"|{' --- |' * 9}",
    ]
    rows = sorted(results("intervals"), key=lambda row: (row["data"], row["horizon"]))
    for row in rows:
        first, *_, last = row["rules"].values()
        (score, covered), (score_95, covered_95) = (
            (
                f"{first[share]['interval_score']:.3f} → {last[share]['interval_score']:.3f}",
                f"{first[share]['coverage']:.1%} → {last[share]['coverage']:.1%}",
            )
            for share in ("80", "95")
        )
        ends = [
            f"{rule['80']['lowest']:.0%} to {rule['80']['highest']:.0%}" for rule in (first, last)
        ]
        columns = " → ".join(ends) if row["data"] not in MARKETS else "–"
        lines.append(
            f"| {row['data']} | {row['horizon']} | {row['past']} | {row['windows']} | {score} "
            f"| {covered} | {columns} | {score_95} | {covered_95} |"
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
    """For each machine a row per type: its time at each shape, and its memory; causal after "/"."""
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
    """For each group of each grid a row per attention, with figures from the cells and verdicts."""
    cells = {
        (row["grid"], *(row[key] for key in (*GROUP, "attn", "seed"))): row
        for row in results("compare")
    }
    parts = []
    for document in results("comparison"):
        parts.append(f"## {document['grid']}")
        groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
        for row in document["rows"]:
            groups[tuple(row[key] for key in GROUP)].append(row)
        for group, rows in groups.items():
            references = table.references(rows)
            lines = [_compared(row, [cells[document["grid"], *group, row["attn"], seed]
                             for seed in row["seeds"]], references) for row in rows]  # fmt: skip
            parts.append("\n".join([_group(rows), *lines]))
    return "\n\n".join(parts) or "No grid's figures are kept here yet."


def recall() -> str:
    """What each type can look up by construction, and its error by the length of the samples, as
    the mean over seeds; * where there are too few for a verdict."""
    tables = study.tables(results("comparison"), "recall")
    lengths = [f"MSE, L = {data.split('-')[1]}" for data, *_ in tables]
    lines = [f"| {' | '.join(['attention', 'what a question reaches', *lengths])} |"]
    lines.append(f"|{' --- |' * (2 + len(tables))}")
    for name, limit in LIMITS.items():
        found = [{row["attn"]: row for row in rows}.get(name) for rows in tables.values()]
        measured = [
            f"{row['mse']:.4f}{'' if evidence.judged(row) else '*'}" if row else "–"
            for row in found
        ]
        lines.append(f"| {' | '.join([name, limit.text, *measured])} |")
    return "\n".join(lines)


def choices() -> str:
    """Each regime that was studied, how to recognise data that resemble it, and what was found."""
    lines = ["| regime | your data have | what was found | on |", f"|{' --- |' * 4}"]
    for regime in REGIMES.values():
        tables = regime.tables(evidence.read(evidence_text()))
        choice = evidence.choose(tables)
        found = "not measured yet" if choice is None else adviser.sentence(choice)
        sets = sorted({f"{each.data}, T = {each.horizon}" for each in tables})
        lines.append(
            f"| **{regime.name}**: {regime.about} | {regime.wants} | {found} "
            f"| {'; '.join(sets) or '–'} |"
        )
    return "\n".join(lines)


def evidence_text() -> str:
    """The contents that evidence.FILE should have."""
    return evidence.write(results("comparison"), results("compare"))


def _group(rows: list[Result]) -> str:
    row = rows[0]
    path = "with" if row["linear"] else "without"
    heads = [_head(metric) for metric in shown(Cost, "tables")]
    heads += ["skill", *(f"− {name}, 95 %" for name in table.references(rows))]
    said = table.smallest(rows) or "verdicts not corrected"
    return (
        f"**{row['data']}, T = {row['horizon']}, {row['regime']}: {row['tokens']} tokens, "
        f"{path} the linear path.** {row['steps']} steps, {row['windows']} test windows, seeds "
        f"{', '.join(map(str, row['seeds']))}; best floor: {row['best_floor']} "
        f"{row['floor_mse']:.4f}; {said}.\n\n"
        f"| attention | test {_labels()} | parameters | {' | '.join(heads)} |\n"
        f"|{' --- |' * (3 + len(heads))}"
    )


def _compared(row: Result, cells: list[Result], references: list[str]) -> str:
    error = mean(cell["mse"] for cell in cells)
    parts = [
        f"{row['attn']}{' (full)' if row['is_full'] else ''}",
        _spreads(cells),
        f"{row['budget_parameters']:,}{'' if row['within_budget'] else ' *'}",
        *(_mean(cells, metric) for metric in shown(Cost, "tables")),
        f"{1 - error / row['floor_mse']:+.1%}",
        *(_verdict(row["against"].get(name)) for name in references),
    ]
    return f"| {' | '.join(parts)} |"


def _verdict(against: Result | None) -> str:
    if against is None:
        return "–"
    if against["low"] is None:
        return interval_text(None, None)
    words, interval = table.words(against), interval_text(against["low"], against["high"])
    return (
        f"{words} {interval}" if against["verdict"] == Verdict.SAME else f"**{words}** {interval}"
    )


def serving() -> str:
    """Servers against the model alone, all in one run."""
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
    """The outcome of requests at twice the sustainable rate."""
    lines = [
        "| connections | requests | sustainable / s | asked / s | 200 "
        "| 503, all with Retry-After | others | answered: p50, p99, most, s "
        "| /livez, /readyz: most, ms | mean batch | looks that saw a wait | usual again after, s "
        "| MiB before, peak |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for document in results("overload"):
        for row in document["rows"]:
            counts = row["statuses"]
            refused = counts.get("503", 0)
            assert row["with_retry_after"] == refused
            took = (row["accepted"]["p50_ms"], row["accepted"]["p99_ms"], row["accepted_most_ms"])
            lines.append(
                f"| {row['connections']} | {document['requests']:,} "
                f"| {document['sustainable_per_second']:.0f} "
                f"| {row['asked_per_second']:.0f} | {counts['200']:,} | {refused:,} "
                f"| {sum(counts.values()) - counts['200'] - refused} "
                f"| {', '.join(f'{each / 1e3:.2f}' for each in took)} "
                f"| {', '.join(f'{each:.0f}' for each in row['probes_most_ms'].values())} "
                f"| {row['mean_batch']:.1f} | {row['looks_with_a_wait']} of {row['looks']} "
                f"| {row['recovered_seconds']:.1f} "
                f"| {document['mib_before']:.0f}, {row['mib_peak']:.0f} |"
            )
    return "\n".join([*lines, *map(_made_by, results("overload"))])


def workers() -> str:
    """One process against several, which take turns."""
    lines = [
        "| clients | processes | p50, ms | p99, ms | series / s | service, ms a series "
        "| client, ms a series | of the cores: service, client |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    ends = []
    for document in results("workers"):
        cores = document["cores"]
        lines += [
            f"| {row['at_once']} | {row['processes']} | {row['p50_ms']:.0f} | {row['p99_ms']:.0f} "
            f"| {row['per_second']:.1f} | {row['service_ms']:.1f} | {row['client_ms']:.2f} "
            f"| {row['cores'] / cores:.0%}, {row['client_cores'] / cores:.1%} |"
            for row in document["rows"]
        ]
        parent, *each = document["mib_several"]
        ends.append(
            f"{_made_by(document)} {cores} cores, load {document['load_before']} before and "
            f"{document['load_after']} after. Memory (PSS, after the load): {parent} MiB for the "
            f"parent, {' and '.join(map(str, each))} MiB for the workers, "
            f"{document['mib_one'][0]} MiB for the single process."
        )
    return "\n".join([*lines, *ends])


def step() -> str:
    """A row for each network and number of threads."""
    lines = [
        "| network | P / start / T | batch | threads | step | products | by products "
        "| by reference | by NeuralForecast | peak memory | by reference | hardware |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in results("step"):
        by = [
            f"{row['ratios'][key]:.3f}" if key in row["ratios"] else "–"
            for key in ("by_products", "by_reference", "by_neuralforecast", "memory_by_reference")
        ]
        peak = row["peak_mib"]["ours"]
        lines.append(
            f"| {row['config']} | {row['past']} / {row['start']} / {row['horizon']} "
            f"| {row['batch']} | {row['threads']} | {row['step_s']:.3f} s "
            f"| {row['products_s']:.3f} s, {row['products_gflop']:.1f} GFLOP "
            f"| {' | '.join(by[:3])} | {'–' if peak is None else f'{peak:.0f} MiB'} | {by[3]} "
            f"| {row['hardware']} |"
        )
    return "\n".join(lines) if lines[2:] else NONE


def inference() -> str:
    """A row for each model, batch and number of threads."""
    lines = [
        "| model | batch | threads | ours | ONNX Runtime | by ONNX Runtime | hardware |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['model']} | {row['batch']} | {document['threads']} | {row['ours_ms']:.2f} ms "
        f"| {row['onnx_ms']:.2f} ms | {row['by_onnx']:.2f} | {document['hardware']} |"
        for document in results("inference")
        for row in document["rows"]
    ]
    return "\n".join(lines) if lines[2:] else NONE


def start() -> str:
    """A row for each case, then the time of imports by package."""
    lines = ["| case | wall | processor | must / aim |", "| --- | --- | --- | --- |"]
    for row in results("start"):
        for case, found in row["cases"].items():
            which = "wall" if found["of"] == "wall_s" else "processor"
            lines.append(
                f"| {case} | {found['wall_s']:.2f} s | {found['cpu_s']:.2f} s "
                f"| {found['must']:g} / {found['aim']:g} s {which} |"
            )
        for module, found in row["imports"].items():
            most = ", ".join(f"{name} {s:.2f}" for name, s in list(found["packages"].items())[:6])
            lines += ["", f"`import {module}`, traced: {found['all_s']:.2f} s; {most}."]
        lines.append(_measured(row))
    return "\n".join(lines) if lines[2:] else NONE


def fit() -> str:
    """A row for each number of threads."""
    lines = [
        "| threads | steps | batch | `fit()` | bare loop | ratio | must / aim |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in results("fit"):
        lines += [
            f"| {found['threads']} | {found['steps']} | {found['batch']} | {found['fit_s']:.2f} s "
            f"| {found['bare_s']:.2f} s | {found['ratio']:.3f} | {row['must']:g} / {row['aim']:g} |"
            for found in row["by_threads"]
        ]
        lines.append(_measured(row))
    return "\n".join(lines) if lines[2:] else NONE


def evaluation() -> str:
    """Seconds of processor time by stage, and of each further part."""
    lines = [
        "| forecast | fit and weigh | validation, intervals | test windows, verdicts | whole |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in results("evaluation"):
        for way, name in (("alone", "the network"), ("all", "with every closed form")):
            stages = row[way]
            fitted = f"{stages['fit_and_weigh_s']:.2f} s" if "fit_and_weigh_s" in stages else "–"
            lines.append(
                f"| {name} | {fitted} | {stages['validation_s']:.2f} s | {stages['test_s']:.2f} s "
                f"| {row[f'{way}_s']:.2f} s |"
            )
        must, aim = row["must"], row["aim"]
        lines += [
            f"\nThe network: {row['alone_s']:.2f} s (must {must['alone_s']:g}, aim "
            f"{aim['alone_s']:g}); each of {row['further_parts']} further parts: "
            f"{row['part_s']:.2f} s (must {must['part_s']:g}, aim {aim['part_s']:g}).",
            _measured(row),
        ]
    return "\n".join(lines) if lines[2:] else NONE


def _measured(row: Result) -> str:
    return f"\n`{row['command']}`: {row['hardware']}, commit {row['commit'][:9]}."


def cores() -> str:
    """The cases of CORES with the latest measurement of each."""
    lines = [
        "| type | shape | by SDPA | at most | memory by SDPA |",
        "| --- | --- | --- | --- | --- |",
    ]
    for document in results("attention"):
        if "2 threads" not in document["hardware"]:
            continue
        rows = {(row["attn"], row["shape"], row["causal"]): row for row in document["rows"]}
        for name, shape, causal, most in CORES:
            row = rows.get((name, shape, causal), {})
            ratios = [f"{row[key]:.2f}" if key in row else "–" for key in ("ratio", "memory_ratio")]
            words = f"{shape}{', causal' if causal else ''}"
            lines.append(f"| {name} | {words} | {ratios[0]} | {most} | {ratios[1]} |")
        lines += ["", f"`{document['command']}`: {document['hardware']}, {document['commit'][:9]}"]
    return "\n".join(lines) if lines[2:] else NONE


def length() -> str:
    """For each machine a row per type with seconds and MiB at each P, and their growth."""
    tables = []
    for document in results("length"):
        pasts = sorted({row["past"] for row in document["rows"]})
        heads = [f"{what} at {past}" for what in ("s", "MiB") for past in pasts]
        lines = [
            f"`{document['command']}`: {document['hardware']}, commit {document['commit'][:9]}",
            "",
            f"| type | {' | '.join(heads)} | time grows by | memory grows by |",
            f"|{' --- |' * (len(heads) + 3)}",
        ]
        for name in dict.fromkeys(row["attn"] for row in document["rows"]):
            rows = {row["past"]: row for row in document["rows"] if row["attn"] == name}
            cells = [
                f"{rows[past][key]:.{places}f}" if key in rows.get(past, {}) else "–"
                for key, places in (("seconds", 2), ("mib", 0))
                for past in pasts
            ]
            growths = [_growth(rows, key) for key in ("seconds", "mib")]
            lines.append(f"| {name} | {' | '.join([*cells, *growths])} |")
        skipped = {row["attn"]: row["skipped"] for row in document["rows"] if "skipped" in row}
        lines += [f"\nNot measured further: {name}, {why}." for name, why in skipped.items()]
        tables += ["\n".join(lines)]
        if (ROOT / "docs" / "pictures" / f"{_length_file(document)}.png").exists():
            file = f"pictures/{_length_file(document)}.png"
            tables.append(f"![Time and memory of a training step against P]({file})")
    return "\n\n".join(tables) or NONE


def _growth(rows: dict[int, Result], key: str) -> str:
    """The factor for each doubling of P, from the first P measured to the last."""
    known = sorted(past for past, row in rows.items() if key in row)
    if len(known) < 2:
        return "–"
    doublings = log2(known[-1] / known[0])
    return f"{(rows[known[-1]][key] / rows[known[0]][key]) ** (1 / doublings):.2f}"


def _length_file(document: Result) -> str:
    cuda = document["device"] == "cuda"
    return f"length-{'cuda' if cuda else str(document['threads']) + '-threads'}"


def _made_by(row: Result) -> str:
    return (
        f"\n`{row['command']}`: {row['hardware']}, commit {row['commit'][:9]}; the service was "
        f"ready {row['ready_seconds']:.1f} s after its start."
    )


def attentions() -> str:
    """The table of mechanisms, from what each states about itself."""
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
    """The table of metrics."""
    lines = ["| metric | | unit | better | shown in |", "| --- | --- | --- | --- | --- |"]
    for metric in METRICS:
        where = ", ".join(each for each in get_args(Where) if each in metric.shown_in)
        lines.append(
            f"| `{metric.name}` | {metric.label} | {metric.unit} | {metric.better} | {where} |"
        )
    return "\n".join(lines)


def curves() -> str:
    """For each machine the picture, and the tables that the command prints."""
    from forecaster import bench

    parts = []
    for file in sorted((ROOT / "benchmarks" / "results").glob("curves-*.json")):
        document = json.loads(file.read_text())
        parts += [
            f"![Time and memory against the length](pictures/{file.stem}.png)",
            f"```text\n{bench.tables(document)}\n```",
        ]
    return "\n\n".join(parts) or "No machine's figures are kept here yet."


def commands() -> str:
    """The command behind each cell, with hardware and commit."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for kind in (
        "served", "best-part", "training", "attention", "curves", "comparison", "step", "length",
        "inference",
    ):  # fmt: skip
        for row in results(kind):
            before, seed, after = re.findall(r"^(.*--seed |)(\d*)(.*)$", row["command"])[0]
            found[before, after, row["hardware"], row["commit"][:9]].append(seed)
    lines = [
        f"| `{before}{', '.join(filter(None, seeds))}{after}` | {hardware} | {commit} |"
        for (before, after, hardware, commit), seeds in found.items()
    ]
    return "\n".join(["| command | hardware | commit |", "| --- | --- | --- |", *lines])


def memory() -> str:
    """The estimate, the measured peak, their ratio, and windows per second of each recipe and
    machine."""
    lines = [
        "| recipe | attention | P, T | columns | batch | estimate, MiB | peak, MiB | by peak "
        "| windows/s | machine |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['recipe']} | {row['attn']} | {row['past']}, {row['horizon']} | {row['columns']} "
        f"| {row['batch']} | {row['expected_mib']:,.0f} | {row['peak_mib']:,.0f} "
        f"| {row['expected_mib'] / row['peak_mib']:.2f} | {row['windows_per_second']:.1f} "
        f"| {row['hardware']} |"
        for document in results("memory")
        for row in document["rows"]
    ]
    return "\n".join(lines) if len(lines) > 2 else NONE


def large() -> str:
    """One epoch and the evaluation of the large sets."""
    lines = [
        "| set | rows x columns | code | CPU-s in all | minutes | peak, MiB | training, s "
        "| windows/s | test windows | machine |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in results("large"):
        code = ", ".join([f"{row['label']} ({row['commit'][:7]})", *row["sets"]])
        lines.append(
            f"| {row['data']} | {row['rows']:,} x {row['columns']} | {code} "
            f"| {row['cpu_seconds']:,.0f} | {row['seconds'] / 60:.0f} | {row['peak_mib']:,} "
            f"| {row['train_seconds']:,.0f} | {row['windows_per_second']:.1f} "
            f"| {row['test_windows']:,} | {row['hardware']} |"
        )
    return "\n".join(lines) if len(lines) > 2 else NONE


def _studied(make: Callable[[list[Result], str], str], regime: str) -> str:
    return make(results("comparison"), regime)


TABLES: dict[str, Callable[[], str]] = {
    "memory": memory,
    "large": large,
    "attentions": attentions,
    "curves": curves,
    "metrics": metrics,
    "training": training,
    "means": means,
    "prices": prices,
    "cells": cells,
    "counts": counts,
    "best_part": best_part,
    "parts": parts,
    "missing": missing,
    "factors": factors,
    "intervals": intervals,
    "recipe": recipe,
    "attention": attention,
    "comparison": comparison,
    "recall": recall,
    "choices": choices,
    "matrix": lambda: study.matrix(results("comparison")),
    "fronts": lambda: study.fronts(results("comparison")),
    **{
        f"{kind.__name__}_{name}": partial(_studied, kind, name)
        for kind in (study.regime, study.pooled, study.cost)
        for name in (*study.REGIMES, "settings", "causal", "hops")
    },
    "serving": serving,
    "overload": overload,
    "workers": workers,
    "step": step,
    "inference": inference,
    "start": start,
    "fit": fit,
    "evaluation": evaluation,
    "cores": cores,
    "length": length,
    "commands": commands,
}


def render(text: str) -> str:
    """The document with every marked table rendered again. Raises KeyError for an unknown table."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- begin {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->", table, text, flags=re.DOTALL)


def main() -> None:
    stale = []
    if evidence.FILE.read_text() != evidence_text():
        stale.append(evidence.FILE.name)
        if "--check" not in sys.argv:
            evidence.FILE.write_text(evidence_text())
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text()
        if render(text) != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(render(text))
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run python benchmarks/render.py")


def _order(item: tuple[tuple[Any, ...], Any]) -> tuple[str, ...]:
    return tuple(f"{part:>8}" if isinstance(part, int) else str(part) for part in item[0])


def _labels() -> str:
    return " / ".join(metric.label for metric in whole("tables"))


def _metrics(row: Result) -> str:
    """The metrics of one forecast."""
    return " / ".join(metric.text(row.get(metric.name)) for metric in whole("tables"))


def _spreads(rows: list[Result]) -> str:
    """The means of the metrics, with standard deviations where there are several rows."""
    return " / ".join(_spread(rows, metric) for metric in whole("tables"))


def _spread(rows: list[Result], metric: Metric) -> str:
    values = [row[metric.name] for row in rows if row.get(metric.name) is not None]
    if len(values) < len(rows):
        return metric.missing
    spread = f" ± {metric.text(stdev(values))}" if len(values) > 1 else ""
    return metric.text(mean(values)) + spread


def _mean(rows: list[Result], metric: Metric) -> str:
    """The mean of the known values."""
    values = [row[metric.name] for row in rows if row.get(metric.name) is not None]
    return _as_document(metric, mean(values) if values else None)


def _head(metric: Metric) -> str:
    return metric.document[0] if metric.document else metric.label


def _as_document(metric: Metric, value: float | None) -> str:
    form = metric.document[1] if metric.document else metric.form
    return metric.missing if value is None else form.format(value)


if __name__ == "__main__":
    main()
