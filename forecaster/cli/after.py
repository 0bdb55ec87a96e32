"""What is done with a model after its forecasts: score them, renew it."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from forecaster.base.errors import UsageError
from forecaster.base.spelling import rounded
from forecaster.cli.options import AsJson, Count, Device, Model, described
from forecaster.cli.output import PICTURES, check_ending, draw, nothing, print_json, say

KEPT, CALM = 10, 11
"""Exit codes: the model that is served stays, after a contest and without one."""


@described(
    ledger="The folder of `forecaster predict --ledger`, or of a service.",
    actuals="File with the values that came, in the form of the training file; they are kept in "
    "the ledger. By default those that the ledger has.",
    by="Also by series, target or step ahead.",
    picture="PNG or SVG file to draw error and coverage by day to.",
)
def score(
    model: Model,
    ledger: Path,
    actuals: str | None = None,
    by: Literal["series", "target", "step"] | None = None,
    picture: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Score the forecasts of a model by the values that came.

    Errors are in units and in standard deviations of a series, beside those of the test split, and
    against the seasonal naive forecast from the same origins, over the last day, week and month. An
    alarm says that error or coverage got worse than on the test split; at most 5 % of models have a
    false one within a year (docs/after.md).

    Example: forecaster score --model forecaster-shops-S-y-14 --ledger ledger --actuals new.csv
    """
    from forecaster.datasets import reader
    from forecaster.forecast import kept
    from forecaster.forecast.predictor import load_bundle
    from forecaster.record import live
    from forecaster.record.ledger import Ledger
    from forecaster.record.look import look

    check_ending("picture", picture, *PICTURES)
    bundle = load_bundle(model)
    if actuals is not None:
        series = reader.read(actuals, bundle.schema.reading).series
        writer = Ledger(ledger)
        writer.add("actuals", kept.of_series(series, bundle.schema.targets))
        writer.flush()
        if writer.lost:
            raise UsageError(f"{ledger} cannot be written: the values are not kept")
    review = look(ledger, kept.promise(bundle), say)
    if not (len(review.rows) or review.waiting):
        raise UsageError(f"{ledger} has no forecast of this model, {bundle.digest}")
    if review.rows.empty:
        raise UsageError(
            f"no value came yet for the {review.waiting:,} steps that were forecast: give a file "
            "with later rows as --actuals"
        )
    expected = review.promise.error
    if as_json:
        print_json(review.to_dict(by))
    else:
        table = review.frame(by)
        print(table.to_string(index=False, float_format=partial(rounded, digits=4), na_rep="-"))
        say(f"{len(review.rows):,} steps scored, {review.waiting:,} wait for their values")
        if review.strange:
            say(
                f"{review.strange:,} steps do not count: they were made from other values than came"
            )
        if expected is not None:
            say(f"on the test split the scaled error was {expected:.4g}")
        for alarm in review.alarms:
            say(str(alarm))
    if picture:
        renewed = bundle.about.get("renewed")
        older = replace(review.promise, model=renewed["before"]) if renewed else None
        before = look(ledger, older).rows if older else None
        draw(live.figure(review.rows, expected, before=before), picture)
        say(f"drew error and coverage by day to {picture}")


@described(
    data="File with newer rows, in the form of the training file.",
    horizons="On how many horizons at the end both are compared.",
    all_rows="Train a winner once more on all rows, which is not judged.",
    to="Folder to write a winner to, such as that of a service.",
    ledger="The folder of the ledger, for --if-alarmed.",
    if_alarmed="Do it only if the forecasts in --ledger got worse than on the test split.",
)
def renew(
    model: Model,
    data: str,
    horizons: Count = 8,
    all_rows: Annotated[bool, typer.Option("--all-rows")] = False,
    to: Path | None = None,
    ledger: Path | None = None,
    if_alarmed: Annotated[bool, typer.Option("--if-alarmed")] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train a model anew on newer rows, and serve the better one.

    The challenger has the configuration of the model and trains on the rows before the last
    horizons; both are compared there. A winner becomes the champion of the registry if the model
    came from there (docs/after.md). Exit codes: 0 renewed, 10 the model stays, 11 no alarm.

    Example: forecaster renew --model forecaster-sales-S-y-14 --data sales.csv --ledger ledger
    """
    from forecaster.forecast import kept
    from forecaster.forecast.predictor import load_bundle
    from forecaster.record.look import look

    if if_alarmed and ledger is None:
        raise UsageError("--if-alarmed needs the --ledger with the forecasts")
    bundle = load_bundle(model)
    if ledger is not None:
        review = look(ledger, kept.promise(bundle), say)
        for alarm in review.alarms:
            say(str(alarm))
        if if_alarmed and not review.alarmed:
            say("nothing is to be renewed")
            if as_json:
                print_json({"outcome": "calm", **review.to_dict()})
            raise typer.Exit(CALM)
    from forecaster.cli.train import show
    from forecaster.run import renew as renewing

    done = renewing.renew(
        bundle, data, say, nothing if as_json else partial(show, whole=False), horizons=horizons,
        whole=all_rows, to=to, device=device or "auto",
    )  # fmt: skip
    if as_json:
        print_json(done.to_dict())
    else:
        print(f"\noutcome  {done.became}")
        print(f"bundle   {done.folder}")
    if not done.served:
        raise typer.Exit(KEPT)
