"""How a message spells an option: as the command line does, or as Python does.

Code that raises an error or says a sentence about an option asks for it by `spelled`.
"""

import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any


def option(name: str) -> str:
    """A flag as people type it: "--past-covariates" for past_covariates."""
    return f"--{name.replace('_', '-')}"


def typed(name: str, value: Any = None) -> str:
    """An option as the command line takes it: `--policy sort`, `--set train.batch=8`."""
    if "." in name:
        return f"--set {name}" if value is None else f"--set {name}={json.dumps(value)}"
    text = ",".join(value) if isinstance(value, list) else str(value)
    return option(name) if value is None else f"{option(name)} {text}"


SPELLING: ContextVar[Callable[[str, Any], str]] = ContextVar("SPELLING", default=typed)
"""How messages spell an option: as the face at work does, which is the command line or Python."""


def spelled(name: str, value: Any = None) -> str:
    """An option in a message, by its name in FLAGS or the dotted name of any value.

    The command line has `--policy sort`, `Forecaster` has policy='sort'.
    """
    return SPELLING.get()(name, value)
