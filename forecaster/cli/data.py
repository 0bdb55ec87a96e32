"""Show the data sets that are known by name, and check your own file."""

from pathlib import Path
from typing import Annotated

import typer

from forecaster.base import installation
from forecaster.base.errors import DataError, StorageError, UsageError
from forecaster.cli.options import AsJson, Asked, configured, described
from forecaster.cli.output import PICTURES, check_ending, draw, nothing, print_json, say
from forecaster.config.flags import FLAGS

app = typer.Typer(help="Data sets known by name.", no_args_is_help=True)

ABOUT_FILES = [
    name for name, path in FLAGS.items() if path.startswith(("data.", "window.")) and name != "data"
]


@app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List the data sets that --data takes.

    Example: forecaster data list --json
    """
    from forecaster.datasets.card import card_names, load_card

    cards = [load_card(name) for name in card_names()]
    if as_json:
        print_json([card.model_dump(mode="json") for card in cards])
        return
    width = max(len(card.name) for card in cards)
    for card in cards:
        count = f"{len(card.columns)} column{'s' * (len(card.columns) > 1)}"
        print(f"{card.name:<{width}}  {card.title}; {count}, every {card.freq}")


@app.command("show")
def data_show(name: str, as_json: AsJson = False) -> None:
    """Show the card of a data set: source, licence, columns, borders.

    Example: forecaster data show ETTh1
    """
    from forecaster.datasets.card import load_card

    card = load_card(name)
    if as_json:
        print_json(card.model_dump(mode="json", exclude_none=True))
        return
    print((installation.cards() / f"{card.name}.yaml").read_text(encoding="utf-8"), end="")


@app.command("fetch")
def data_fetch(name: str, as_json: AsJson = False) -> None:
    """Find a data set, or download it, and print where it is.

    Example: forecaster data fetch ETTh1
    """
    from forecaster.datasets.card import load_card
    from forecaster.datasets.fetch import locate

    card = load_card(name)
    file = locate(card)
    if as_json:
        print_json({"name": card.name, "file": str(file)})
        return
    print(file)


@app.command("check")
@configured(*ABOUT_FILES)
@described(
    file="A file, a folder or a pattern (docs/data.md).",
    picture="PNG or SVG to draw; else NAME-check.png here.",
    no_picture="Draw no picture.",
)
def data_check(
    request: Asked,
    file: Annotated[str, typer.Argument()],
    picture: Path | None = None,
    no_picture: Annotated[bool, typer.Option("--no-picture")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what your file holds, and what training would make of it.

    Shows columns and their roles, time step and seasons, gaps and missing values, the parts with
    their windows, and the memory needed; draws a picture, and prints the command that trains on the
    file. Takes the options of train and trains nothing.

    Example: forecaster data check sales.csv --target amount --horizon 96
    """
    if not installation.names_a_file(file):
        raise UsageError(
            f"data check: expected a file, a folder or a pattern, got '{file}'; to show a data set "
            f"by name: forecaster data show {file}"
        )
    check_ending("picture", picture, *PICTURES)
    loaded = request.load(data=file)
    from forecaster.datasets import check
    from forecaster.plan.data import find_data
    from forecaster.plan.plan import make_plan
    from forecaster.plan.splits import make_splits

    tell = nothing if as_json else say
    splits = make_splits(make_plan(*find_data(loaded, tell), tell), known=None)
    dataset, borders, oddities = splits.plan.dataset, splits.plan.borders, splits.plan.oddities
    past, _, steps = splits.plan.config.window.lengths()
    report = check.report(dataset, steps, past, borders, oddities)
    advice = check.advice(report)
    reading = dataset.reading
    time = reading.time_columns or dataset.time
    read = {"time": time, "id": reading.id, "freq": dataset.freq, "season": dataset.seasons}
    cut = {"horizon": steps, "lookback": past, "split": splits.plan.config.data.split}
    if any(oddity.kind == "unfinished" for oddity in oddities):
        cut["drop_last"] = True
    command = request.command("train", data=file, **read, **cut)
    if not as_json:
        print(check.text(report))
    drawn = None if no_picture else picture or Path(f"{dataset.name}-check.png")
    refused = None
    if drawn:
        try:
            draw(check.figure(dataset, borders), drawn)
        except StorageError as error:
            drawn, refused = None, error
    if as_json:
        shown = drawn and str(drawn)
        print_json({**report, "picture": shown, "command": "" if advice else command})
    elif drawn:
        print(f"picture     {drawn}")
    if advice:
        raise DataError(advice)
    if not as_json:
        print(f"to train    {command}")
    if refused and picture:
        raise refused
    if refused:
        say(f"{refused}; --picture names another place, --no-picture draws none")
