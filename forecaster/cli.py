"""The command `forecaster`. Imports what a command runs when it runs: --help answers at once."""

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args, get_origin

import typer

from forecaster.errors import ForecasterError, Stopped, UnavailableError, UsageError

if TYPE_CHECKING:
    from forecaster.bundle import Bundle
    from forecaster.config import Loaded

EXIT_CODES = """
Exit codes: 0 done, 2 usage, 65 data, 69 unavailable, 70 internal, 74 files, 78 configuration
file or environment, 130 interrupted, 143 terminated.
"""

SETTINGS = """
\b
Settings, from the environment (docs/serving.md tells more):
  FORECASTER_MODEL             what is served, as --model; several with commas
  FORECASTER_POLL_SECONDS      between two looks for a newer model; 0: never; 30
  FORECASTER_DIGESTS           of the only models that may be served, with commas
  FORECASTER_DEVICE            auto, cpu or cuda, as --device
  FORECASTER_API_KEYS          NAME:SHA256 of each key, with commas, from --new-key
  FORECASTER_RATE              requests a minute by a key or an address; 0: any number
  FORECASTER_ALLOWED_HOSTS     names that clients call it by, with commas; *: any
  FORECASTER_TRUSTED_PROXIES   addresses whose X-Forwarded-For is believed, with commas
  FORECASTER_MAX_BODY_BYTES    of a request: 16777216
  FORECASTER_MAX_SERIES        in a request: 1000
  FORECASTER_MAX_ROWS          in a request: 1000000
  FORECASTER_MAX_BATCH         series that run together: 64 on CUDA, 16 on a CPU
  FORECASTER_THREADS           batches at a time; else 1 on CUDA, each core of a CPU to 4
  FORECASTER_MAX_WAIT_MS       that a batch waits for company: 0
  FORECASTER_MAX_QUEUE         series that wait; 503 beyond: 512
  FORECASTER_DEADLINE_SECONDS  for a forecast; 504 beyond: 30
  FORECASTER_DRAIN_SECONDS     from SIGTERM to the end of listening: 1
  FORECASTER_MAX_CONNECTIONS   at once: 16384
  FORECASTER_RECEIVE_SECONDS   to send a request or read an answer: 10
  FORECASTER_ATTENTIONS        that other packages may bring, with commas
"""

app = typer.Typer(
    name="forecaster",
    help="Long-sequence forecasting in which the attention is one interchangeable choice.\n\n"
    "  forecaster train --attn prob --horizon 336\n\n"
    "  forecaster serve\n\n"
    "  mlflow ui --backend-store-uri sqlite:///mlflow.db",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="The data sets that are known by name.", no_args_is_help=True)
app.add_typer(data_app, name="data")
bench_app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Config = Annotated[str | None, typer.Option(help="A name in configs/ or a YAML file.")]
Attn = Annotated[str | None, typer.Option(help="Attention; see `forecaster attentions`.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="A name of `forecaster data list`; or a CSV or Parquet file, folder, pattern."
    ),
]
Features = Annotated[
    Literal["M", "S", "MS"] | None,
    typer.Option(help="M: all to all; S: the target alone; MS: all to the target."),
]
Target = Annotated[
    str | None, typer.Option(help="What to predict: columns, with commas; else all of them.")
]
Past = Annotated[
    str | None,
    typer.Option("--past-covariates", help="Columns to read but not to predict, with commas."),
]
Future = Annotated[
    str | None,
    typer.Option("--future-covariates", help="Columns known ahead, with commas."),
]
Static = Annotated[
    str | None, typer.Option(help="Columns that are attributes of a series, with commas.")
]
Time = Annotated[str | None, typer.Option(help="The time column of a file.")]
Id = Annotated[str | None, typer.Option(help="The column of a file that names its series.")]
Freq = Annotated[str | None, typer.Option(help="The time step of a file: 15min, h, D, W-MON, MS.")]
Season = Annotated[
    str | None, typer.Option(help="Steps of the cycles of a file, with commas, the main one first.")
]
Policy = Annotated[
    Literal["error", "sort", "resample"] | None,
    typer.Option(help="What to do about gaps, repeated and unsorted stamps; see docs/data.md."),
]
Holidays = Annotated[
    str | None, typer.Option(help="Public holidays for the calendar: a country or state, AU-VIC.")
]
Horizon = Annotated[int | None, typer.Option(help="Steps to forecast.")]
Lookback = Annotated[str | None, typer.Option(help='Steps to look back, or "21 cycles".')]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training windows, at most.")]
Refit = Annotated[
    bool | None,
    typer.Option("--refit", help="After the evaluation, train once more on all rows."),
]
Register = Annotated[
    bool | None, typer.Option("--register/--no-register", help="Register the model in MLflow.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of weights, order and dropout.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    typer.Option(help="Where to compute; auto takes CUDA where there is one."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any value, such as train.lr=0.0003."),
]
MODEL = "A bundle's folder, an MLflow run id, or a registered NAME, NAME@alias or NAME/version."
Model = Annotated[str, typer.Option(help=MODEL)]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"forecaster {version('forecaster')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Print the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
) -> None:
    """Read --version; `main` has taken --debug already."""


