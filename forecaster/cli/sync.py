"""Upload what MLflow has not received yet."""

from dataclasses import asdict
from typing import Annotated

import typer

from forecaster.base.errors import UnavailableError
from forecaster.cli.options import AsJson, described
from forecaster.cli.output import print_json, say


@described(runs="Names or folders of runs; by default all in runs/.")
def sync(
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...")] = None,
    as_json: AsJson = False,
) -> None:
    """Upload to MLflow what it does not have yet.

    A run never waits for MLflow: what could not be uploaded, because MLflow was slow, hung or
    unreachable, is kept in runs/NAME.spool. Nothing is stored twice. Runs in progress are left
    alone.

    Example: forecaster sync
    """
    from forecaster.tracking.publish import sync as publish

    found = []
    for each in publish(runs or []):
        found.append(each)
        if each.under_way:
            say(f"{each.name}: in progress, its own process uploads it")
        elif each.left:
            say(f"{each.name}: not all uploaded: {each.left}")
        elif not as_json:
            print(f"{each.name}: uploaded{each.told and f'; {each.told}'}")
    if as_json:
        print_json({"runs": [asdict(each) for each in found]})
    elif not found:
        print(f"MLflow has all of {', '.join(runs or ['the runs in runs/'])}")
    if left := [each.name for each in found if each.left]:
        raise UnavailableError(
            f"{len(left)} of {len(found)} runs could not be uploaded: {', '.join(left)}. The rest "
            "is kept: run the same command again when MLflow answers."
        )
