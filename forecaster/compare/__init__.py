"""Grids of runs that differ in the attention alone: define, train, track, compare.

A grid is kept in runs/grids/NAME: grid.json defines it, cells/NAME holds each finished cell.
Finished cells are not run again, however the grid was stopped.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from forecaster import cluster, tables
from forecaster.compare import table
from forecaster.compare.cell import (
    FACTS,
    Finished,
    Shared,
    read,
    read_json,
    train,
    train_apart,
    unpack,
    write_json,
)
from forecaster.compare.grid import Cell, Definition, Grid, define, resolve
from forecaster.compare.grid import read as read_grid
from forecaster.compare.record import CellRecord, Row
from forecaster.config import differences
from forecaster.errors import ForecasterError, StorageError, UnavailableError, UsageError
from forecaster.evaluate.figures import Cost, ErrorMetric, shown
from forecaster.progress import Bar, Say
from forecaster.record import Value
from forecaster.resources import commit
from forecaster.tracking import pages
from forecaster.workers import FailedError, each

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
) -> Outcome:
    """Run the unfinished cells of a grid, `jobs` at a time on one thread each.

    With `ray`, the address of a cluster as `cluster.each` takes it, they run there, each with the
    given share of a GPU, and their files are sent back.

    A failed cell stops no other. Only this process logs cells to the tracker, as they finish; if
    the tracker is lost on the way, the grid continues, and the next call catches up.
    """
    folder = GRIDS / grid.name
    with _locked(folder):
        parent = _enter(folder, grid)
        done = {cell.name: old for cell in grid.cells if (old := _known(folder, grid, cell))}
        left = [cell for cell in grid.cells if cell.name not in done]
        processes = max(1, min(jobs, len(left)))
        say(
            f"grid {grid.name} in {folder}: {len(grid.cells)} cells, {len(done)} of them finished; "
            + (f"{processes} at a time" if ray in (None, cluster.LOCAL) else f"on Ray at {ray}")
        )
        failed: dict[str, str] = {}
        shared = Shared(grid.data, folder / "cells", commit(), command)
        with (
            _tracker(grid, folder, parent, tracked, say) as tracker,
            Bar("{task.completed} of {task.total} cells", len(grid.cells), len(done)) as bar,
        ):
            pace = _Pace(grid, done, processes)
            for name, found in done.items():
                done[name] = tracker.add(found)
            for cell, outcome in _each(shared, left, processes, ray, gpus):
                if isinstance(outcome, FailedError):
                    outcome = failed[cell.name] = str(outcome)
                else:
                    outcome = done[cell.name] = tracker.add(outcome)
                line, to_go = pace.line(cell, outcome)
                bar.advance(to_go, 1)
                bar.line(line)
            cells = [done[cell.name] for cell in grid.cells if cell.name in done]
            if cells:
                tracker.verdicts(table.rows(cells))
        return Outcome(folder, cells, failed, tracker.ui_command)


def _each(
    shared: Shared, left: Sequence[Cell], processes: int, ray: str | None, gpus: float
) -> Iterator[tuple[Cell, Any]]:
    """Train cells; yields each as it finishes, or why it failed."""
    if ray is None:
        yield from each(train, shared, left, processes)
    elif left:
        for cell, found in cluster.each(train_apart, shared, left, ray, processes, gpus):
            lost = isinstance(found, FailedError)
            yield cell, found if lost else unpack(shared.folder / cell.name, found)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise UsageError(f"another process is using {folder}") from None
    except OSError as error:
        raise StorageError(f"{folder} cannot be used: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _enter(folder: Path, grid: Grid) -> str | None:
    """Write grid.json, or compare the existing one; returns the tracked run that it names.

    Raises UsageError when another grid has that name.
    """
    file = folder / "grid.json"
    new = json.loads(json.dumps(grid.to_dict()))
    for leftover in folder.glob("cells/.*"):
        shutil.rmtree(leftover)
    if not file.exists():
        write_json(file, new)
        return None
    old = read_json(file)
    parent: str | None = old.pop("mlflow_run_id", None)
    if differing := differences(old, new):
        shown = "\n".join(f"  {line}" for line in differing[:8])
        more = f"\n  and {len(differing) - 8} more" if len(differing) > 8 else ""
        raise UsageError(
            f"{folder} holds another grid of that name; cells of both are not comparable:\n"
            f"{shown}{more}\nGive this one another --name, or remove the folder."
        )
    return parent


def _known(folder: Path, grid: Grid, cell: Cell) -> Finished | None:
    """The finished cell, if it exists with the same configuration and data."""
    own = folder / "cells" / cell.name
    if not own.exists():
        return None
    found = read(own)
    digest = grid.data[cell.data].digest
    for what, here in (("config_digest", cell.digest), ("data_digest", digest)):
        if (there := getattr(found.facts, what)) != here:
            raise UsageError(
                f"{own} is another cell: its {what} is {there}, not {here}. Remove it "
                "to run it again."
            )
    return found


class _Tracker:
    """Logs cells to a run in progress; does nothing without one, or after losing it."""

    def __init__(self, grid: Grid, run: "Run | None", say: Say) -> None:
        self.run, self.say = run, say
        self.configs = {cell.name: cell.config for cell in grid.cells}
        self.called = {"grid": grid.name, "config": grid.definition.protocol.config}
        self.varied = grid.definition.varied()
        self.ui_command = run.ui_command if run else ""

    def add(self, cell: Finished) -> Finished:
        """Track a cell that is not tracked yet; returns it with the id of its run."""
        from forecaster.tracking.run import start

        name, facts = cell.folder.name, cell.facts
        if self.run is None or facts.mlflow_run_id is not None:
            return cell
        tags = {**self.called, **{tag: str(getattr(facts, key)) for key, tag in TAGS.items()}}
        config = self.configs[name]
        own = {"blend": "none", **{key: str(getattr(facts, key)) for key in ("regime", "steps")}}
        try:
            called, above = f"{tags['grid']}-{name}", self.run.id
            with start(config, called, tags, parent=above, say=self.say) as run:
                run.params({**pages.params(config, self.varied), **own})
                run.metrics(_measured(facts))
                run.tables(_tables(facts))
                run.text(FACTS, json.dumps(facts.to_dict(), indent=1))
            return cell.note(mlflow_run_id=run.id)
        except UnavailableError as error:
            self._lost(error)
            return cell

    def verdicts(self, rows: list[Row]) -> None:
        """Log the result of the grid, in the description of its run and in files."""
        try:
            if self.run is not None:
                self.run.text("table.txt", table.text(rows))
                self.run.tables({"verdicts": table.flat(rows)})
                self.run.describe(table.summary(rows), table.markdown(rows))
        except UnavailableError as error:
            self._lost(error)

    def _lost(self, error: ForecasterError) -> None:
        self.run = None
        self.say(f"{error}\nThe grid continues untracked; the same command catches up later.")


def _measured(facts: CellRecord) -> dict[str, float]:
    """The figures of a cell by the names of a run's; only its network is tested."""
    mse, (_, best) = facts["mse"], facts.best_floor
    found: dict[str, Value] = {
        pages.FIRST: mse,
        "test_mse": mse,
        "test_mae": facts["mae"],
        "skill": 1 - mse / best if mse is not None and best > 0 else None,
        "validation_mse": facts.validation_mse,
        "parameters": facts.parameters,
        **{metric.name: facts[metric.name] for metric in shown(Cost, "tracker")},
    }
    return {key: value for key, value in found.items() if value is not None}