@app.command()
def train(
    attn: Attn = None,
    horizon: Horizon = None,
    data: Data = None,
    target: Target = None,
    past_covariates: Past = None,
    future_covariates: Future = None,
    static: Static = None,
    features: Features = None,
    time: Time = None,
    id: Id = None,
    freq: Freq = None,
    season: Season = None,
    policy: Policy = None,
    holidays: Holidays = None,
    lookback: Lookback = None,
    epochs: Epochs = None,
    refit: Refit = None,
    register: Register = None,
    seed: Seed = None,
    device: Device = None,
    config: Config = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Train a model, judge it, keep it and track it.

    The model is judged on every test window beside forecasts that need no training, kept as a
    bundle in runs/, and tracked in MLflow.

    Example: forecaster train --attn prob --horizon 336 --data ETTh1
    """
    loaded = _load(config, set_, locals())
    from forecaster import experiment

    result = experiment.run(loaded, _say, _nothing if as_json else _show_metrics)
    if as_json:
        _print_json(result.to_dict())
        return
    print(f"\nrun      {result.name}, {result.run_id}")
    print(f"bundle   {result.folder}")
    if result.registered:
        print(f"model    {result.registered}")
    print(f"forecast forecaster predict --model {result.folder}")
    print(f"serve    forecaster serve --model {result.folder}")
    print(f"compare  {result.ui_command}")


@app.command()
def evaluate(model: Model, device: Device = None, as_json: AsJson = False) -> None:
    """Repeat the evaluation of a trained model.

    On every test window, beside forecasts that need no training.

    Example: forecaster evaluate --model forecaster-ETTh1-M-all-336
    """
    from forecaster import resources
    from forecaster.judge import rejudge
    from forecaster.predict import load_bundle

    metrics = rejudge(load_bundle(model), resources.device(device or "auto"))
    if as_json:
        _print_json(metrics)
    else:
        _show_metrics({"test": metrics})


@app.command()
def predict(
    model: Annotated[str | None, typer.Option(help=MODEL)] = None,
    url: Annotated[
        str | None,
        typer.Option(help="A service to ask instead; its key, if any, in $FORECASTER_API_KEY."),
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="CSV or Parquet with the history; else the model's data.")
    ] = None,
    future: Annotated[
        str | None,
        typer.Option(help="CSV or Parquet with the covariates known ahead, a row per step."),
    ] = None,
    policy: Policy = None,
    output: Annotated[
        Path | None, typer.Option(help="CSV or Parquet to write; else CSV on stdout.")
    ] = None,
    horizon: Horizon = None,
    levels: Annotated[
        str | None, typer.Option(help="Quantiles to give beside the forecast, such as 0.1,0.9.")
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the real future of a series.

    From the step after its last row, in original units. With --levels each column is followed by
    its quantiles. With --url http://127.0.0.1:8000 in place of --model a service is asked.

    Example: forecaster predict --model forecaster-ETTh1-M-all-336 --input x.csv --levels 0.1,0.9
    """
    if (model is None) == (url is None):
        raise UsageError("name either a --model or the --url of a service")
    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--output wants a name ending in .csv or .parquet, got {output}")
    wanted = _levels(levels)
    history: Any = input
    source: Any
    if url is not None:
        from forecaster.client import Client

        if input is None or device is not None:
            raise UsageError("--url wants --input FILE and no --device: the service has its own")
        source = Client(url, os.environ.get("FORECASTER_API_KEY"))
        card = source.model()
        kind, time = card["forecast"], card["time"]
    else:
        from forecaster.predict import Forecaster

        source = Forecaster.load(str(model), device or "auto")
        source.check_levels(wanted)
        kind, time = source.kind, source.schema.time
        if input is None:
            history, input = _own_history(source.bundle)
            _say(f"history: {input}")
    if kind == "median":
        _say("the model was trained for quantiles: its forecast is the median, not the mean")
    frame = source.predict(
        history, horizon, wanted, future=future, policy=policy, where=str(input), say=_say
    )
    if output is not None:
        _write(frame, output)
        _say(f"wrote {len(frame)} rows to {output}")
    if as_json:
        rows = frame.to_dict("records")
        _print_json([{**row, time: row[time].isoformat()} for row in rows])
    elif output is None:
        print(frame.to_csv(index=False), end="")


@app.command(epilog=SETTINGS)
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"{MODEL} Give it again to serve several; the first is the default."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    device: Device = None,
    new_key: Annotated[
        str | None, typer.Option(help="Make an API key for this name, and serve nothing.")
    ] = None,
) -> None:
    """Serve a model over HTTP: a page at /, docs at /docs.

    Without --model (or FORECASTER_MODEL) the only champion in the tracker is served.

    Example: forecaster serve --model forecaster-ETTh1-M-all-336 --port 8080
    """
    if new_key is not None:
        _new_key(new_key)
        return
    import uvicorn

    named = ",".join(model or ()) or os.environ.get("FORECASTER_MODEL")
    os.environ["FORECASTER_MODEL"] = named or _champion()
    if device is not None:
        os.environ["FORECASTER_DEVICE"] = device
    _check_free(host, port)
    if host not in ("localhost", "127.0.0.1", "::1") and not os.environ.get("FORECASTER_API_KEYS"):
        _say(
            f"warning: whoever can reach {host} can ask this service. To want a key, set "
            "FORECASTER_API_KEYS; forecaster serve --new-key NAME makes one."
        )
    _say(f"serving {os.environ['FORECASTER_MODEL']} on http://{host}:{port} (docs at /docs)")
    uvicorn.run(
        "service.app:create_app",
        factory=True,
        host=host,
        port=port,
        http="service.protocol:Protocol",
        ws="none",
        proxy_headers=False,  # FORECASTER_TRUSTED_PROXIES says who may tell of clients
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,  # longer than proxies and clients keep theirs
        timeout_graceful_shutdown=60,  # for clients whose request or answer stands still
    )


