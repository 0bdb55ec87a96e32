"""Forecast from a bundle or from a service."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from forecaster.base.errors import StorageError, UsageError
from forecaster.cli import options
from forecaster.cli.output import (
    PICTURES,
    TABLES,
    check_ending,
    draw,
    glance,
    print_json,
    say,
    write,
)  # fmt: skip
from forecaster.config.flags import parse
from forecaster.forecast.notices import Period, ShortHistory

if TYPE_CHECKING:
    from forecaster.forecast import batch

Runtime = Literal["torch", "onnx"]


@options.described(
    url="URL of a service that computes the forecast; its key in $FORECASTER_API_KEY.",
    input="File with the history; by default the model's data. With --output FOLDER: a folder or "
    "pattern of files, each with different series.",
    future="A file with the covariates known ahead, a row per step.",
    short_history="A history that is too short: refuse it, or drop parts of the model; by default "
    "a single one is refused.",
    output="CSV or Parquet file to write, or a folder for one file per input file; by default CSV "
    "on stdout.",
    levels="Quantiles to give beside the forecast, such as 0.1,0.9.",
    samples="So many paths instead, numbered in the column sample: what may come at all steps and "
    "series together.",
    total="Totals over each whole day, week (from Monday) or month, or over the horizon, with an "
    "80 % band.",
    by="Totals of series: all, or those with the same value of a static attribute or id column.",
    digits="Round to so many digits after the point; by default all are given.",
    picture="PNG or SVG file to draw the history and the forecast to, with its band and any "
    "--samples.",
    ledger="Folder in which the forecast is kept, for `forecaster score`.",
    runtime="With onnx, --model is a folder that `forecaster export` wrote.",
)
def predict(
    model: Annotated[
        str | None, typer.Option(help=options.MODEL, callback=options.can_be_models)
    ] = None,
    url: str | None = None,
    input: str | None = None,
    future: str | None = None,
    policy: options.Policy = None,
    short_history: ShortHistory | None = None,
    output: Path | None = None,
    horizon: options.Horizon = None,
    levels: str | None = None,
    samples: Annotated[int | None, typer.Option(min=1)] = None,
    total: Period | None = None,
    by: str | None = None,
    digits: Annotated[int | None, typer.Option(min=0)] = None,
    picture: Path | None = None,
    ledger: Path | None = None,
    ray: options.Ray = None,
    gpus: options.Gpus = 0.0,
    device: options.Device = None,
    runtime: Runtime = "torch",
    as_json: options.AsJson = False,
) -> None:
    """Forecast the real future of a series.

    The forecast starts at the step after the last row, in original units. It is printed as CSV,
    with the next steps rounded beside it; on a terminal as those alone. With --levels, each column
    is followed by its quantiles. With --url http://127.0.0.1:8000 instead of --model, a
    service computes the forecast.

    --total week sums the steps of each week, and --by region those series, with a band of the sum.

    With --input 'parts/*.parquet' --output out/, each file is forecast separately, and the same
    command continues where it was stopped. With --ray, several are forecast at a time.

    Example: forecaster predict --model forecaster-ETTh1-M-all-336 --input x.csv --levels 0.1,0.9
    """
    folder = output is not None and (output.suffix == "" or output.is_dir())
    onnx = runtime == "onnx"
    if (model is None) == (url is None):
        raise UsageError("expected either --model or the --url of a service")
    if output and not folder and output.suffix not in TABLES:
        raise UsageError(f"--output: expected FILE.csv or FILE.parquet, or a folder, got {output}")
    if folder and (input is None or future):
        raise UsageError(
            "--output FOLDER needs --input with the files, and no --future: covariates known ahead "
            "follow the history of each series in its file, in one row per step without a value"
        )
    if onnx and (url or input is None or device):
        raise UsageError(
            "--runtime onnx needs --model FOLDER and --input FILE, and no --device or --url: it "
            "runs on this machine's processor"
        )
    if url and (input is None or device):
        raise UsageError("--url needs --input FILE and no --device: the service has its own")
    if ray and (not folder or url or onnx):
        raise UsageError("--ray needs --model, --input with the files and --output FOLDER")
    if ledger and (folder or url):
        raise UsageError("--ledger needs --model, and no --output FOLDER")
    if picture and (folder or url or onnx):
        raise UsageError("--picture needs --model and one history, without --runtime onnx")
    check_ending("picture", picture, *PICTURES)
    options.check_gpus(gpus, ray)
    chosen_levels = parse("--levels", _levels, levels) if levels else []
    from forecaster.forecast.totals import check_asked

    check_asked(samples, total, by, chosen_levels)
    source, card = _source(model, url, runtime, "cpu" if ray else device or "auto")
    if url is None:
        source.check_levels(chosen_levels)
    from forecaster.forecast.predictor import BAND, own_history
    from forecaster.forecast.predictor import band as band_of

    if input is None:
        input = own_history(source.bundle)
        say(f"history: {input}")
    if len(card["made_of"]) > 1:
        from forecaster.forecast.composition import in_words

        shares = {part["name"]: part["weight"] for part in card["made_of"]}
        say(f"made of {in_words(shares)}")
    settings: dict[str, Any] = {
        "horizon": horizon,
        "policy": policy,
        "short_history": short_history,
    }
    joint = {"samples": samples, "total": total, "by": by}
    settings |= {name: value for name, value in joint.items() if value is not None}
    time = card["time"]
    if folder and output is not None:
        from forecaster.forecast import batch
        from forecaster.forecast.history import steps_of

        steps_of(horizon, card["horizon"])  # else each file would be refused for it
        request = {"model": card["digest"], "levels": sorted(set(chosen_levels)), **settings}
        work = batch.Work(write, output, time, {"levels": chosen_levels, **settings})
        per_file = _each(source, work, ray, gpus, device)
        done = batch.forecast_all(per_file, batch.parts(input, output), output, time, request, say)
        rows, written, unchanged = done["rows"], done["written"], done["kept"]
        say(f"wrote {rows} rows to {written} files in {output}, kept {unchanged} others")
        if as_json:
            print_json(done)
        return
    printed = output is None and not as_json and not samples
    summed = total is not None or by is not None
    band = band_of(source) if printed and url is None else BAND if printed and summed else ()
    levels_read = sorted({*chosen_levels, *band})
    arguments: dict[str, Any] = {**settings, "levels": levels_read, "future": future}
    if ledger is not None:
        from forecaster.record.ledger import Ledger

        arguments["ledger"] = book = Ledger(ledger)
    frame = source.predict(input, **arguments, where=input, say=say)
    if ledger is not None:
        if book.flush():
            say(f"kept the forecast in {ledger}")
        else:
            raise StorageError(f"{ledger} could not be written: the forecast is not kept")
    lines = glance(frame, time, levels_read, band) if printed else []
    unasked = [f"{name} {level:g}" for level in {*band} - {*chosen_levels} for name in frame]
    if chosen_levels or not summed:
        frame = frame.drop(columns=unasked, errors="ignore")
    if digits is not None:
        frame = frame.round(dict.fromkeys(frame.select_dtypes("floating"), digits))
    if picture:
        from forecaster.evaluate.display import future_figure

        how: dict[str, Any] = {"policy": policy, "short_history": short_history, "samples": samples}
        draw(future_figure(source, input, {"forecast": future}, band_of(source), **how), picture)
        say(f"drew the forecast to {picture}")
    if output is not None:
        write(frame, output)
        say(f"wrote {len(frame)} rows to {output}")
    if as_json:
        rows = frame.to_dict("records")
        print_json([{**row, time: row[time].isoformat()} for row in rows])
    elif lines and sys.stdout.isatty():
        print("\n".join(lines))
    elif output is None:
        print(frame.to_csv(index=False, lineterminator="\n"), end="", flush=True)
        if lines:
            say("\n".join(lines))


@options.described(
    input="File with the history; by default the model's data.",
    output="CSV or Parquet file to write; by default CSV on stdout.",
)
def future(model: options.Model, input: str | None = None, output: Path | None = None) -> None:
    """Write the covariates known ahead that a forecast needs, to fill in.

    There is a row for each step after the history. Filled in is what rows after the history
    already hold, and what the calendar has always determined. `predict --future` takes the file.

    Example: forecaster future --model forecaster-shops-S-y-14 --output x.csv
    """
    from forecaster.forecast.future import future_rows
    from forecaster.forecast.predictor import Predictor, own_history

    check_ending("output", output, *TABLES)
    source = Predictor.load(model, "cpu")
    if input is None:
        input = own_history(source.bundle)
        say(f"history: {input}")
    rows = future_rows(source.form, input, where=input, say=say)
    if output is None:
        print(rows.to_csv(index=False, lineterminator="\n"), end="")
        return
    write(rows, output)
    say(f"wrote {len(rows)} rows to {output}")


@options.described(picture="PNG or SVG file to draw the effects to.")
def effects(
    model: options.Model, picture: Path | None = None, as_json: options.AsJson = False
) -> None:
    """Say what one more unit of each input known ahead does.

    That is what the forecast did when it was asked at the end of training: from the newest rows,
    with the input half a standard deviation higher and lower at every step of the horizon.

    Example: forecaster effects --model forecaster-shops-S-y-14 --json
    """
    from forecaster.forecast import effects as of
    from forecaster.forecast.predictor import load_bundle

    check_ending("picture", picture, *PICTURES)
    bundle = load_bundle(model)
    if not bundle.schema.known.columns:
        raise UsageError("this model takes no inputs known ahead: it has no effects to tell")
    if not (measured := bundle.record.effects):
        raise UsageError(
            "this model was not asked for effects: it was trained by an earlier version, or on "
            "fewer rows than its forecast needs; train it again"
        )
    if as_json:
        print_json([row.to_dict() for row in measured])
    else:
        for sentence in of.sentences(bundle):
            print(sentence)
    if picture and any(row.curve for row in measured):
        from forecaster.evaluate.display import effect_figure

        draw(effect_figure(measured), picture)
        say(f"drew the effects to {picture}")


def _source(
    model: str | None, url: str | None, runtime: Runtime, device: str
) -> tuple[Any, Mapping[str, Any]]:
    """What forecasts, and its card as GET /models has it, as far as it is needed here."""
    if url is not None:
        from forecaster.client import Client

        client = Client(url, os.environ.get("FORECASTER_API_KEY"))
        return client, client.model()
    source: Any
    if runtime == "onnx":
        from forecaster.forecast.export.runtime import load

        source = load(str(model))
        about = {"digest": source.description.sha256, "made_of": source.description.made_of}
    else:
        from forecaster.forecast.composition import made_of
        from forecaster.forecast.predictor import Predictor

        source = Predictor.load(str(model), device)
        about = {"digest": source.bundle.digest, "made_of": made_of(source.bundle)}
    about |= {"time": source.schema.time, "horizon": source.form.horizon}
    return source, about


def _each(
    source: Any, work: "batch.Work", ray: str | None, gpus: float, device: str | None
) -> "batch.Drafts":
    """A function that drafts the forecasts of files, here or on a Ray cluster."""
    from forecaster.base import cluster, quota
    from forecaster.forecast import batch

    def each(files: Sequence[batch.File]) -> Iterable[tuple[batch.File, Any]]:
        if ray is None:
            return ((part, work.draft(source.predict, part)) for part in files)
        shared = replace(work, here=Path.cwd(), bundle=source.bundle, device=device or "auto")
        jobs = min(quota.cores(), max(1, len(files)))
        return cluster.each(batch.draft_apart, shared, files, ray, jobs, gpus) if files else ()

    return each


def _levels(text: str) -> list[float]:
    try:
        return [float(level) for level in text.split(",")]
    except ValueError:
        raise ValueError("numbers such as 0.1,0.5,0.9") from None
