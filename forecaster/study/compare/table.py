"""The results of a grid's finished cells: a row for each attention of a group, with verdicts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import mean, median, stdev

from forecaster.attention import CATALOGUE
from forecaster.evaluate.figures import Cost, ErrorMetric, Kind, Metric, Where, shown, whole
from forecaster.evaluate.metrics import Verdict, is_borderline
from forecaster.record import Scores, Value
from forecaster.report.tables import in_markdown, in_text
from forecaster.study.compare.cell import Finished
from forecaster.study.compare.record import Against, CellFacts, Row
from forecaster.study.compare.verdicts import compare, correct

Group = tuple[str, int, str, bool]
"""Data, horizon, regime, and whether there is a linear path: within one, only the attention
varies."""
AGAINST = ("none", "static", "full")
LEGEND = """\
MSE and MAE: every test window, scaled values, mean ± standard deviation over seeds. params: without
the linear path; * not within 5 % of those with full attention. train s, ms (a forecast of one
window): processor time of one thread. MiB: what one training step adds. skill: 1 - MSE / MSE of the
best floor. Verdicts: the paired 95 % interval of the MSE difference (block bootstrap over windows,
widened by the spread over seeds; with one seed it holds only for those models) lies below zero
(better), above (worse), or contains it (=); ~: borderline, an end is nearer to zero than 5 % of its
width.
=^: it does not contain zero, but may by chance: Holm's correction for all verdicts of a column.
80 % power: the difference that would have been found with this probability.
(full): amounts to full attention at these lengths, so no verdict."""
SUMMARY = (
    "How the network's error depends on the attention, all else held fixed. Each cell is a run "
    "below this one."
)
"""The text above the tables of `markdown`."""


def rows(cells: Sequence[Finished]) -> list[Row]:
    """One row per group (with the linear path first) and attention, in the catalogue's order."""
    Found = dict[str, list[Finished]]
    groups: defaultdict[Group, Found] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        groups[group_of(cell.facts)][cell.facts.attn].append(cell)
    place = {name: number for number, name in enumerate(CATALOGUE)}
    rows: list[Row] = []
    for _, group in sorted(groups.items(), key=lambda item: (*item[0][:-1], not item[0][-1])):
        names = sorted(group, key=lambda name: place.get(name, len(place)))
        against: dict[str, dict[str, Against]] = {attn: {} for attn in names}
        for name in AGAINST:
            compared = {
                attn: comparison
                for attn in names
                if attn != name and not group[attn][0].facts.is_full
                for comparison in [compare(group[attn], group.get(name, []))]
                if comparison
            }
            for attn, comparison in correct(compared).items():
                against[attn][name] = comparison
        rows += [_row(group[attn], against[attn]) for attn in names]
    return rows


def group_of(facts: CellFacts) -> Group:
    return facts.data, facts.horizon, facts.regime, facts.linear


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    groups_of: dict[Group, list[Row]] = defaultdict(list)
    for row in rows:
        groups_of[group_of(row)].append(row)
    return [*groups_of.values()]


def _row(cells: list[Finished], against: dict[str, Against]) -> Row:
    facts = [cell.facts for cell in cells]
    first = facts[0]
    floor, bar = first.best_floor
    figures: dict[str, Value] = {}
    for metric in [*whole(), *shown(Cost)]:
        known = [value for fact in facts if (value := fact[metric.name]) is not None]
        figures[metric.name] = mean(known) if known else None
        if isinstance(metric, ErrorMetric):
            figures[f"{metric.name}_sd"] = stdev(known) if len(known) > 1 else None
    mse = figures["mse"]
    return Row.model_validate({
        **{name: getattr(first, name) for name in CellFacts.model_fields},
        "seeds": sorted(fact.seed for fact in facts),
        **figures,
        "best_floor": floor,
        "floor_mse": bar,
        "skill": 1 - mse / bar if mse is not None and bar > 0 else None,
        "against": against,
    })  # fmt: skip


def references(group: Sequence[Row]) -> list[str]:
    """Those of AGAINST that some row of a group is compared with; always "none" and "full"."""
    return [
        name for name in AGAINST if name != "static" or any(name in row.against for row in group)
    ]


def smallest(group: Sequence[Row]) -> str:
    """A text on the difference that a group would have found, the median over its types.

    Empty if unknown.
    """
    parts = []
    for name in references(group):
        known = [against.smallest for row in group if (against := row.against.get(name))]
        if values := [value for value in known if value is not None]:
            parts.append(f"{median(values):.4f} from {name}")
    return f"found with 80 % power: {', '.join(parts)}" if parts else ""


def corrected(against: Against) -> bool:
    """Whether the interval alone would name a difference, but the correction does not."""
    low, high = against.low, against.high
    return low is not None and high is not None and against.verdict != Verdict.of(low, high)


