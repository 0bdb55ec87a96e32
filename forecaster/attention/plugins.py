"""Mechanisms by name: ours, and those of other packages in the group `forecaster.attentions`:

    [project.entry-points."forecaster.attentions"]
    mine = "my_package:MyAttention"

The class derives from `forecaster.attention.Attention`; --attn then takes its name.
"""

from collections import UserDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from forecaster.base.errors import UsageError

if TYPE_CHECKING:
    from forecaster.attention.base import Attention

GROUP = "forecaster.attentions"

_ALLOWED: ContextVar[Mapping[str, Collection[str]] | None] = ContextVar("allowed", default=None)


@contextmanager
def allowing(names: Collection[str], group: str = GROUP) -> Iterator[None]:
    """Import only `names` of a group from other packages, in this thread and this block.

    It is meant for a service, which reads the name of an attention, or the kind of a part, from a
    file that somebody else wrote.
    """
    token = _ALLOWED.set({**(_ALLOWED.get() or {}), group: names})
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def allowed(name: str, group: str = GROUP) -> bool:
    """Whether `name` of a group may be imported from another package in this block."""
    named = _ALLOWED.get() or {}
    return group not in named or name in named[group]


class LazyTable(UserDict[str, Any]):
    """Classes by name. The file of a name is imported, and its class found, when first read."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(dict.fromkeys(names))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            from forecaster.attention.base import Attention

            module = import_module(f"forecaster.attention.{name.replace('-', '_')}")
            kinds = [x for x in vars(module).values() if isinstance(x, type)]
            classes = (x for x in kinds if x.__module__ == module.__name__)
            (self.data[name],) = (x for x in classes if issubclass(x, Attention))
        return self.data[name]


class Catalogue(Mapping[str, "type[Attention]"]):
    """Our table, then the classes that other packages offer, which are imported when read.

    An entry point cannot replace a name of the table. Within `allowing`, only the names that it
    lists are imported from other packages; others raise UsageError.
    """

    def __init__(self, table: "Mapping[str, type[Attention]]") -> None:
        self.table = table

    def __getitem__(self, name: str) -> "type[Attention]":
        if name in self.table:
            return self.table[name]
        from forecaster.attention.base import Attention

        entry = self._offered()[name]
        package = self.plug_ins()[name]
        if not allowed(name):
            raise UsageError(
                f"attention '{name}' is offered by the package {package}, which may not be loaded "
                f"here; allow it with FORECASTER_ATTENTIONS={name}"
            )
        try:
            kind = entry.load()
        except Exception as error:  # code of others may raise anything
            raise UsageError(
                f"attention '{name}' of the package {package} cannot be imported from "
                f"{entry.value}: {type(error).__name__}: {error}"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Attention)):
            raise UsageError(
                f"attention '{name}' of the package {package} must be a class derived from "
                f"forecaster.attention.Attention, got {kind!r}"
            )
        return kind

    def __iter__(self) -> Iterator[str]:
        yield from self.table
        yield from self.plug_ins()

    def plug_ins(self) -> dict[str, str]:
        """The packages of the mechanisms that are not ours, by the names of these."""
        return {
            name: entry.dist.name if entry.dist else entry.value
            for name, entry in self._offered().items()
            if name not in self.table
        }

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _offered(self) -> dict[str, Any]:
        """Entry points by name; a backport of importlib.metadata has a different class for them."""
        return {entry.name: entry for entry in entry_points(group=GROUP)}
