"""Let the intervals of a model follow what came."""

from math import exp
from pathlib import Path

from forecaster.base.errors import UsageError
from forecaster.cli.options import AsJson, Model, described
from forecaster.cli.output import print_json, say


@described(
    ledger="The folder of `forecaster predict --ledger`, or of a service.",
    to="Folder to write the model to; by default its own.",
)
def recalibrate(
    model: Model, ledger: Path, to: Path | None = None, as_json: AsJson = False
) -> None:
    """Let the intervals of a model follow what came.

    Bands become wider after misses and narrower while they hold too much, by the values of the
    ledger alone: the same ledger gives the same widths. The model is written anew with them, and a
    service takes it up as it does any other (docs/after.md).

    Example: forecaster recalibrate --model serving --ledger ledger
    """
    from forecaster.forecast import recalibrated
    from forecaster.forecast.predictor import load_bundle

    bundle = load_bundle(model)
    if to is None and not Path(model).is_dir():
        raise UsageError("a registered model stays as it is: write it with --to FOLDER, serve that")
    done = recalibrated.recalibrate(bundle, ledger, to or Path(model), say)
    about = done.about["calibration"]
    if as_json:
        print_json({"digest": done.digest, **about})
        return
    for target, widths in about["widths"].items():
        for share, factor in widths.items():
            print(f"{target}, {float(share):.0%} band: {exp(factor):.2f} times as wide")
    print(f"bundle   {to or model}, {done.digest}")