@app.command()
def compare(
    attn: Annotated[
        str | None,
        typer.Option(help='"all", or names with commas; full, none and mean always come along.'),
    ] = None,
    horizon: Annotated[str | None, typer.Option(help="Steps to forecast, with commas.")] = None,
    data: Annotated[str | None, typer.Option(help="Data sets, with commas.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from 0.", min=1)] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps of a cell.", min=1)] = None,
    grid: Annotated[
        str, typer.Option(help="A name in configs/grids/ or a YAML file, for all not said here.")
    ] = "default",
    name: Annotated[
        str | None, typer.Option(help="Of the folder in runs/grids; else the grid's.")
    ] = None,
    config: Config = None,
    set_: Set = None,
    jobs: Annotated[
        int | None, typer.Option(help="Cells at a time, one thread each; else all cores.", min=1)
    ] = None,
    tracked: Annotated[bool, typer.Option("--track/--no-track", help="Tell MLflow.")] = True,
    as_json: AsJson = False,
) -> None:
    """Compare attention types where all else is the same.

    Trains every type, with and without the linear path, at several numbers of tokens, for the same
    optimiser steps on the same batches and about the same parameters, and says which differences
    can be measured. What is finished is not run again: stop it and go on as you like.

    Example: forecaster compare --attn all --horizon 96,336 --seeds 3
    """
    from forecaster import compare as comparison
    from forecaster.config import DataConfig

    stem, values = comparison.read_grid(grid)
    said = {
        "attn": attn if attn in (None, "all") else attn.split(","),
        "horizons": horizon and _numbers("--horizon", horizon),
        "data": data and [name.strip() for name in data.split(",")],
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
    cores = comparison.cores()
    if jobs is not None and jobs > cores:
        _say(f"--jobs {jobs}: this machine has {cores} cores for it, so {cores} at a time")
    outcome = comparison.run(
        comparison.resolve(name, definition),
        _say,
        jobs=min(jobs or cores, cores),
        tracked=tracked,
        command=shlex.join(["forecaster", *sys.argv[1:]]),
    )
    if as_json:
        _print_json(outcome.to_dict())
    elif outcome.cells:
        print(comparison.table.text(comparison.table.rows(outcome.cells)))
        print(f"\ngrid     {outcome.folder}")
        if outcome.ui_command:
            print(f"runs     {outcome.ui_command}")
    if outcome.failed:
        raise ForecasterError(
            f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.cells)} cells failed; "
            "the same command runs them again:\n"
            + "\n".join(f"  {cell}: {why}" for cell, why in outcome.failed.items())
        )


