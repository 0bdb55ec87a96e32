"""Look things up by name, and read options from the constructor that takes them.

`option_model` turns the keyword-only parameters of a constructor into a strict pydantic model, so
an option is declared once: in the signature of the class that uses it.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from forecaster.base.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")

NEWEST = "newest"
"""Instead of the name of a model: the one that was registered last."""
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}"
REFERENCE = re.compile(
    rf"(?:runs:/)?(?P<run>[0-9a-f]{{32}})(?:/(?P<part>{NAME}))?"
    r"|(?:models:/)?(?P<model>m-[0-9a-f]{32})"
    rf"|(?:models:/)?(?P<name>{NAME})(?:@(?P<alias>{NAME})|/(?P<version>[0-9]{{1,9}}))?"
)


def canonical(name: str) -> str:
    """The spelling used in tables: lower case, hyphens."""
    return name.strip().lower().replace("_", "-")


def did_you_mean(name: str, choices: Iterable[str], synonyms: Mapping[str, str] = {}) -> str:
    """ " Did you mean 'prob'?", or "" if no choice is similar."""
    known = list(choices)
    spelling = canonical(name)
    synonym = synonyms.get(spelling)
    if synonym in known:
        return f" Did you mean '{synonym}'?"
    folded = {canonical(choice): choice for choice in known}
    near = difflib.get_close_matches(spelling, folded, n=1, cutoff=0.5)
    return f" Did you mean '{folded[near[0]]}'?" if near else ""


def find(
    table: Mapping[str, T], name: str, kind: str, synonyms: Mapping[str, str] = {}
) -> tuple[str, T]:
    """The entry called `name` and its spelling in the table.

    Raises UsageError naming the most similar entry and all entries.
    """
    # the first that fits: what other packages offer comes last in a table, and takes long to find
    key = next((key for key in table if canonical(key) == canonical(name)), None)
    if key is None:
        hint = did_you_mean(name, table, synonyms)
        raise UsageError(f"unknown {kind} '{name}'.{hint} Known: {', '.join(table)}.")
    return key, table[key]


def model_reference(text: str) -> dict[str, str | None]:
    """The parts of the name of a model in MLflow, None for those that it lacks.

    Raises UsageError for a text that cannot be a name.
    """
    parts = REFERENCE.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"'{text}' names no model: expected a bundle's folder, a run id (32 hexadecimal "
            "digits), NAME, NAME@alias, NAME/version, models:/... or runs:/..."
        )
    return parts.groupdict()


def model_names(name: str, alias: str | None, version: str | None) -> tuple[str, ...]:
    """The names that a request may use for a registered model."""
    aliases = (alias, f"{name}@{alias}") if alias else ()
    versions = (version, f"{name}/{version}") if version else ()
    return (name, *aliases, *versions)


@cache
def option_model(constructor: Callable[..., Any], title: str) -> "type[BaseModel]":
    """A strict pydantic model of the keyword-only parameters of `constructor`."""
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {
        parameter.name: (parameter.annotation, parameter.default)
        for parameter in inspect.signature(constructor).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    config = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_default=True, allow_inf_nan=False
    )
    return create_model(title, __config__=config, **fields)


def quoted(names: Sequence[Any]) -> str:
    """Names in a message, the first twenty of them."""
    shown = ", ".join(f"'{name}'" for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
