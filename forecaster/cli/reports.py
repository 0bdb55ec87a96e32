"""Compare attention types; write about runs and grids."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster.base.errors import ForecasterError, UsageError
from forecaster.cli import options
from forecaster.cli.output import command, print_json, print_pages, say
from forecaster.config.flags import names, numbers, parse, seconds


@options.described(
    attn='"all", or comma-separated names; full and the controls are always included.',
    horizon="Steps to forecast, comma-separated.",
    data="Data sets, comma-separated.",
    seeds="How many, from 0.",
    steps="Optimiser steps of a cell.",
    epochs="Train each cell for so many epochs, instead of a number of steps.",
    time_limit="End after this time, such as 30m; the same command continues.",
    grid="A name in configs/grids/ or a YAML file, for everything not given here.",
    name="Name of the folder in runs/grids; by default the grid's.",
    jobs="Cells at a time, one thread each; by default all cores, on a GPU one.",
)
def compare(
    attn: str | None = None,
    horizon: str | None = None,
    data: str | None = None,
    seeds: options.CountOrNone = None,
    steps: options.CountOrNone = None,
    epochs: options.CountOrNone = None,
    time_limit: str | None = None,
    grid: str = "default",
    name: str | None = None,
    config: options.Config = None,
    set_: options.Set = None,
    jobs: options.CountOrNone = None,
    ray: options.Ray = None,
    gpus: options.Gpus = 0.0,
    tracked: options.Tracked = True,
    as_json: options.AsJson = False,
) -> None:
    """Compare attention types, all else equal.

    Trains every type, with and without the linear path, at several numbers of tokens, for the same
    optimiser steps on the same batches and with about the same parameters, and reports which
    differences are measurable. Finished cells are not run again, so you can stop and continue.

    Example: forecaster compare --attn all --horizon 96,336 --seeds 3
    """
    options.check_gpus(gpus, ray)
    from forecaster.base import machine, quota
    from forecaster.config.run_config import DataConfig
    from forecaster.study import compare as comparison

    stem, values = comparison.read_grid(grid)
    sentences = {
        "attn": attn if attn in (None, "all") else names(attn),
        "horizons": horizon and parse("--horizon", numbers, horizon),
        "data": data and names(data),
        "seeds": seeds,
        "protocol.steps": steps,
        "protocol.epochs": epochs,
        "protocol.config": config,
        "protocol.set": set_,
    }
    changes = {key: value for key, value in sentences.items() if value is not None}
    definition = comparison.define(values, changes, grid)
    if name is None:
        labels = [DataConfig(name=data_set).label for data_set in definition.data]
        name = "-".join([*labels, *map(str, definition.horizons)]) if changes else stem
    cores = quota.cores()
    if jobs is not None and jobs > cores:
        say(f"--jobs {jobs}: this machine has only {cores} cores, so {cores} cells at a time")
    resolved = comparison.resolve(name, definition, say)
    device = machine.device(resolved.cells[0].config.device)
    usual = 1 if device == "cuda" else cores  # --ray gives each GPU cells of its own
    where: dict[str, Any] = {"jobs": min(jobs or usual, cores), "ray": ray, "gpus": gpus}
    where["time_limit"] = parse("--time-limit", seconds, time_limit) if time_limit else None
    outcome = comparison.run(resolved, say, tracked=tracked, command=command(), **where)
    if as_json:
        print_json(outcome.to_dict())
    elif outcome.cells:
        rows = comparison.table.rows(outcome.cells)
        print(f"{comparison.table.text(rows)}\n\n{comparison.table.conclusion(rows)}")
        print(f"\ngrid     {outcome.folder}")
        print_pages("runs", outcome.ui_command)
    if outcome.failed:
        raise ForecasterError(
            f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.cells)} cells failed; "
            "the same command runs them again:\n"
            + "\n".join(f"  {cell}: {why}" for cell, why in outcome.failed.items())
        )


@options.described(
    grid="Name of a grid in runs/grids.",
    output="The file to write.",
    samples="How many paths to draw of the next steps of each run.",
)
def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help=options.MODEL, callback=options.can_be_models),
    ] = None,
    grid: str | None = None,
    output: Path = Path("report.html"),
    samples: Annotated[int | None, typer.Option(min=1)] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write one HTML file about trained models, or about a grid.

    The report shows what training found: figures with their floors and verdicts, error by horizon
    step, and forecasts against truth; of a grid, also error against speed and memory. The file is
    self-contained: it needs no network and no script.

    Example: forecaster report --grid default --output comparison.html
    """
    if bool(runs) == bool(grid):
        raise UsageError(
            "expected either runs (folders, MLflow run ids or registered names) or one --grid"
        )
    from forecaster.report import write

    if grid:
        from forecaster.study.compare.grid_page import of_grid

        page = of_grid(grid, command())
    else:
        from forecaster.report.runs import of_runs

        page = of_runs(runs or [], command(), samples)
    size = write(page, output)
    if as_json:
        print_json({"file": str(output), "bytes": size})
    else:
        print(output)