def verdict(row: Row, name: str) -> str:
    """The verdict against a reference, abbreviated to the width of a column."""
    if row.is_full:
        return "(full)"
    if (against := row.against.get(name)) is None:
        return "–"
    if corrected(against):
        return "=^"
    word: str = "=" if against.verdict == Verdict.SAME else against.verdict
    return word + "~" * is_borderline(against.low, against.high)


def skill(row: Row) -> str:
    return "–" if row.skill is None else f"{row.skill:+.1%}"


def known(metrics: Sequence[Kind], rows: Sequence[Scores]) -> list[Kind]:
    """The metrics that any of the rows has: cells of an older version may lack one."""
    return [metric for metric in metrics if any(row[metric.name] is not None for row in rows)]


def spread(row: Row, metric: Metric) -> str:
    """A mean, and the standard deviation over seeds if there are several."""
    deviation, text = row[f"{metric.name}_sd"], metric.text(row[metric.name])
    return text if deviation is None else f"{text} ± {metric.text(deviation)}"


def heading(row: Row) -> str:
    return (
        f"{row.data}, T = {row.horizon}, {row.regime} ({row.tokens} tokens), "
        f"{'with' if row.linear else 'without'} the linear path; {row.steps} steps, "
        f"{row.windows} test windows"
    )


def columns(group: Sequence[Row], where: Where) -> dict[str, list[str]]:
    """The columns of a table of a group: the printed value of each row, by their heads."""
    return {
        "attention": [row.attn for row in group],
        **{
            metric.label: [spread(row, metric) for row in group]
            for metric in known(whole(where), group)
        },
        "params": [
            f"{row.budget_parameters:,}{' ' if row.within_budget else '*'}" for row in group
        ],
        **{
            metric.head: [metric.text(row[metric.name]) for row in group]
            for metric in known(shown(Cost, where), group)
        },
        "skill": [skill(row) for row in group],
        **{f"−{name}": [verdict(row, name) for row in group] for name in references(group)},
    }


def about(group: Sequence[Row]) -> list[str]:
    """What stands above a table of a group: its heading, its best floor, and its power."""
    first, seeds = group[0], max(len(row.seeds) for row in group)
    return [
        f"{heading(first)}, {seeds} seed{'s' * (seeds > 1)}",
        f"best floor: {first.best_floor}, MSE {first.floor_mse:.4f}",
        *filter(None, [smallest(group)]),
    ]


def text(rows: Sequence[Row]) -> str:
    """The tables of all groups for a terminal, at most 120 columns wide."""
    return "\n\n".join([*map(_table, groups(rows)), LEGEND])


def conclusion(rows: Sequence[Row]) -> str:
    """What the tables say of attention, in words."""
    tables = groups(rows)
    lists = []
    for word in (Verdict.BETTER, Verdict.WORSE):
        counts = Counter(
            row.attn for row in rows
            if row.attn in CATALOGUE
            and (against := row.against.get("none"))
            and against.verdict == word
        )  # fmt: skip
        named = ", ".join(f"{name} in {count}" for name, count in counts.most_common())
        lists.append(f"measurably {word} than none: {named or 'no type'}")
    lost = sum(all((row.skill or 0) < 0 for row in table) for table in tables)
    floor = f"; in {lost} a floor, which needs no network, was better than all" if lost else ""
    count = f"{len(tables)} table{'s' * (len(tables) > 1)}"
    return f"In {count}, {'; '.join(lists)}{floor}."


def _table(group: Sequence[Row]) -> str:
    return "\n".join([*about(group), *in_text(*_printed(group))])


def markdown(rows: Sequence[Row]) -> str:
    """The tables of all groups, as a tracker's page shows them."""
    parts = []
    for group in groups(rows):
        title, *more = about(group)
        parts += [f"**{title}**", *more, in_markdown(*_printed(group))]
    return "\n\n".join([*parts, LEGEND])


def _printed(group: Sequence[Row]) -> tuple[list[str], list[tuple[str, ...]], range]:
    """The heads and the rows of a table, and which columns are numbers."""
    columns_of = columns(group, "grid")
    numbers = range(1, len(columns_of) - len(references(group)))
    return [*columns_of], [*zip(*columns_of.values(), strict=True)], numbers


def flat(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The rows without nested values, except the verdicts, each in its own columns."""
    return [
        row.model_dump(mode="json", exclude={"seeds", "against"})
        | {
            f"{name}: {key}": value
            for name, against in row.against.items()
            for key, value in against.model_dump(mode="json", exclude_none=True).items()
            if key in ("verdict", "difference", "low", "high", "holm")
        }
        for row in rows
    ]
