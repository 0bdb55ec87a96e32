"""Keep models: name the one that is served, upload runs, write ONNX; report on the installation."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from forecaster.base.errors import UnavailableError, UsageError
from forecaster.base.version import __version__
from forecaster.cli.options import AsJson, Model, described
from forecaster.cli.output import print_json, row, say


@described(model="NAME/VERSION, NAME@alias, the id of a run or its bundle's folder.")
def promote(model: Annotated[str, typer.Argument(metavar="MODEL")]) -> None:
    """Make a registered model the champion, which is served.

    A service follows within half a minute. Training promotes a model by itself if it is measurably
    better on the same data (docs/mlflow.md).

    Example: forecaster promote forecaster-ETTh1-M-all-336/3
    """
    from forecaster.tracking.registry import promote as chosen

    if Path(model).is_dir():
        from forecaster.forecast.predictor import load_bundle

        model = str(load_bundle(model).about.get("run_id"))
    print(chosen(model))


@described(runs="Names or folders of runs; by default all in runs/.")
def sync(
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...")] = None,
    as_json: AsJson = False,
) -> None:
    """Upload to MLflow what it does not have yet.

    A run never waits for MLflow: what it lacks of runs/NAME, because it was slow, hung or was
    unreachable, or because the run was killed, is uploaded now. Nothing is stored twice. Runs in
    progress are left alone.

    Example: forecaster sync
    """
    from forecaster.tracking.publish import sync as publish

    synced = []
    for run in publish(runs or []):
        synced.append(run)
        if run["under_way"]:
            say(f"{run['name']}: in progress, its own process uploads it")
        elif run["left"]:
            say(f"{run['name']}: not all uploaded: {run['left']}")
        elif not as_json:
            print(f"{run['name']}: uploaded{run['told'] and '; ' + run['told']}")
    if as_json:
        print_json({"runs": synced})
    elif not synced:
        print(f"MLflow has all of {', '.join(runs or ['the runs in runs/'])}")
    if left := [run["name"] for run in synced if run["left"]]:
        raise UnavailableError(
            f"{len(left)} of {len(synced)} runs could not be uploaded: {', '.join(left)}. The rest "
            "is kept: run the same command again when MLflow answers."
        )


@described(
    format="The format of ONNX Runtime.", output="A folder to write to; else NAME-onnx here."
)
def export(
    model: Model,
    format: Literal["onnx"] = "onnx",
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, for other programs.

    The exported model maps a history in units to a forecast in units, with its quantiles;
    model.json beside it describes inputs and outputs. The files are kept only if the forecasts
    equal the model's, within 1e-5 of the series' standard deviation.

    Example: forecaster export --model forecaster-ETTh1-M-all-336 --format onnx
    """
    from forecaster.forecast.export import graph
    from forecaster.forecast.export.description import FILE
    from forecaster.forecast.predictor import Predictor

    graph.needed()
    forecaster = Predictor.load(model, "cpu")
    folder = output or Path(f"{forecaster.bundle.name}-{format}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output: {folder} already exists; name a new or an empty folder")
    description = graph.export(forecaster, folder)
    file = folder / FILE
    if as_json:
        print_json({**description.to_dict(), "file": str(file)})
    else:
        say(f"at most {description.parity:.1g} standard deviations from the model's own forecasts")
        print(file)


def doctor(as_json: AsJson = False) -> None:
    """Report versions, device, folders, whether MLflow answers, and known faults.

    Example: forecaster doctor --json
    """
    from importlib.metadata import PackageNotFoundError, version

    import torch
    from packaging.version import Version

    from forecaster.base import extras, installation, machine

    names = ("torch", "lightning", "mlflow-skinny", "pandas", "numpy", "fastapi", "pydantic")
    report: dict[str, Any] = {"forecaster": __version__}
    for name in names:
        try:
            report[name] = version(name)
        except PackageNotFoundError:
            extra = extras.BRINGS.get(name.partition("-")[0])
            report[name] = f"not installed; {extras.ours(extra)} brings it" if extra else "missing"
    device = machine.device("auto")
    cuda, problems = machine.cuda()
    report |= {
        "python": sys.version.split()[0],
        "device": machine.processor(device) if device == "cuda" else "cpu",
        **cuda,
        "threads": torch.get_num_threads(),
        "cache": str(installation.cache()),
        "data": os.environ.get("FORECASTER_DATA", "FORECASTER_DATA is not set"),
        "tracking": installation.without_password(installation.tracking_uri()),
    }
    problems += [f"{name} is not installed" for name in names if report[name] == "missing"]
    lightning = report["lightning"]
    if lightning[0].isdigit() and Version(lightning) < Version("2.6.6"):
        problems.append("lightning below 2.6.6 is vulnerable or malicious: upgrade it")
    if "FORECASTER_DATA" in os.environ and not Path(report["data"]).is_dir():
        problems.append(f"FORECASTER_DATA={report['data']}: no such folder")
    if report["mlflow-skinny"][0].isdigit():
        from forecaster.tracking.store import problem

        problems += filter(None, [problem()])
    report["problems"] = problems
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        if name != "problems":
            row(name, str(value))
    print("\n".join(f"problem: {problem}" for problem in problems) or "no problem found")
