"""Choose by hand which model is served."""

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli.options import described


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
