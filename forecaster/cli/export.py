"""Write a model as ONNX."""

from pathlib import Path
from typing import Literal

from forecaster.base.errors import UsageError
from forecaster.cli.options import AsJson, Model, described
from forecaster.cli.output import print_json, say


@described(
    format="The format of ONNX Runtime.",
    output="A folder to write to; else NAME-onnx here.",
)
def export(
    model: Model,
    format: Literal["onnx"] = "onnx",
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, for other programs.

    The exported model maps a history in units to a forecast in units, with its quantiles;
    model.json beside it describes inputs and outputs. The files are kept only if the forecasts
    equal the model's, within 1e-5 of the series' standard deviation.

    Example: forecaster export --model forecaster-ETTh1-M-all-336 --format onnx
    """
    from forecaster.forecast.export import graph
    from forecaster.forecast.export.description import FILE
    from forecaster.forecast.predictor import Predictor

    graph.needed()
    forecaster = Predictor.load(model, "cpu")
    folder = output or Path(f"{forecaster.bundle.name}-{format}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output: {folder} already exists; name a new or an empty folder")
    description = graph.export(forecaster, folder)
    file = folder / FILE
    if as_json:
        print_json({**description.to_dict(), "file": str(file)})
    else:
        say(f"at most {description.parity:.1g} standard deviations from the model's own forecasts")
        print(file)
