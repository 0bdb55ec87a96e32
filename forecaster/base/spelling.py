"""How a message spells an option, as the command line or Python does; and numbers for people.

Code that raises an error or says a sentence about an option asks for it by `spelled`.
"""

import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any


def option(name: str) -> str:
    """A flag as people type it: "--past-covariates" for past_covariates."""
    return f"--{name.replace('_', '-')}"


def typed(name: str, value: Any = None) -> str:
    """An option as the command line takes it: `--policy sort`, `--set train.batch=8`."""
    if "." in name:
        return f"--set {name}" if value is None else f"--set {name}={json.dumps(value)}"
    text = joined(value) if isinstance(value, list) else str(value)
    return option(name) if value is None or value is True else f"{option(name)} {in_shell([text])}"


def in_shell(words: Iterable[str]) -> str:
    """Words as the shell of this system reads them: bash's quotes, on Windows double ones."""
    if sys.platform != "win32":
        return shlex.join(words)
    plain = re.compile(r"[\w@%+=:,./\\-]+")
    escaped = (word if plain.fullmatch(word) else word.replace('"', '\\"') for word in words)
    return " ".join(word if plain.fullmatch(word) else f'"{word}"' for word in escaped)


def joined(names: Sequence[str]) -> str:
    """Names with commas between, in quotes if they have a comma themselves."""
    return ",".join(f'"{name}"' if "," in name else name for name in names)


SPELLING: ContextVar[Callable[[str, Any], str]] = ContextVar("SPELLING", default=typed)
"""How messages spell an option: as the face at work does, which is the command line or Python."""


def spelled(name: str, value: Any = None) -> str:
    """An option in a message, by its name in FLAGS or the dotted name of any value.

    The command line has `--policy sort`, `Forecaster` has policy='sort'.
    """
    return SPELLING.get()(name, value)


def rounded(value: float, digits: int = 3, sign: str = "") -> str:
    """A number for people: 3,534 rather than 3.53e+03, and 0.0353 rather than 0.035342.

    It has all digits before the point and at least `digits` in all; `sign` is "+" to show it
    always. Only beyond a ten-thousandth or a thousand million million has it an exponent.
    """
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:{sign}.{digits}g}"
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:{sign},.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
