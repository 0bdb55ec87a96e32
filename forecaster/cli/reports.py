"""Compare attention types; write about runs and grids."""

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli.options import (
    MODEL,
    AsJson,
    Config,
    Device,
    Gpus,
    Ray,
    Set,
    can_be_models,
    check_gpus,
)
from forecaster.cli.output import command, print_json, print_pages, say
from forecaster.errors import ForecasterError, UsageError
from forecaster.flags import names, numbers, parse


def compare(
    attn: Annotated[
        str | None,
        typer.Option(
            help='"all", or comma-separated names; full and the controls are always included.'
        ),
    ] = None,
    horizon: Annotated[str | None, typer.Option(help="Steps to forecast, comma-separated.")] = None,
    data: Annotated[str | None, typer.Option(help="Data sets, comma-separated.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from 0.", min=1)] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps of a cell.", min=1)] = None,
    grid: Annotated[
        str,
        typer.Option(
            help="A name in configs/grids/ or a YAML file, for everything not given here."
        ),
    ] = "default",
    name: Annotated[
        str | None, typer.Option(help="Name of the folder in runs/grids; by default the grid's.")
    ] = None,
    config: Config = None,
    set_: Set = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Cells at a time, one thread each; by default all cores.", min=1),
    ] = None,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    tracked: Annotated[bool, typer.Option("--track/--no-track", help="Track in MLflow.")] = True,
    as_json: AsJson = False,
) -> None:
    """Compare attention types, all else equal.

    Trains every type, with and without the linear path, at several numbers of tokens, for the same
    optimiser steps on the same batches and with about the same parameters, and reports which
    differences are measurable. Finished cells are not run again, so you can stop and continue.

    Example: forecaster compare --attn all --horizon 96,336 --seeds 3
    """
    check_gpus(gpus, ray)
    from forecaster import compare as comparison
    from forecaster import machine
    from forecaster.config import DataConfig

    stem, values = comparison.read_grid(grid)
    said = {
        "attn": attn if attn in (None, "all") else names(attn),
        "horizons": horizon and parse("--horizon", numbers, horizon),
        "data": data and names(data),
        "seeds": seeds,
        "protocol.steps": steps,
        "protocol.config": config,
        "protocol.set": set_,
    }
    changes = {key: value for key, value in said.items() if value is not None}
    definition = comparison.define(values, changes, grid)
    if name is None:
        labels = [DataConfig(name=each).label for each in definition.data]
        name = "-".join([*labels, *map(str, definition.horizons)]) if changes else stem
    cores = machine.cores()
    if jobs is not None and jobs > cores:
        say(f"--jobs {jobs}: this machine has only {cores} cores, so {cores} cells at a time")
    outcome = comparison.run(
        comparison.resolve(name, definition),
        say,
        jobs=min(jobs or cores, cores),
        tracked=tracked,
        command=command(),
        ray=ray,
        gpus=gpus,
    )
    if as_json:
        print_json(outcome.to_dict())
    elif outcome.cells:
        print(comparison.table.text(comparison.table.rows(outcome.cells)))
        print(f"\ngrid     {outcome.folder}")
        print_pages("runs", outcome.ui_command)
    if outcome.failed:
        raise ForecasterError(
            f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.cells)} cells failed; "
            "the same command runs them again:\n"
            + "\n".join(f"  {cell}: {why}" for cell, why in outcome.failed.items())
        )


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help=MODEL, callback=can_be_models)
    ] = None,
    grid: Annotated[str | None, typer.Option(help="Name of a grid in runs/grids.")] = None,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file about trained models, or about a grid.

    The report shows figures with their floors and verdicts, speed against memory and error, error
    by horizon step, forecasts against truth, and the lags that each model reads. The file is
    self-contained: it needs no network and no script. Models are judged anew on every test window.

    Example: forecaster report --grid default --output comparison.html
    """
    if bool(runs) == bool(grid):
        raise UsageError(
            "expected either runs (folders, MLflow run ids or registered names) or one --grid"
        )
    from forecaster.report import write

    if grid:
        from forecaster.report.grid import of_grid

        page = of_grid(grid, command())
    else:
        from forecaster import machine
        from forecaster.report.runs import of_runs

        page = of_runs(runs or [], command(), machine.device(device or "auto"))
    size = write(page, output)
    if as_json:
        print_json({"file": str(output), "bytes": size})
    else:
        print(output)