@app.command()
def report(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help=MODEL)] = None,
    grid: Annotated[str | None, typer.Option(help="A grid of `forecaster compare`.")] = None,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file about trained models, or about a grid.

    Figures with their floors and verdicts, speed against memory and error, error by horizon step,
    forecasts against truth, and what each model looks at. The file needs nothing else: no network
    and no script. Models are judged anew on every test window.

    Example: forecaster report --grid default --output comparison.html
    """
    if bool(runs) == bool(grid):
        raise UsageError(
            "name either runs (folders, MLflow run ids or registered names) or one --grid"
        )
    from forecaster.report import write

    command = shlex.join(["forecaster", *sys.argv[1:]])
    if grid:
        from forecaster.report.grid import of_grid

        page = of_grid(grid, command)
    else:
        from forecaster import resources
        from forecaster.report.runs import of_runs

        page = of_runs(runs or [], command, resources.device(device or "auto"))
    size = write(page, output)
    if as_json:
        _print_json({"file": str(output), "bytes": size})
    else:
        print(output)


@app.command()
def advise(
    lookback: Annotated[int, typer.Option(help="Tokens that the attention sees.", min=1)],
    budget_ms: Annotated[
        float | None, typer.Option(help="Milliseconds for one layer, forward and backward.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that one layer may add, such as 2GiB.")
    ] = None,
    curves: Annotated[
        Path | None, typer.Option(help="JSON of `bench attention`; else from the user's cache.")
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Name the attention that fits a budget of time and memory.

    From curves that `forecaster bench attention` measured on this machine. What another type beats
    in both is never named. How well a forecast becomes with it is another question.

    Example: forecaster advise --lookback 4096 --budget-ms 5 --memory 2GiB
    """
    from forecaster import advise as adviser
    from forecaster import resources

    if budget_ms is not None and not 0 < budget_ms < float("inf"):
        raise UsageError(f"--budget-ms must be a positive number, got {budget_ms:g}")
    advice = adviser.advise(
        lookback,
        budget_ms,
        None if memory is None else adviser.read_memory(memory),
        curves=curves,
        device=resources.device(device or "auto"),
    )
    if as_json:
        _print_json(advice.to_dict())
    else:
        print(advice.text())
    if advice.choice is None:
        raise UnavailableError(
            f"no attention over {lookback} tokens is within the budget of {advice.budget}"
        )


