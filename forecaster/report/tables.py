"""The tables of a run, from its record: for the terminal, MLflow, the report and Python.

Rows are dictionaries of plain values; a face takes the columns that it has room for, and each
column prints its own values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from forecaster.evaluate.figures import ErrorMetric, IntervalMetric, Metric, QuantileMetric, shown
from forecaster.evaluate.intervals import SHARES, percent
from forecaster.record import NETWORK, Backtest, FloorScores, Record
from forecaster.report.page import Table

if TYPE_CHECKING:
    from forecaster.forecast.bundle import Bundle

Cell = str | int | float | None
Row = dict[str, Cell]
Named = TypeVar("Named")
SHARE = percent(SHARES[0])
"""That of the band whose metrics stand beside the errors, under the names NAME_SHARE."""
GAP = "&emsp; | "
"""Between the cells of a Markdown table: MLflow's page sets no space there."""


@dataclass(frozen=True)
class TableColumn:
    """A column: the key of its values in rows, its head, and how a value is printed."""

    key: str
    head: str
    text: Callable[[Cell], str] = lambda value: "" if value is None else str(value)


def of_metric(metric: Metric, before: str = "") -> TableColumn:
    """The column of a metric; its head is the label after the words `before`."""

    def text(value: Cell) -> str:
        return metric.text(None if isinstance(value, str) else value)

    return TableColumn(metric.name, f"{before}{metric.label}", text)


def _number(form: str, zero: bool = True) -> Callable[[Cell], str]:
    """Prints a number in a form; what is not known is blank, and without `zero` also a zero."""
    return lambda value: form.format(value) if value or (zero and value is not None) else ""


PART, CHOSEN, COLUMN, BAND, SERIES, KIND = WORDS = (
    TableColumn("part", "part"), TableColumn("chosen", "chosen"), TableColumn("column", "column"),
    TableColumn("name", "intervals"), TableColumn("series", "series"),
    TableColumn("kind", "without this kind"),
)  # fmt: skip
ADDS = tuple(
    TableColumn(key, head, lambda value: f"{-float(value):+.4f}" if value else "")
    for key, head in (("mse", "MSE more"), ("paired_high", "95 % from"), ("paired_low", "to"))
)
WEIGHT = TableColumn("weight", "weight", _number("{:.1%}", zero=False))
VALIDATION = TableColumn("validation_mse", "validation MSE", _number("{:.4f}"))
SKILL = TableColumn("skill", "skill", _number("{:+.1%}"))


def cells(columns: Sequence[TableColumn], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [tuple(column.text(row.get(column.key)) for column in columns) for row in rows]


def printed(columns: Sequence[TableColumn], rows: Sequence[Row], caption: str) -> Table:
    return Table([column.head for column in columns], cells(columns, rows), caption)


def in_text(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int]
) -> list[str]:
    """The lines of a table for the terminal; the columns `numbers`, from 0, are aligned right."""
    wide = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(room) if place in numbers else cell.ljust(room)
            for place, (cell, room) in enumerate(zip(row, wide, strict=True))
        )
        for row in (heads, *rows)
    )
    return [line.rstrip() for line in lines]


