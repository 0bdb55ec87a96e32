"""The report of a grid of the comparison, from its finished cells."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import yaml

from forecaster.base.errors import UnavailableError
from forecaster.base.names import did_you_mean
from forecaster.evaluate.display import cost_figure, step_figure
from forecaster.evaluate.metrics import interval_text
from forecaster.report.page import Chart, Page, Section, Table
from forecaster.study.compare import GRIDS, finished, table
from forecaster.study.compare.cell import Finished
from forecaster.study.compare.record import CellFacts, Row

Group = list[Row]
"""The rows of one table; only the attention varies between them."""
Cost = tuple[float, float, float]
"""The milliseconds of a forecast, its MSE, and MiB, which are 0 if unknown."""
Cells = dict[tuple[table.Group, str], list[Finished]]
"""The finished cells of a row, by its group and attention."""


def of_grid(name: str, command: str) -> Page:
    """The page for the grid of that name below runs/grids.

    Raises UnavailableError when there is no such grid, UsageError when none of its cells is
    finished.
    """
    folder = GRIDS / name
    if not folder.is_dir():
        known = sorted(path.name for path in GRIDS.glob("*/")) if GRIDS.is_dir() else []
        there = f"There are: {', '.join(known)}." if known else "There is none yet."
        raise UnavailableError(
            f"no grid '{name}' in {GRIDS.resolve()}.{did_you_mean(name, known)} {there} "
            "`forecaster compare` makes one."
        )
    done = finished(folder)
    cells: Cells = defaultdict(list)
    for cell in done:
        cells[_key(cell.facts)].append(cell)
    together = table.groups(table.rows(done))
    return Page(
        title=f"Comparison {name}",
        lead=f"{len(done)} trained models. Within a table only the attention varies: tokens, "
        f"optimiser steps ({done[0].facts.steps}), batches, seeds and test windows are the same.",
        sections=[
            Section(
                "figures",
                "Figures",
                [table.LEGEND],
                [_table(group) for group in together],
                [frontier(_short(group), _costs(group)) for group in together],
            ),
            Section("steps", "Error by horizon step", charts=[_steps(g, cells) for g in together]),
            Section("commands", "Commands and hardware", _where(done), code=_code(done, command)),
        ],
    )  # fmt: skip


def _key(facts: CellFacts) -> tuple[table.Group, str]:
    return table.group_of(facts), facts.attn


def _short(group: Group) -> str:
    return table.heading(group[0]).partition(";")[0]


def _table(group: Group) -> Table:
    """The columns of the terminal, and beside them the intervals and what a type amounts to."""
    columns = table.columns(group, "report")
    for name in table.references(group):
        compared = [row.against.get(name) for row in group]
        columns[f"− {name}, 95 %"] = [
            interval_text(difference.low, difference.high) if difference else "–"
            for difference in compared
        ]
    columns["amounts to"] = [row.effective for row in group]
    return Table([*columns], [*zip(*columns.values(), strict=True)], "; ".join(table.about(group)))


def _costs(group: Group) -> dict[str, Cost]:
    return {
        row.attn: (row["inference_ms"] or 0.0, row["mse"] or 0.0, row["peak_mib"] or 0.0)
        for row in group
    }


def frontier(title: str, costs: Mapping[str, Cost]) -> Chart:
    """A chart of error against time; a dot's area is memory, and those that no other beats in all
    three at once have a colour."""
    best = [
        name
        for name, cost in costs.items()
        if not any(
            its != cost and all(b <= a for a, b in zip(cost, its, strict=True))
            for its in costs.values()
        )
    ]
    most = max(mib for _, _, mib in costs.values())
    area = f" The area of a dot is memory, the largest {most:.3g} MiB." if most else ""
    what = "speed, memory and error" if most else "speed and error"
    return Chart(
        cost_figure(costs, best),
        f"{title}.{area} In colour, those that no other beats in {what} at once: "
        f"{', '.join(best)}. This ignores uncertainty: an error that is not measurably smaller "
        "does not justify a higher cost.",
    )


def _steps(group: Group, cells: Cells) -> Chart:
    """The means over the seeds of each attention, the best first."""
    curves = {
        row.attn: tuple(
            np.mean([np.array(c.facts.by_step[kind], float) for c in cells[_key(row)]], axis=0)
            for kind in ("mse", "mae")
        )
        for row in sorted(group, key=lambda row: row["mse"] or 0.0)
    }
    return Chart(step_figure(curves, "", group[0].windows, from_zero=False), _short(group))


def _where(cells: Sequence[Finished]) -> list[str]:
    def each(key: str) -> str:
        return "; ".join(dict.fromkeys(str(getattr(cell.facts, key)) for cell in cells))

    return [
        f"Trained and measured on {each('hardware')}, at commit {each('commit')}, on data "
        f"{each('data_digest')}."
    ]


def _code(cells: Sequence[Finished], command: str) -> list[str]:
    commands = dict.fromkeys([*(cell.facts.command for cell in cells), command])
    example = yaml.safe_dump(cells[0].facts.config, sort_keys=False).rstrip()
    return ["\n".join(commands), f"# the configuration of {cells[0].folder.name}\n{example}"]
