"""Grids of runs that differ in the attention alone: define, train, track, compare.

A grid is kept in runs/grids/NAME: grid.json defines it, cells/NAME holds each finished cell.
Finished cells are not run again, however the grid was stopped.
"""

import json
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from forecaster.base import cluster
from forecaster.base.errors import UsageError
from forecaster.base.installation import commit
from forecaster.base.progress import Bar, Say, lasting
from forecaster.base.workers import FailedError, each
from forecaster.config.run_config import differences
from forecaster.evaluate.figures import Cost, shown
from forecaster.record import Value
from forecaster.record.folder import hold, make_folder
from forecaster.study.compare import table
from forecaster.study.compare.cell import (
    FACTS,
    Finished,
    keep,
    read,
    read_json,
    seconds_of,
    train,
    write_json,
)
from forecaster.study.compare.grid import Cell, Definition, Grid, define, resolve
from forecaster.study.compare.grid import read as read_grid
from forecaster.study.compare.record import CellRecord
from forecaster.tracking import texts

if TYPE_CHECKING:
    from forecaster.tracking.run import Run

__all__ = [
    "Cell", "Definition", "Finished", "Grid", "Outcome", "define", "finished", "read_grid",
    "resolve", "run", "table",
]  # fmt: skip

GRIDS = Path("runs/grids")
"""The folder of grids, below the working directory."""
TAGS = {
    **{key: key for key in ("data", "horizon", "attn", "regime", "linear", "is_full")},
    "effective": "attn.effective", "data_digest": "data.digest", "commit": "git.commit",
}  # fmt: skip
"""The facts of a cell that the tracker gets as tags, and their names there, as for a run."""


@dataclass(frozen=True)
class Outcome:
    """The result of a grid: its finished cells, and the reasons why others failed."""

    folder: Path
    cells: list[Finished]
    failed: dict[str, str]
    ui_command: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "ui": self.ui_command,
            "cells": [{"folder": str(cell.folder), **cell.facts.to_dict()} for cell in self.cells],
            "rows": [row.to_dict() for row in table.rows(self.cells)],
            "failed": self.failed,
        }


def finished(folder: Path) -> list[Finished]:
    """The finished cells of a grid's folder. Raises UsageError when there are none."""
    cells = [read(file.parent) for file in sorted(folder.glob(f"cells/[!.]*/{FACTS}"))]
    if not cells:
        raise UsageError(f"no finished cell in {folder}: run `forecaster compare` first")
    return cells