def in_markdown(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int]
) -> str:
    """A Markdown table; the columns `numbers`, from 0, are aligned to the right."""
    marks = ["---:" if place in numbers else "---" for place in range(len(heads))]
    lines = [f"| {GAP.join(heads)} |", f"| {' | '.join(marks)} |"]
    lines += ["| " + GAP.join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def parts(record: Record, attn: str = "") -> list[Row]:
    """The model, its network, and all other parts that were tried, each judged alone.

    A row has the weight in the model, the error on the windows that weighed the part, those on the
    test split, the skill of the model against it with the ends of its paired interval, and what was
    chosen for it: for the network, the attention `attn`.
    """
    errors = [metric.name for metric in shown(ErrorMetric, "terminal")]
    judged = record.test.rows if record.test else {}
    rows: list[Row] = []
    for name in dict.fromkeys([*judged, *record.parts]):
        scores, weighed = judged.get(name), record.parts.get(name)
        floor = scores if isinstance(scores, FloorScores) else None
        chosen = next((part.chosen for part in (weighed, floor) if part and part.chosen), "")
        validation = weighed.validation_mse if weighed else None
        if isinstance(scores, Backtest):
            weight, validation = 1.0, record.validation_mse
        elif weighed:
            weight = weighed.weight
        else:
            weight = scores.weight if scores else 0.0
        rows.append({
            "part": name,
            "weight": weight,
            "validation_mse": validation,
            **{metric: scores[metric] if scores else None for metric in errors},
            "skill": floor.skill if floor else None,
            "paired_low": floor.paired_low if floor else None,
            "paired_high": floor.paired_high if floor else None,
            "chosen": f"attention {attn}" if attn and name == NETWORK else chosen,
        })  # fmt: skip
    return rows


def kinds(test: Backtest) -> list[Row]:
    """What each kind of part adds to the model: the MSE of the model less that without it, and the
    ends of the paired interval."""
    rows: list[Row] = [{"kind": kind, **adds.to_dict()} for kind, adds in test.adds.items()]
    return sorted(rows, key=lambda row: float(row["mse"] or 0.0))


def made_of(bundle: "Bundle", caption: str = "") -> Table:
    errors = (of_metric(metric, "test ") for metric in shown(ErrorMetric, "terminal"))
    rows = parts(bundle.record, bundle.config.attn.name)
    rows.sort(key=lambda row: -float(row["weight"] or 0.0))
    return printed([PART, WEIGHT, VALIDATION, *errors, CHOSEN], rows, caption)


def of_run(bundle: "Bundle", name: str) -> dict[str, Table]:
    """The tables of the run `name` on a page, by their sections."""
    test = bundle.record.judged
    errors = [of_metric(metric) for metric in shown(ErrorMetric) if "column" in metric.by]
    widths = [*map(of_metric, shown(IntervalMetric, "report"))]
    covered = next(metric for metric in widths if metric.key == "coverage")
    if test.band(SHARE):
        head = f"{SHARE} % band {covered.head}"
        errors.append(replace(covered, key=f"{covered.key}_{SHARE}", head=head))
    by_series, worst, more = series(test)
    tables = {
        "parts": made_of(bundle, name),
        "kinds": printed([KIND, *ADDS], kinds(test), name),
        "intervals": printed([BAND, *widths], intervals(test), name),
        "columns": printed([COLUMN, *errors], columns(test), name),
        "series": printed(by_series, worst, "; ".join(filter(None, [name, more]))),
    }
    return {key: table for key, table in tables.items() if table.rows}


def worst_columns(test: Backtest) -> tuple[list[Row], str]:
    """The errors of each target, and how many more there are: of many, the worst have rows."""
    rows = columns(test)
    if len(rows) <= 2 * WORST:
        return rows, ""
    rows.sort(key=lambda row: -float(row["mase"] or 0.0))
    return rows[:WORST], f"and {len(rows) - WORST:,} more columns with smaller errors"


def columns(test: Backtest) -> list[Row]:
    """The errors of each target, and the metrics of its band."""
    bands = band.columns if (band := test.band(SHARE)) else {}
    return [
        {"column": column, **scores.measured, **_of_band(bands[column].measured if bands else {})}
        for column, scores in test.columns.items()
    ]


WORST = 10
"""The most series, or of many columns, that the terminal and the report list, for a glance."""


def series(test: Backtest) -> tuple[list[TableColumn], list[Row], str]:
    """The errors of the series of a panel, the worst first, and how many more there are."""
    head = [SERIES, *(of_metric(metric) for metric in shown(ErrorMetric) if "item" in metric.by)]
    if test.items is None or len(test.items.errors) < 2:
        return head, [], ""
    known = sorted(test.items.errors.items(), key=lambda item: -float(item[1]["mse"] or 0.0))
    rows: list[Row] = [{"series": name, **scores.measured} for name, scores in known[:WORST]]
    more = test.items.tested - len(rows)
    return head, rows, f"and {more:,} more series with smaller errors" if more else ""


def steps(test: Backtest) -> list[Row]:
    """The same for each step of the horizon."""
    band = test.band(SHARE)
    by_step = {**test.by_step, **_of_band(band.by_step if band else {})}
    count = max((len(values) for values in by_step.values()), default=0)
    return [
        {"step": step + 1, **{name: values[step] for name, values in by_step.items()}}
        for step in range(count)
    ]


def intervals(test: Backtest) -> list[Row]:
    bands = test.intervals.bands if test.intervals else {}
    return [{"name": f"{key} %", "share": key, **band.measured} for key, band in bands.items()]


def brief(test: Backtest) -> str:
    """What was found on the test split, in at most three sentences."""
    network = test.network.verdict if test.network else ""
    return "\n".join(filter(None, [test.headline, test.verdict, network]))


def text(test: Backtest) -> str:
    """What was found on the test split, for the terminal."""
    which = "all of them" if test.every == 1 else f"one in {test.every} of them"
    model, *others = parts(Record(test=test))
    errors = [*map(of_metric, shown(ErrorMetric, "terminal"))]
    by_target = [*map(of_metric, shown(ErrorMetric, "columns"))]
    by_column, fewer = worst_columns(test)
    by_series, worst, more = series(test)
    return "\n".join([
        *[test.headline] * bool(test.headline),
        f"test split, {test.windows} windows ({which}), values scaled by training rows",
        *_lines([PART, *errors, SKILL, WEIGHT, CHOSEN], [model | {"weight": None}, *others]),
        *[line for line in (test.verdict, test.network.verdict if test.network else "") if line],
        *(_lines([KIND, *ADDS], kinds(test)) if test.adds else []),
        *_interval_lines(test),
        *_lines([COLUMN, *by_target], by_column),
        *[fewer] * bool(fewer),
        *([*_lines(by_series, worst), *[more] * bool(more)] if worst else []),
    ])  # fmt: skip


def _interval_lines(test: Backtest) -> list[str]:
    """The metrics of intervals and quantiles, and their verdicts."""
    head = [BAND, *map(of_metric, shown(IntervalMetric, "terminal"))]
    scores = test.intervals
    if scores is None:
        return []
    rows = intervals(test)
    return [
        *(_lines(head, rows) if rows else []),
        *(
            f"{metric.label}: {metric.text(scores[metric.name])}"
            for metric in shown(QuantileMetric, "terminal")
        ),
        scores.verdict,
        *([f"The 80 % bands of totals over the horizon held {scores.totals:.1%} of them."]
          if scores.totals is not None else []),
    ]  # fmt: skip


def _lines(of: Sequence[TableColumn], rows: Sequence[Row]) -> list[str]:
    numbers = [place for place, column in enumerate(of) if column not in WORDS]
    return in_text([column.head for column in of], cells(of, rows), numbers)


def _of_band(metrics: Mapping[str, Named]) -> dict[str, Named]:
    """The values under the names NAME_SHARE."""
    return {f"{name}_{SHARE}": value for name, value in metrics.items()}