@app.command()
def attentions(
    name: Annotated[str | None, typer.Argument(help="One of them, to show it alone.")] = None,
    names: Annotated[bool, typer.Option("--names", help="Print the names alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the attention types that --attn takes, or show one.

    cost: time of one layer, D the width of the model, L and S the lengths of queries and keys.
    causal: what the masked form promises. cross: whether it can attend to another series. random:
    what is drawn. options: what --set attn.NAME=VALUE takes, with the defaults.

    Example: forecaster attentions prob
    """
    from forecaster.attention import CATALOGUE, SYNONYMS
    from forecaster.lookup import find

    chosen = list(CATALOGUE) if name is None else [find(CATALOGUE, name, "attention", SYNONYMS)[0]]
    if names:
        print("\n".join(chosen))
        return
    facts = []
    for each in chosen:
        try:
            facts.append(_facts(each))
        except UsageError as error:  # another package's, which cannot be loaded
            if name is not None:
                raise
            _say(f"error: {error}")
    if as_json:
        _print_json(facts if name is None else facts[0])
    elif name is None:
        _show_attentions(facts)
    else:
        _show_attention(facts[0])


@bench_app.command("attention")
def bench_attention(
    attn: Annotated[
        str, typer.Option(help='"all", or names with commas; see `forecaster attentions`.')
    ] = "all",
    length: Annotated[
        str, typer.Option(help="A range, and powers of two between; or a list with commas.")
    ] = "96:16384",
    batch: Annotated[int, typer.Option(help="Series at a time.", min=1)] = 1,
    heads: Annotated[int, typer.Option(help="Heads.", min=1)] = 8,
    width: Annotated[int, typer.Option(help="Width of a head, even.", min=2)] = 64,
    causal: Annotated[bool, typer.Option("--causal", help="See the past alone.")] = False,
    threads: Annotated[
        int | None, typer.Option(help="Processor threads; else as many as torch takes.", min=1)
    ] = None,
    device: Device = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None,
        typer.Option(help="Else float32 on a processor and bfloat16 on a GPU."),
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Seconds for one call; what takes longer is left out.", min=0.01)
    ] = 20.0,
    output: Annotated[
        Path | None, typer.Option(help="Folder for JSON and PNG; else the user's cache.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure time and memory of attention functions.

    Forward and backward, against the length, beside torch's fused kernel (SDPA). A type is marked
    as dominated when another one is faster and needs less memory. With one thread the time is that
    of the processor, which other work on the machine disturbs little.

    Example: forecaster bench attention --attn prob,full,lsh --length 96:4096 --causal
    """
    import torch

    from forecaster import bench, resources

    names, lengths = bench.choose(attn), bench.read_lengths(length)
    if width % 2:
        raise UsageError(f"--width must be even, because diff halves it, got {width}")
    where = resources.device(device or "auto")
    how = bench.Conditions(
        causal=causal,
        threads=threads or torch.get_num_threads(),
        device=where,
        dtype=dtype or ("bfloat16" if where == "cuda" else "float32"),
        limit=limit,
    )
    shape = bench.Shape(lengths[0], batch, heads, width)
    document = bench.curves(names, lengths, shape, how)
    document = {"command": shlex.join(["forecaster", *sys.argv[1:]]), **document}
    files = bench.save(document, output or resources.cache() / "bench")
    if as_json:
        _print_json(document)
    else:
        print(bench.tables(document))
    for file in files:
        _say(f"wrote {file}")


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List the data sets that --data takes.

    Example: forecaster data list --json
    """
    from forecaster.datasets import card_names, load_card

    cards = [load_card(name) for name in card_names()]
    if as_json:
        _print_json([card.model_dump(mode="json") for card in cards])
        return
    width = max(len(card.name) for card in cards)
    for card in cards:
        count = f"{len(card.columns)} column{'s' * (len(card.columns) > 1)}"
        print(f"{card.name:<{width}}  {card.title}; {count}, every {card.freq}")


@data_app.command("show")
def data_show(name: str, as_json: AsJson = False) -> None:
    """Show the card of a data set: source, licence, columns, borders.

    Example: forecaster data show ETTh1
    """
    import yaml

    from forecaster.datasets import load_card
    from forecaster.datasets.card import spans

    card = load_card(name).model_dump(mode="json", exclude_none=True)
    if as_json:
        _print_json(card)
        return
    card["columns"] = spans(card["columns"])
    print(yaml.safe_dump(card, sort_keys=False, allow_unicode=True), end="")


@data_app.command("fetch")
def data_fetch(name: str, as_json: AsJson = False) -> None:
    """Find a data set, or download it, and print where it is.

    Example: forecaster data fetch ETTh1
    """
    from forecaster.datasets import load_card, locate

    card = load_card(name)
    file = locate(card)
    if as_json:
        _print_json({"name": card.name, "file": str(file)})
        return
    print(file)


@data_app.command("check")
def data_check(
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file, a folder, a pattern.")],
    horizon: Horizon = None,
    lookback: Lookback = None,
    target: Target = None,
    past_covariates: Past = None,
    future_covariates: Future = None,
    static: Static = None,
    time: Time = None,
    id: Id = None,
    freq: Freq = None,
    season: Season = None,
    policy: Policy = None,
    config: Config = None,
    set_: Set = None,
    picture: Annotated[
        Path | None, typer.Option(help="PNG or SVG to draw; else NAME-check.png here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a file of your own holds, and what training would make of it.

    Columns and their roles, time step and seasons, gaps and missing values, the parts with their
    windows, the memory of it all; and a picture. Takes the options of train and trains nothing.

    Example: forecaster data check sales.csv --target amount --horizon 96
    """
    from forecaster import check, resources
    from forecaster.problem import find_data, make_problem

    if not resources.names_a_file(file):
        raise UsageError(
            f"data check wants a file, a folder or a pattern, got '{file}'; what is known by name "
            f"is shown by: forecaster data show {file}"
        )
    loaded = _load(config, set_, {**locals(), "data": file})
    resolved, own, series = find_data(loaded, _nothing if as_json else _say)
    problem = make_problem(resolved, own, series)
    past, _, steps = problem.config.window.lengths()
    found = check.report(own, steps, past, problem.borders)  # type: ignore[arg-type]  # a file's
    drawn = picture or Path(f"{own.name}-check.png")
    _draw(check.figure(own, problem.borders), drawn)  # type: ignore[arg-type]
    if as_json:
        _print_json({**found, "picture": str(drawn)})
        return
    print(check.text(found))
    print(f"picture     {drawn}")


@app.command("config")
def show_config(
    attn: Attn = None,
    horizon: Horizon = None,
    data: Data = None,
    target: Target = None,
    past_covariates: Past = None,
    future_covariates: Future = None,
    static: Static = None,
    features: Features = None,
    time: Time = None,
    id: Id = None,
    freq: Freq = None,
    season: Season = None,
    policy: Policy = None,
    holidays: Holidays = None,
    lookback: Lookback = None,
    epochs: Epochs = None,
    refit: Refit = None,
    register: Register = None,
    seed: Seed = None,
    device: Device = None,
    config: Config = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Print the resolved configuration.

    With the place where each value came from. Takes the options of train and trains nothing; what
    it prints can be given to --config.

    Example: forecaster config --attn full --set train.epochs=3
    """
    loaded = _load(config, set_, locals())
    if as_json:
        _print_json({"config": loaded.config.to_dict(), "origins": loaded.origins})
        return
    import yaml

    lines = yaml.safe_dump(loaded.config.to_dict(), sort_keys=False).splitlines()
    sections: list[str] = []
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        sections = [*sections[:depth], line.strip().split(":")[0]]
        origin = loaded.origins.get(".".join(sections))
        print(f"{line:<38}  # {origin}" if origin else line)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Report versions, device, folders and known faults.

    Example: forecaster doctor --json
    """
    from importlib.metadata import PackageNotFoundError, version

    import torch
    from packaging.version import Version

    from forecaster import resources

    names = ("forecaster", "torch", "lightning", "mlflow", "pandas", "numpy", "fastapi", "pydantic")
    report: dict[str, Any] = {}
    for name in names:
        try:
            report[name] = version(name)
        except PackageNotFoundError:
            report[name] = "missing"
    report |= {
        "python": sys.version.split()[0],
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "cache": str(resources.cache()),
        "data": os.environ.get("FORECASTER_DATA", "FORECASTER_DATA is not set"),
        "tracking": resources.without_password(resources.tracking_uri()),
    }
    problems = [f"{name} is not installed" for name in names if report[name] == "missing"]
    if report["lightning"] != "missing" and Version(report["lightning"]) < Version("2.6.6"):
        problems.append("lightning below 2.6.6 is vulnerable or malicious: upgrade it")
    if "FORECASTER_DATA" in os.environ and not Path(report["data"]).is_dir():
        problems.append(f"FORECASTER_DATA={report['data']}: no such folder")
    report["problems"] = problems
    if as_json:
        _print_json(report)
        return
    for name, value in report.items():
        if name != "problems":
            _row(name, str(value))
    print("\n".join(f"problem: {problem}" for problem in problems) or "no problem found")


def main() -> NoReturn:
    """The entry point: one line for a user's mistake, a traceback only with --debug."""
    debug = "--debug" in sys.argv
    argv = [argument for argument in sys.argv[1:] if argument != "--debug"]
    with _signals():
        try:
            status = app(argv, standalone_mode=False)
        except Stopped as stopped:
            _say("stopped")
            status = stopped.exit_code
        except ForecasterError as error:
            if debug:
                raise
            _say(f"error: {error}")
            status = error.exit_code
        except Exception as error:
            status = _unexpected(error, debug)
        finally:
            _empty_stdout()
    sys.exit(status or 0)


def _empty_stdout() -> None:
    """Write what is left; drop it where the reader has gone, which is no error."""
    try:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _unexpected(error: Exception, debug: bool) -> int:
    show: Callable[[], None] | None = getattr(error, "show", None)
    if show is not None:  # the command line itself was wrong: click says how
        show()
        return int(getattr(error, "exit_code", 2))
    if type(error).__name__ == "Abort":
        return 130
    if debug:
        raise error
    _say(
        f"error: {type(error).__name__}: {error}\nThis is a defect of forecaster; run again with "
        "--debug for the traceback and report it."
    )
    return ForecasterError.exit_code


@contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal raise Stopped once; the second ends the process.

    A signal that is ignored, as under nohup, stays ignored.
    """

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Stopped(number)

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in wanted if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _load(config: str | None, sets: list[str] | None, flags: dict[str, Any]) -> "Loaded":
    from forecaster.config import FLAGS, load

    named = {name: flags[name] for name in FLAGS if flags.get(name) is not None}
    if str(named.get("lookback", "")).isdigit():
        named["lookback"] = int(named["lookback"])
    if "season" in named:
        named["season"] = _numbers("--season", named["season"])
    for name in ("past_covariates", "future_covariates", "static"):
        if name in named:
            named[name] = [part.strip() for part in named[name].split(",")]
    return load(config, sets or (), named)


def _own_history(bundle: "Bundle") -> tuple[Any, str]:
    """The data that a model was trained on, and what to call it."""
    from forecaster.datasets import load_card, locate, read_frame

    data = bundle.config.data
    if data.is_file:
        return data.name, data.name
    card = load_card(data.name)
    file = locate(card, data.path)
    # What lies further back may be irregular, as the card then says.
    return read_frame(file, card).tail(bundle.past), str(file)


def _numbers(option: str, text: str) -> list[int]:
    """Numbers with commas between."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise UsageError(f"{option} wants numbers with commas, such as 96,336, got {text}")
    return [int(part) for part in parts]


def _levels(text: str | None) -> list[float]:
    try:
        return [float(level) for level in (text or "").split(",") if text]
    except ValueError:
        raise UsageError(f"--levels wants numbers such as 0.1,0.5,0.9, got '{text}'") from None


def _check_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}, port {port}: {error.strerror}. Choose another --port or "
            "--host."
        ) from None


def _new_key(name: str) -> None:
    import hashlib
    import re
    import secrets

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise UsageError(f"--new-key wants letters, digits and . _ - (64 at most), got '{name}'")
    key = secrets.token_urlsafe(32)
    _row("key", key)
    _row("setting", f"FORECASTER_API_KEYS={name}:{hashlib.sha256(key.encode()).hexdigest()}")
    _say(
        "The key is for the client and shown only now; the setting, for the service, is no secret."
    )


def _champion() -> str:
    from forecaster.predict import ask_tracker

    names = ask_tracker("champions").split()
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(
            "there is no champion to serve yet: train a model first (forecaster train --attn prob "
            "--horizon 336), or name one with --model"
        )
    raise UsageError(f"several champions, name one with --model: {', '.join(names)}")


def _write(frame: Any, output: Path) -> None:
    from forecaster.errors import StorageError

    try:
        if output.suffix == ".parquet":
            frame.to_parquet(output, index=False)
        else:
            frame.to_csv(output, index=False)
    except OSError as error:
        raise StorageError(f"{output} could not be written: {error}") from error


def _show_metrics(metrics: dict[str, Any]) -> None:
    from forecaster.evaluate.report import interval_lines, table

    test = metrics["test"]
    which = "all of them" if test.get("every", 1) == 1 else f"every {test['every']}th of them"
    print(f"\ntest split, {test['windows']} windows ({which}), values scaled by training rows")
    print(f"{'':<24}{'MSE':>8}{'MAE':>9}{'skill':>9}")
    for name, mse, mae, skill, remark in table(test):
        print(f"{name:<24}{mse:>8}{mae:>9}{skill:>9}  {remark}".rstrip())
    print(test["verdict"])
    for line in interval_lines(test):
        print(line)
    for name, column in test["columns"].items():
        print(f"  {name:<22}MAE {column['mae_units']:.4g} in units, MASE {_mase(column)}")


def _mase(column: dict[str, Any]) -> str:
    return "undefined (constant)" if column["mase"] is None else f"{column['mase']:.3f}"


def _facts(name: str) -> dict[str, Any]:
    """What is known of an attention, in the order in which it is shown."""
    import inspect

    from forecaster.attention import CATALOGUE
    from forecaster.attention.base import SelfAttention
    from forecaster.lookup import option_model

    kind = CATALOGUE[name]
    text = inspect.getdoc(sys.modules[kind.__module__]) or inspect.getdoc(kind) or ""
    about = kind.about
    fields = option_model(kind, name).model_fields
    return {
        "name": name,
        "about": text.split("\n")[0].rstrip("."),
        "paper": about.paper,
        "year": about.year,
        "cost": about.cost,
        "causal": about.causal,
        "cross": not issubclass(kind, SelfAttention),
        "random": about.random,
        "options": {key: field.default for key, field in fields.items()},
        "types": {key: _type(field.annotation) for key, field in fields.items()},
        "text": text,
    }


def _show_attentions(facts: list[dict[str, Any]]) -> None:
    """For each a line in columns, then its paper and its options; 100 columns wide at most."""
    import textwrap

    head = ("name", "year", "cost", "causal", "cross", "random")
    rows = [
        tuple({None: "–", True: "yes", False: "no"}.get(fact[key], str(fact[key])) for key in head)
        for fact in facts
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    indent = " " * (widths[0] + 2)
    lines = [_columns(head, widths)]
    for fact, row in zip(facts, rows, strict=True):
        lines += ["", _columns(row, widths)]
        options = ", ".join(f"{key}={_setting(value)}" for key, value in fact["options"].items())
        for text in ("a control" if fact["year"] is None else fact["paper"], options):
            lines += textwrap.wrap(
                text, 100, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )
    print("\n".join(lines))


def _show_attention(fact: dict[str, Any]) -> None:
    print(f"{fact['text']}\n")
    if fact["year"] is not None:
        _row("paper", f"{fact['paper']}, {fact['year']}")
    for key in ("cost", "causal", "random"):
        _row(key, fact[key])
    _row("cross", "yes" if fact["cross"] else "no: full attention stands there")
    for key, value in fact["options"].items():
        _row("option", f"{key} = {_setting(value)}  ({fact['types'][key]})")
    option = next((f" --set attn.{key}={_setting(x)}" for key, x in fact["options"].items()), "")
    print(f"\nExample: forecaster train --attn {fact['name']}{option}")


def _type(annotation: Any) -> str:
    """An annotation as a person would write its values."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_args(annotation):
        return " or ".join(map(_type, get_args(annotation)))
    return "null" if annotation is type(None) else str(getattr(annotation, "__name__", annotation))


def _setting(value: Any) -> str:
    """A value as --set takes it."""
    return str(value) if isinstance(value, str) else json.dumps(value)


def _columns(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _row(name: str, text: str) -> None:
    print(f"{name:<14}{text}")


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nothing(told: object) -> None:
    pass


def _draw(figure: Any, file: Path) -> None:
    from forecaster.errors import StorageError

    if file.suffix not in (".png", ".svg"):
        raise UsageError(f"--picture wants a name ending in .png or .svg, got {file}")
    try:
        figure.savefig(file)
    except OSError as error:
        raise StorageError(f"{file} could not be written: {error}") from error


if __name__ == "__main__":
    main()
