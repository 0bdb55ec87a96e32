"""The report of a grid of the comparison, from its finished cells."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file as load_weights

from forecaster.attention import CONTROLS
from forecaster.compare import GRIDS, finished, table
from forecaster.compare.cell import WEIGHTS, Finished
from forecaster.compare.record import Place, Row
from forecaster.config import load_dict
from forecaster.errors import DataError, UnavailableError
from forecaster.evaluate import interval_text
from forecaster.evaluate.examples import Example
from forecaster.evaluate.figures import Cost, shown, whole
from forecaster.evaluate.lags import LagProfile, lag_profile
from forecaster.lookup import did_you_mean
from forecaster.problem import Problem, make_problem, open_data
from forecaster.progress import Bar
from forecaster.report.page import Chart, Page, Section, Table
from forecaster.report.parts import (
    FRONTIER,
    LAGS,
    Entry,
    frontier_chart,
    lag_section,
    step_chart,
    window_chart,
)

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
    first = found[0].facts
    looking = [group for group in together if _shows_lags(group, together)]
    return Page(
        title=f"Comparison {name}",
        lead=f"{len(found)} trained models. Within a table only the attention varies: tokens, "
        f"optimiser steps ({first.steps}), batches, seeds and test windows are the same.",
        sections=[
            Section("figures", "Figures", [_LEGEND], [_table(group) for group in together]),
            Section("verdicts", "Verdicts", [table.verdicts(group) for group in together]),
            Section("floors", "Floors", tables=[*_floors(together, cells)]),
            Section(
                "frontier",
                "Speed, memory and error",
                [FRONTIER],
                charts=[frontier_chart(_short(group), _entries(group)) for group in together],
            ),
            Section("steps", "Error by horizon step", charts=[_steps(g, cells) for g in together]),
            Section(
                "forecasts",
                "Forecasts against truth",
                [_EXAMPLES],
                charts=[chart for g in together for chart in _examples(g, cells, problems)],
            ),
            lag_section(_LAGS, _profiles(looking, cells, problems)),
            Section("commands", "Commands and hardware", _where(found), code=_code(found, command)),
        ],
    )


_LEGEND = (
    "MSE and MAE: every test window, values scaled by the training rows, mean ± standard deviation "
    "over seeds. Parameters are counted without the linear path; * marks those not within 5 % of "
    "full attention's. Training seconds and inference ms (one window) are of one thread; memory is "
    "what one training step adds. Differences are paired over windows, with the 95 % interval of a "
    "block bootstrap, widened by the spread over seeds where there are several; verdicts are "
    "corrected by Holm's method for all types against one reference; a type that "
    "amounts to full attention at these lengths gets no verdict."
)
_EXAMPLES = (
    "For each table, the attention with the smallest validation error: its windows with the "
    "smallest, the median and the largest error, chosen among all test windows."
)
_LAGS = f"{LAGS} The charts are of each type's first seed, without the linear path if that was run."


def _key(facts: Place) -> tuple[table.Group, str]:
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
        problem = make_problem(config, data[name])
        if problem.digest != cell.facts.data_digest:
            raise DataError(
                f"{cell.folder} was trained on {cell.facts.data_digest}, but "
                f"{problem.series.source} has digest {problem.digest}"
            )
        problems[str(cell.folder)] = problem
    return problems


def _table(group: Group) -> Table:
    errors = table.known(whole("report"), group)
    costs = table.known(shown(Cost, "report"), group)
    references = table.references(group)
    head = (
        "attention", *(f"test {metric.label}" for metric in errors), "skill",
        *(head for name in references for head in (f"− {name}, 95 %", f"against {name}")),
        "parameters",
        *(metric.label for metric in costs), "seeds", "amounts to",
    )  # fmt: skip
    rows = []
    for row in group:
        compared = []
        for name in references:
            against = row.against.get(name)
            if against is None:
                compared += ["–", "amounts to full" if row.is_full else "–"]
            else:
                ends = interval_text(against.low, against.high)
                compared += [ends, table.words(against)]
        rows.append((
            row.attn, *(table.spread(row, metric) for metric in errors), table.skill(row),
            *compared, f"{row.budget_parameters:,}" + ("" if row.within_budget else " *"),
            *(metric.text(row[metric.name]) for metric in costs),
            str(len(row.seeds)), row.effective,
        ))  # fmt: skip
    said = table.smallest(group)
    caption = (
        f"{table.heading(group[0])}. Best floor: {group[0].best_floor}, "
        f"MSE {group[0].floor_mse:.4f}." + (f" Differences {said}." if said else "")
    )
    return Table(head, rows, caption)


def _floors(groups: Sequence[Group], cells: Cells) -> Iterator[Table]:
    """One table for groups that have the same floors."""
    seen: dict[str, tuple[Table, list[str]]] = {}
    for group in groups:
        floors = cells[_key(group[0])][0].facts.floors
        metrics = table.known(whole("terminal"), [*floors.values()])
        rows = [
            (name, *(metric.text(own[metric.name]) for metric in metrics))
            for name, own in floors.items()
        ]
        head = ("floor", *(metric.label for metric in metrics))
        seen.setdefault(repr(rows), (Table(head, rows), []))[1].append(_short(group))
    for found, headings in seen.values():
        yield Table(found.head, found.rows, "; ".join(headings))


def _entries(group: Group) -> list[Entry]:
    return [
        Entry(row.attn, row["mse"] or 0.0, row["inference_ms"] or 0.0, row["peak_mib"])
        for row in group
    ]


def _steps(group: Group, cells: Cells) -> Chart:
    """A chart with the references, the best and the worst in colour, the others in grey."""
    curves = {
        row.attn: np.mean(
            [np.array(cell.facts.by_step["mse"], float) for cell in cells[_key(row)]], axis=0
        ).tolist()
        for row in group
    }
    order = sorted(group, key=lambda row: row["mse"] or 0.0)
    references = [name for name in ("full", *CONTROLS) if name in curves]
    bold = dict.fromkeys([*references, order[0].attn, order[-1].attn])
    return step_chart(_short(group), curves, None, list(bold))


def _examples(group: Group, cells: Cells, problems: dict[str, Problem]) -> Iterator[Chart]:
    def validation(row: Row) -> float:
        return float(np.mean([cell.facts.validation_mse for cell in cells[_key(row)]]))

    cell = cells[_key(min(group, key=validation))][0]
    problem, facts = problems[str(cell.folder)], cell.facts
    test, arrays = problem.test("cpu"), cell.arrays()
    name = f"{_short(group)}: {facts.attn}, seed {facts.seed}"
    for kind, number in facts.examples.items():
        parts = (arrays[f"{kind}.{part}"] for part in ("past", "truth", "forecast"))
        yield window_chart(name, problem, test, kind, Example(number, *parts), arrays["by_window"])


def _shows_lags(group: Group, groups: Sequence[Group]) -> bool:
    """Whether to show lags: without the linear path if there is such a group, since only the
    attention looks back there."""
    *same, linear = table.group_of(group[0])
    return not linear or (*same, False) not in [table.group_of(other[0]) for other in groups]


def _profiles(
    groups: Sequence[Group], cells: Cells, problems: dict[str, Problem]
) -> Iterator[tuple[str, LagProfile, int]]:
    chosen = [(group, cells[_key(row)][0]) for group in groups for row in group]
    steps = sum(cell.facts.horizon for _, cell in chosen)
    with Bar("lag profiles", steps) as bar:
        for group, cell in chosen:
            attn = cell.facts.attn
            problem = problems[str(cell.folder)]
            bar.advance(attn, 0)
            profile = _profile(cell, problem, lambda step, attn=attn: bar.advance(attn, step))
            yield f"{_short(group)}: {attn}", profile, problem.dataset.seasons[0]


def _profile(cell: Finished, problem: Problem, report: Any) -> LagProfile:
    """The lag profile of a cell, read from its folder if it is there."""
    file = cell.folder / LAG_FILE
    if file.is_file():
        report(cell.facts.horizon)
        return LagProfile(load_arrays(file)["matrix"], LAG_WINDOWS)
    model = problem.build_model()
    model.load_state_dict(load_weights(cell.folder / WEIGHTS))
    profile = lag_profile(model, problem.test("cpu"), LAG_WINDOWS, report)
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
