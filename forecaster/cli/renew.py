"""Train a model anew on newer rows, and let the better one be served."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from forecaster.base.errors import UsageError
from forecaster.cli.options import AsJson, Count, Device, Model, described
from forecaster.cli.output import nothing, print_json, say

KEPT, CALM = 10, 11
"""Exit codes: the model that is served stays, after a contest and without one."""


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
        found = look(ledger, kept.promise(bundle), say)
        for each in found.alarms:
            say(str(each))
        if if_alarmed and not found.alarmed:
            say("nothing is to be renewed")
            if as_json:
                print_json({"outcome": "calm", **found.to_dict()})
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
