"""A bundle as the folder of an MLflow model, with the code of forecaster; nothing is pickled."""

import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

from forecaster.tracking import store  # before mlflow, which it silences

# isort: split
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType
from mlflow.version import VERSION as MLFLOW

from forecaster.base.installation import MANIFEST, PACKAGE
from forecaster.forecast.bundle import FILES
from forecaster.forecast.predictor import Predictor

REQUIREMENTS = (
    *("mlflow", "torch", "numpy", "pandas", "pydantic", "pyyaml", "safetensors"),
    *("jaxtyping", "platformdirs"),
)
"""The packages that a bundle needs to run; the code of forecaster itself is logged with the model,
since a package index may have another package of that name."""


def build(folder: Path, path: Path) -> None:
    """Write the bundle of a folder as a model to `path`.

    Its example and that one's forecast determine the signature. Raises MLflow's errors and OSError.
    """
    ahead = Predictor.load(folder, "cpu")
    example, horizon = ahead.example, ahead.bundle.horizon
    params = [
        ParamSpec("horizon", DataType.long, default=horizon),
        ParamSpec("quantile_levels", DataType.double, default=[], shape=(-1,)),
    ]
    # any type, for the reader checks them: MLflow's doubles refuse whole numbers, as pandas reads
    # them from many files, and its stamps those with a zone, even those of its own server's answers
    inputs = [ColSpec(AnyType(), name, required=False) for name in example.columns]
    kinds = ahead.predict(example).dtypes.items()
    outputs = [
        ColSpec(DataType.double, name)
        if kind.kind == "f"
        else ColSpec(AnyType(), name, required=False)
        for name, kind in kinds
    ]
    signature = ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))
    with (
        tempfile.TemporaryDirectory(prefix="forecaster-") as temporary,
        warnings.catch_warnings(),
        store.silent(),
    ):
        warnings.simplefilter("ignore")  # MLflow's warnings about its own type hints and pandas
        from mlflow.pyfunc import save_model

        bundle = Path(temporary, "bundle")
        bundle.mkdir()
        for name in (*FILES, MANIFEST):
            shutil.copy(folder / name, bundle)
        save_model(
            path,
            python_model=str(PACKAGE / "tracking" / "pyfunc_model.py"),
            artifacts={"bundle": str(bundle)},
            code_paths=[str(PACKAGE)],
            signature=signature,
            input_example=example,
            pip_requirements=[f"{package}=={_version(package)}" for package in REQUIREMENTS],
        )


def _version(package: str) -> str:
    """The installed version of a package; for MLflow, possibly that of the slim one."""
    return MLFLOW if package == "mlflow" else version(package).partition("+")[0]
