"""The options of the commands, each declared once."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from forecaster.errors import UsageError

if TYPE_CHECKING:
    from forecaster.config import Loaded

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


def load(given: dict[str, Any]) -> "Loaded":
    """The configuration that the parameters of a command name."""
    from forecaster import config

    named = {name: given[name] for name in config.FLAGS if given.get(name) is not None}
    if str(named.get("lookback", "")).isdigit():
        named["lookback"] = int(named["lookback"])
    if "season" in named:
        named["season"] = numbers("--season", named["season"])
    for name in ("past_covariates", "future_covariates", "static"):
        if name in named:
            named[name] = [part.strip() for part in named[name].split(",")]
    return config.load(given["config"], given["set_"] or (), named)


def numbers(option: str, text: str) -> list[int]:
    """Numbers with commas between."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise UsageError(f"{option} wants numbers with commas, such as 96,336, got {text}")
    return [int(part) for part in parts]