def _tables(facts: CellRecord) -> dict[str, list[tables.Row]]:
    """All figures of a cell and those of its floors, in rows."""
    kept = [metric.name for metric in shown(ErrorMetric, "tracker")]
    own = {name: facts[name] for name in kept if name in facts.measured}
    floors = [{"forecast": name, **errors.measured} for name, errors in facts.floors.items()]
    return {"forecasts": [{"forecast": "model", **own}, *floors]}


@contextmanager
def _tracker(
    grid: Grid, folder: Path, parent: str | None, tracked: bool, say: Say
) -> Iterator[_Tracker]:
    """The tracker with the grid's run, continued if the store still has it."""
    if not tracked:
        yield _Tracker(grid, None, say)
        return
    from forecaster.tracking.run import start

    protocol = grid.definition.protocol
    tags = {"grid": grid.name, "cells": str(len(grid.cells)), "steps": str(protocol.steps)}
    with start(grid.cells[0].config, grid.name, tags, again=parent, say=say) as run:
        document = json.loads(json.dumps(grid.to_dict()))
        if run.id != parent:
            run.text("grid.json", json.dumps(document, indent=1))
            write_json(folder / "grid.json", {**document, "mlflow_run_id": run.id})
        yield _Tracker(grid, run, say)


class _Pace:
    """Lines about each cell when it ends, and estimates of the time for the others."""

    def __init__(self, grid: Grid, done: Mapping[str, Finished], processes: int) -> None:
        self.processes = processes
        self.left = {cell.name: cell for cell in grid.cells if cell.name not in done}
        self.total = len(grid.cells)
        self.seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for cell in grid.cells:
            if cell.name in done:
                self._learn(cell, done[cell.name])

    def line(self, cell: Cell, outcome: Finished | str) -> tuple[str, str]:
        """A line about a cell that has finished, or failed for a reason; and the remaining time."""
        del self.left[cell.name]
        if isinstance(outcome, str):
            said = f"FAILED: {outcome}"
        else:
            self._learn(cell, outcome)
            facts = outcome.facts
            said = f"MSE {facts['mse']:.4f}, MAE {facts['mae']:.4f}, {facts.seconds:.0f} s"
        to_go = self._to_go()
        number = f"{self.total - len(self.left)}/{self.total}"
        return f"{number} {cell.name}: {said}{f'; {to_go}' if to_go else ''}", to_go

    def _learn(self, cell: Cell, found: Finished) -> None:
        for key in _alike(cell):
            self.seconds[key].append(found.facts.seconds)

    def _to_go(self) -> str:
        """The remaining time, from the mean time of the most similar cells."""
        if not self.left or not self.seconds:
            return ""
        expected = sum(
            mean(next(self.seconds[key] for key in _alike(cell) if key in self.seconds))
            for cell in self.left.values()
        )
        minutes = expected / min(self.processes, len(self.left)) / 60
        return f"{minutes:.0f} min to go" if minutes >= 1 else "less than a minute to go"


def _alike(cell: Cell) -> list[tuple[str, ...]]:
    """The keys by which cells have similar times, the best first."""
    group = (cell.data, str(cell.horizon), cell.regime)
    return [(*group, cell.attn), group, ()]
