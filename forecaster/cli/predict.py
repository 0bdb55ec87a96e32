"""Forecast from a bundle or from a service."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from forecaster.cli.options import (
    MODEL,
    AsJson,
    Device,
    Gpus,
    Horizon,
    Policy,
    Ray,
    can_be_models,
    check_gpus,
)
from forecaster.cli.output import print_json, say, write
from forecaster.errors import UsageError
from forecaster.flags import parse
from forecaster.notices import ShortHistory

if TYPE_CHECKING:
    from forecaster.bundle import Bundle


def predict(
    model: Annotated[str | None, typer.Option(help=MODEL, callback=can_be_models)] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="URL of a service that computes the forecast; its key in $FORECASTER_API_KEY."
        ),
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(
            help="File with the history; by default the model's data. With --output FOLDER: a "
            "folder or pattern of files, each with different series."
        ),
    ] = None,
    future: Annotated[
        str | None,
        typer.Option(help="A file with the covariates known ahead, a row per step."),
    ] = None,
    policy: Policy = None,
    short_history: Annotated[
        ShortHistory,
        typer.Option(help="A history that is too short: refuse it, or drop parts of the model."),
    ] = "refuse",
    output: Annotated[
        Path | None,
        typer.Option(
            help="CSV or Parquet file to write, or a folder for one file per input file; by "
            "default CSV on stdout."
        ),
    ] = None,
    horizon: Horizon = None,
    levels: Annotated[
        str | None, typer.Option(help="Quantiles to give beside the forecast, such as 0.1,0.9.")
    ] = None,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    device: Device = None,
    runtime: Annotated[
        Literal["torch", "onnx"],
        typer.Option(help="With onnx, --model is a folder that `forecaster export` wrote."),
    ] = "torch",
    as_json: AsJson = False,
) -> None:
    """Forecast the real future of a series.

    The forecast starts at the step after the last row, in original units. With --levels, each
    column is followed by its quantiles. With --url http://127.0.0.1:8000 instead of --model, a
    service computes the forecast.

    With --input 'parts/*.parquet' --output out/, each file is forecast separately, and the same
    command continues where it was stopped. With --ray, several are forecast at a time.

    Example: forecaster predict --model forecaster-ETTh1-M-all-336 --input x.csv --levels 0.1,0.9
    """
    if (model is None) == (url is None):
        raise UsageError("expected either --model or the --url of a service")
    folder = output is not None and (output.suffix == "" or output.is_dir())
    if output is not None and not folder and output.suffix not in (".csv", ".parquet"):
        raise UsageError(
            f"--output: expected a name ending in .csv or .parquet, or a folder, got {output}"
        )
    if folder and (input is None or future is not None):
        raise UsageError(
            "--output FOLDER needs --input with the files, and no --future: covariates known ahead "
            "follow the history of each series in its file, in one row per step without a value"
        )
    check_gpus(gpus, ray)
    if ray is not None and (not folder or url is not None or runtime != "torch"):
        raise UsageError("--ray needs --model, --input with the files and --output FOLDER")
    from forecaster.frames import steps_of
    from forecaster.shares import in_words, made_of

    wanted = parse("--levels", _levels, levels) if levels else []
    history: Any = input
    source: Any
    if runtime != "torch" and (url is not None or input is None or device is not None):
        raise UsageError(
            "--runtime onnx needs --model FOLDER and --input FILE, and no --device or --url: it "
            "runs on this machine's processor"
        )
    if url is not None:
        from forecaster.client import Client

        if input is None or device is not None:
            raise UsageError("--url needs --input FILE and no --device: the service has its own")
        source = Client(url, os.environ.get("FORECASTER_API_KEY"))
        card = source.model()
        kind, time, parts = card["forecast"], card["time"], card["made_of"]
        most = card["horizon"]
        digest = card["digest"]
    elif runtime == "onnx":
        from forecaster.export.runtime import load

        source = load(str(model))
        source.check_levels(wanted)
        kind, time, parts = source.kind, source.schema.time, source.description.made_of
        digest, most = source.description.sha256, source.form.horizon
    else:
        from forecaster.predict import Predictor

        source = Predictor.load(str(model), "cpu" if ray else device or "auto")
        source.check_levels(wanted)
        kind, time, digest = source.kind, source.schema.time, source.bundle.digest
        most = source.form.horizon
        parts = [part.to_dict() for part in made_of(source.bundle)]
        if input is None:
            input = history = own_history(source.bundle)
            say(f"history: {input}")
    if kind == "median":
        say("the model was trained for quantiles: its forecast is the median, not the mean")
    if len(parts) > 1:
        say(f"made of {in_words(parts)}")
    if folder:
        assert input is not None
        assert output is not None
        from forecaster import batch, cluster, machine

        steps_of(horizon, most)  # else each file would be refused for it
        options = {"horizon": horizon, "policy": policy, "short_history": short_history}
        request = {"model": digest, "levels": sorted(set(wanted)), **options}
        work = batch.Work(write, output, time, {"levels": wanted, **options})

        def each(files: Sequence[batch.Part]) -> Iterable[tuple[batch.Part, Any]]:
            if ray is None:
                return ((part, work.draft(source.predict, part)) for part in files)
            shared = batch.Shared(replace(work, here=Path.cwd()), source.bundle, device or "auto")
            jobs = min(machine.cores(), max(1, len(files)))
            return cluster.each(batch.draft_apart, shared, files, ray, jobs, gpus) if files else ()

        done = batch.forecast_all(each, batch.parts(input, output), output, time, request, say)
        say(f"wrote {done.rows} rows to {done.written} files in {output}, kept {done.kept} others")
        if as_json:
            print_json(asdict(done))
        return
    frame = source.predict(
        history, horizon, wanted, future=future, policy=policy, short_history=short_history,
        where=str(input), say=say,
    )  # fmt: skip
    if output is not None:
        write(frame, output)
        say(f"wrote {len(frame)} rows to {output}")
    if as_json:
        rows = frame.to_dict("records")
        print_json([{**row, time: row[time].isoformat()} for row in rows])
    elif output is None:
        print(frame.to_csv(index=False), end="")


def own_history(bundle: "Bundle") -> str:
    """The file with the data that a model was trained on. Raises an error if it is not here."""
    from forecaster.datasets import load_card, locate

    data = bundle.config.data
    return data.name if data.is_file else str(locate(load_card(data.name), data.path))


def _levels(text: str) -> list[float]:
    try:
        return [float(level) for level in text.split(",")]
    except ValueError:
        raise ValueError("numbers such as 0.1,0.5,0.9") from None
