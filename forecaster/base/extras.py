"""Which extra of the installation brings a package, for the message when one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from forecaster.base.errors import UnavailableError

EXTRAS = {
    "train": ("lightning", "torchmetrics", "sklearn", "scipy", "matplotlib", "jinja2"),
    "serve": (
        *("fastapi", "starlette", "uvicorn", "httptools", "fastapi_offline"),
        *("asgi_correlation_id", "structlog", "prometheus_client", "pydantic_settings"),
    ),
    "registry": ("mlflow", "psutil"),
    "all": ("sqlalchemy", "alembic"),  # missing in the slim client of MLflow
    "excel": ("python_calamine",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "ray": ("ray",),
    "tune": ("optuna",),
    "pretrained": ("chronos",),
}
"""The modules that the base installation lacks, by the extra that brings them."""
BRINGS = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def told(error: BaseException, what: str = "this") -> UnavailableError | None:
    """An error that states how to install a missing package; None if no extra brings it.

    `what` is the feature that needs it.
    """
    module = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing(module.partition(".")[0], what) if module else None


def missing(module: str, what: str = "this") -> UnavailableError | None:
    if (extra := BRINGS.get(module)) is None:
        return None
    return UnavailableError(f"{what} needs {module}: pip install {ours(extra)}")


def ours(extra: str) -> str:
    """The package with an extra, as `pip install` takes it in a shell."""
    return f"'attention-forecaster[{extra}]'"


@contextmanager
def needed(what: str) -> Iterator[None]:
    """A context for imports that `what` needs. Raises UnavailableError if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise told(error, what) or error from None


def check(module: str, what: str) -> None:
    """Raise UnavailableError if `module` is not installed, without importing it."""
    if find_spec(module) is None:
        raise missing(module, what) or UnavailableError(f"{what} needs {module}")
