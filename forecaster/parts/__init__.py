"""Forecasts that need no gradient, each a part that can stand alone or be weighed with others.

A kind of part is a class with `fit`, `forward`, `settings` and `build` (base.py). Ours are in
KINDS; those of other packages are found by the entry point `forecaster.parts`, whose name is their
kind.
"""

from collections.abc import Sequence
from functools import cache

from forecaster.errors import BundleError
from forecaster.parts.base import Fold, Part
from forecaster.parts.blend import NETWORK, Blend, Network, Once, weigh
from forecaster.parts.naive import CycleMean, LastValue, TrainingMean
from forecaster.parts.ridge import Ridge
from forecaster.parts.trend import DampedTrend, Drift

KINDS: dict[str, type[Part]] = {
    part.kind: part for part in (TrainingMean, LastValue, CycleMean, Drift, DampedTrend, Ridge)
}
"""The closed forms, in the order in which they are shown."""

__all__ = [
    "KINDS", "NETWORK", "Blend", "Fold", "Network", "Once", "Part", "fit_parts", "kind_of",
    "kinds", "weigh",
]  # fmt: skip


@cache
def kinds() -> dict[str, type[Part]]:
    """Ours, then those of other packages by their names."""
    from importlib.metadata import entry_points

    others = {each.name: each.load() for each in entry_points(group="forecaster.parts")}
    return {**others, **KINDS}


def kind_of(name: str) -> type[Part]:
    """Raises BundleError for a kind that nothing here knows."""
    try:
        return KINDS.get(name) or kinds()[name]
    except KeyError:
        raise BundleError(
            f"this bundle has a part of the kind '{name}', but here are {', '.join(kinds())}; "
            "install the package that brings it"
        ) from None


def fit_parts(fold: Fold) -> Sequence[Part]:
    """Every part for a fold."""
    return [part.eval() for kind in kinds().values() for part in kind.fit(fold)]