def run(
    grid: Grid,
    say: Say,
    *,
    jobs: int,
    tracked: bool,
    command: str,
    ray: str | None = None,
    gpus: float = 0.0,
    time_limit: float | None = None,
) -> Outcome:
    """Run the unfinished cells of a grid, `jobs` at a time on one thread each.

    No cell is waited for once `time_limit` seconds are over and one has finished.

    With `ray`, the address of a cluster as `cluster.each` takes it, they run there, each with the
    given share of a GPU, and their files are sent back.

    A failed cell stops no other. Only this process keeps cells and logs them to the tracker, as
    they finish; the next call logs those that the tracker does not have.
    """
    folder = GRIDS / grid.name
    with _locked(folder), ExitStack() as stack:
        parent = _enter(folder, grid)
        done = {cell.name: old for cell in grid.cells if (old := _known(folder, grid, cell))}
        left = [cell for cell in grid.cells if cell.name not in done]
        processes = max(1, min(jobs, len(left)))
        say(
            f"grid {grid.name} in {folder}: {len(grid.cells)} cells, {len(done)} of them finished; "
            + (f"{processes} at a time" if ray in (None, cluster.LOCAL) else f"on Ray at {ray}")
        )
        if left and ray is None:
            some = left[:: max(1, len(left) // 3)][:3]
            seconds = sum(seconds_of(cell, grid.data) for cell in some) / len(some)
            whole = lasting(seconds * len(left) / processes)
            say(f"about {whole} for {len(left)} cells, by a few steps of three")
        end = time.monotonic() + (time_limit or math.inf)
        above = stack.enter_context(_tracker(grid, parent, say)) if tracked else None
        bar = Bar("{task.completed} of {task.total} cells", len(grid.cells), len(done))
        stack.enter_context(bar)
        logged = {
            name: _log(above, grid, cell, done[name].facts)
            for cell in grid.cells
            if above and (name := cell.name) in done and done[name].facts.mlflow_run_id is None
        }
        failed: dict[str, str] = {}
        shared = grid.data, commit(), command
        working = (
            each(train, shared, left, processes)
            if ray is None or not left
            else cluster.each(train, shared, left, ray, processes, gpus)
        )
        for cell, outcome in working:
            if isinstance(outcome, FailedError):
                failed[cell.name] = str(outcome)
                sentence = f"FAILED: {outcome}"
            else:
                done[cell.name] = keep(folder / "cells" / cell.name, outcome)
                facts = done[cell.name].facts
                if above:
                    logged[cell.name] = _log(above, grid, cell, facts)
                sentence = f"MSE {facts['mse']:.4f}, MAE {facts['mae']:.4f}, {facts.seconds:.0f} s"
            bar.advance(cell.name, 1)
            bar.line(f"{len(done) + len(failed)}/{len(grid.cells)} {cell.name}: {sentence}")
            if time.monotonic() > end:
                say("the time is over; the same command continues with the other cells")
                break
        if above and done:
            rows = table.rows([done[cell.name] for cell in grid.cells if cell.name in done])
            above.text("table.txt", table.text(rows))
            above.tables({"verdicts": table.flat(rows)})
            above.describe(table.SUMMARY, table.markdown(rows))
        stack.close()  # this waits for the tracker
        if above and above.whole:
            done |= {name: done[name].note(mlflow_run_id=key) for name, key in logged.items()}
        cells = [done[cell.name] for cell in grid.cells if cell.name in done]
        return Outcome(folder, cells, failed, above.ui_command if above else "")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    make_folder(folder)
    lock = hold(folder / ".lock")
    if lock is None:
        raise UsageError(f"another process is using {folder}")
    try:
        yield
    finally:
        lock.release()


def _enter(folder: Path, grid: Grid) -> str:
    """Write grid.json, or compare the existing one; returns our id of its run in the tracker.

    Raises UsageError when another grid has that name.
    """
    file = folder / "grid.json"
    new = json.loads(json.dumps(grid.to_dict()))
    for leftover in folder.glob("cells/.*"):
        shutil.rmtree(leftover)
    old = read_json(file) if file.exists() else {**new}
    key: str = old.pop("mlflow_run_id", None) or uuid4().hex
    if differing := differences(old, new):
        shown = "\n".join(f"  {line}" for line in differing[:8])
        raise UsageError(
            f"{folder} holds another grid of that name; cells of both are not comparable:\n"
            f"{shown}\nGive this one another --name, or remove the folder."
        )
    write_json(file, {**new, "mlflow_run_id": key})
    return key


def _known(folder: Path, grid: Grid, cell: Cell) -> Finished | None:
    """The finished cell, if it exists with the same configuration and data."""
    place = folder / "cells" / cell.name
    if not place.exists():
        return None
    facts = read(place)
    digest = grid.data[cell.data].digest
    for what, here in (("config_digest", cell.digest), ("data_digest", digest)):
        if (there := getattr(facts.facts, what)) != here:
            raise UsageError(
                f"{place} is another cell: its {what} is {there}, not {here}. Remove it "
                "to run it again."
            )
    return facts


@contextmanager
def _tracker(grid: Grid, key: str, say: Say) -> Iterator["Run"]:
    """The tracked run of a grid, continued if the store has it."""
    from forecaster.tracking.run import start

    protocol = grid.definition.protocol
    tags = {"grid": grid.name, "cells": str(len(grid.cells)), "steps": str(protocol.steps)}
    later = "The same command logs the rest."
    with start(grid.cells[0].config, grid.name, tags, key=key, later=later, say=say) as run:
        run.text("grid.json", json.dumps(grid.to_dict(), indent=1))
        yield run


def _log(above: "Run", grid: Grid, cell: Cell, facts: CellRecord) -> str:
    """Log a cell below the run of its grid; returns our id of its run."""
    tags = {tag: str(getattr(facts, key)) for key, tag in TAGS.items()}
    tags |= {"grid": grid.name, "config": grid.definition.protocol.config}
    settings = {"blend": "none", "regime": cell.regime, "steps": str(cell.steps)}
    params = {**texts.params(cell.config, grid.definition.varied()), **settings}
    documents = {FACTS: json.dumps(facts.to_dict(), indent=1)}
    return above.child(f"{grid.name}-{cell.name}", tags, params, _measured(facts), documents)


def _measured(facts: CellRecord) -> dict[str, float]:
    """The figures of a cell by the names of a run's; only its network is tested."""
    mse, (_, best) = facts["mse"], facts.best_floor
    figures: dict[str, Value] = {
        texts.FIRST: mse,
        "test_mse": mse,
        "test_mae": facts["mae"],
        "skill": 1 - mse / best if mse is not None and best > 0 else None,
        "validation_mse": facts.validation_mse,
        "parameters": facts.parameters,
        **{metric.name: facts[metric.name] for metric in shown(Cost, "tracker")},
    }
    return {key: value for key, value in figures.items() if value is not None}
