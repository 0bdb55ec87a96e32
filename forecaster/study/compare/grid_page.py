"""The report of a grid of the comparison, from its finished cells."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file as load_weights

from forecaster.base.errors import DataError, UnavailableError
from forecaster.base.names import did_you_mean
from forecaster.base.progress import Bar
from forecaster.config.run_config import load_dict
from forecaster.evaluate import interval_text
from forecaster.evaluate.display import step_figure
from forecaster.evaluate.lags import LagProfile, lag_profile
from forecaster.evaluate.problem import Problem, make_problem, open_data
from forecaster.model import ForecastModel
from forecaster.report.page import Chart, Page, Section, Table
from forecaster.report.parts import LAGS, Costs, frontier_chart, lag_chart
from forecaster.study.compare import GRIDS, finished, table
from forecaster.study.compare.cell import WEIGHTS, Finished
from forecaster.study.compare.record import CellFacts, Row

Group = list[Row]
"""The rows of one table; only the attention varies between them."""
Cells = dict[tuple[table.Group, str], list[Finished]]
"""The finished cells of a row, by its group and attention."""
LAG_WINDOWS = 8
LAG_FILE = "lags.safetensors"
"""A file in the cell's folder, so that a profile is computed once; a new cell has none."""


def of_grid(name: str, command: str) -> Page:
    """The page for the grid of that name below runs/grids.

    Raises UnavailableError when there is no such grid, UsageError when none of its cells is
    finished, DataError when the data are not those that it was trained on.
    """
    folder = GRIDS / name
    if not folder.is_dir():
        known = sorted(path.name for path in GRIDS.glob("*/")) if GRIDS.is_dir() else []
        there = f"There are: {', '.join(known)}." if known else "There is none yet."
        raise UnavailableError(
            f"no grid '{name}' in {GRIDS.resolve()}.{did_you_mean(name, known)} {there} "
            "`forecaster compare` makes one."
        )
    found = finished(folder)
    cells: Cells = defaultdict(list)
    for cell in found:
        cells[_key(cell.facts)].append(cell)
    together = table.groups(table.rows(found))
    problems = _problems(found)
    looking = [group for group in together if _shows_lags(group, together)]
    return Page(
        title=f"Comparison {name}",
        lead=f"{len(found)} trained models. Within a table only the attention varies: tokens, "
        f"optimiser steps ({found[0].facts.steps}), batches, seeds and test windows are the same.",
        sections=[
            Section(
                "figures",
                "Figures",
                [table.LEGEND],
                [_table(group) for group in together],
                [frontier_chart(_short(group), _costs(group)) for group in together],
            ),
            Section("steps", "Error by horizon step", charts=[_steps(g, cells) for g in together]),
            Section("lags", "What the forecast looks at", [_LAGS],
                    charts=[*_profiles(looking, cells, problems)]),
            Section("commands", "Commands and hardware", _where(found), code=_code(found, command)),
        ],
    )  # fmt: skip


_LAGS = f"{LAGS} The charts are of each type's first seed, without the linear path if that was run."


def _key(facts: CellFacts) -> tuple[table.Group, str]:
    return table.group_of(facts), facts.attn


def _short(group: Group) -> str:
    return table.heading(group[0]).partition(";")[0]


def _problems(cells: Sequence[Finished]) -> dict[str, Problem]:
    """The problem of each configuration, by its cell's folder; the data are read once."""
    data: dict[str, Any] = {}
    problems = {}
    for cell in cells:
        config = load_dict(cell.facts.config, str(cell.folder))
        name = config.data.name
        if name not in data:
            data[name] = open_data(config.data)
        problem = make_problem(config, data[name], effects=None)
        if problem.digest != cell.facts.data_digest:
            raise DataError(
                f"{cell.folder} was trained on {cell.facts.data_digest}, but "
                f"{problem.series.source} has digest {problem.digest}"
            )
        problems[str(cell.folder)] = problem
    return problems


def _table(group: Group) -> Table:
    """The columns of the terminal, and beside them the intervals and what a type amounts to."""
    found = table.columns(group, "report")
    for name in table.references(group):
        compared = [row.against.get(name) for row in group]
        found[f"− {name}, 95 %"] = [
            interval_text(own.low, own.high) if own else "–" for own in compared
        ]
    found["amounts to"] = [row.effective for row in group]
    return Table([*found], [*zip(*found.values(), strict=True)], "; ".join(table.about(group)))


def _costs(group: Group) -> dict[str, Costs]:
    return {
        row.attn: Costs(row["inference_ms"] or 0.0, row["mse"] or 0.0, row["peak_mib"] or 0.0)
        for row in group
    }


def _steps(group: Group, cells: Cells) -> Chart:
    """The means over the seeds of each attention, the best first."""
    curves = {
        row.attn: tuple(
            np.mean([np.array(own.facts.by_step[kind], float) for own in cells[_key(row)]], axis=0)
            for kind in ("mse", "mae")
        )
        for row in sorted(group, key=lambda row: row["mse"] or 0.0)
    }
    return Chart(step_figure(curves, "", group[0].windows, from_zero=False), _short(group))


def _model(cell: Finished, problem: Problem) -> ForecastModel:
    """The trained model of a cell."""
    model = problem.build_model()
    model.load_state_dict(load_weights(cell.folder / WEIGHTS))
    return model.eval()


def _shows_lags(group: Group, groups: Sequence[Group]) -> bool:
    """Whether to show lags: without the linear path if there is such a group, since only the
    attention looks back there."""
    *same, linear = table.group_of(group[0])
    return not linear or (*same, False) not in [table.group_of(other[0]) for other in groups]


def _profiles(
    groups: Sequence[Group], cells: Cells, problems: dict[str, Problem]
) -> Iterator[Chart]:
    with Bar("lag profiles", sum(row.horizon for group in groups for row in group)) as bar:
        for group in groups:
            found = {}
            for row in group:
                cell = cells[_key(row)][0]
                problem = problems[str(cell.folder)]
                bar.advance(row.attn, 0)
                found[row.attn] = _profile(
                    cell, problem, lambda step, attn=row.attn: bar.advance(attn, step)
                )
            yield lag_chart(_short(group), found, problem.dataset.seasons[0])


def _profile(cell: Finished, problem: Problem, report: Any) -> LagProfile:
    """The lag profile of a cell, read from its folder if it is there."""
    file = cell.folder / LAG_FILE
    if file.is_file():
        report(cell.facts.horizon)
        return LagProfile(load_arrays(file)["matrix"], LAG_WINDOWS)
    profile = lag_profile(_model(cell, problem), problem.test("cpu"), LAG_WINDOWS, report)
    save_arrays({"matrix": profile.matrix}, file)
    return profile


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
