"""Forecasts that need no gradient, each a part that can stand alone or be weighed with others.

A kind of part is a class with `fit`, `forward`, `settings` and `build` (base.py). Ours are in
KINDS; those of other packages are found by the entry point `forecaster.parts`, whose name is their
kind.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from forecaster.errors import BundleError
from forecaster.parts.base import Fold, Part
from forecaster.parts.blend import NETWORK, Blend, Network, Once, weigh
from forecaster.parts.errors import mse
from forecaster.parts.naive import CycleMean, LastValue, TrainingMean
from forecaster.parts.ridge import Ridge
from forecaster.parts.trend import DampedTrend, Drift

KINDS: dict[str, type[Part]] = {
    part.kind: part for part in (TrainingMean, LastValue, CycleMean, Drift, DampedTrend, Ridge)
}
"""The closed forms, in the order in which they are shown."""

__all__ = [
    "KINDS", "NETWORK", "Blend", "Fold", "Network", "Once", "Part", "fit_and_weigh",
    "fit_parts", "kind_of", "kinds", "weigh",
]  # fmt: skip


@cache
def kinds() -> dict[str, type[Part]]:
    """Ours, then those of other packages by their names."""
    from importlib.metadata import entry_points

    others = {each.name: each.load() for each in entry_points(group="forecaster.parts")}
    return {**KINDS, **{name: each for name, each in others.items() if name not in KINDS}}


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
    """Every part for a fold; where few windows choose, what its rehearsal chose."""
    return _rehearsed(fold)[0]


def fit_and_weigh(fold: Fold, network: Network) -> tuple[list[Part], Tensor, Tensor]:
    """Every part for a fold and the network, their weights (n, T), and the MSE of each (n,).

    The errors are those on `fold.choose`. Where it has few windows, the closed forms are weighed
    with each other as their rehearsal forecast, and only then with the network, which has not
    rehearsed: it has a quarter of the votes, as one family of four.
    """
    forms, rehearsed, rehearsal = _rehearsed(fold)
    tried = [*forms, network]
    if rehearsal is None:
        return tried, *weigh(tried, fold.choose)
    shares, _ = weigh(rehearsed, rehearsal.choose)
    together = Blend(fold.task, {part.name: part for part in forms}, shares).eval()
    together.to(fold.choose.values.device)
    errors = mse(tried, fold.choose)
    both, _ = weigh([together, network], fold.choose, (3.0, 1.0))
    return tried, torch.cat([shares * both[0], both[1:]]), errors


def _rehearsed(fold: Fold) -> tuple[list[Part], list[Part], Fold | None]:
    """The parts, the same as they were fitted to the rehearsal of a fold, and that."""
    rehearsal = fold.rehearsal
    fitted = [part.eval() for kind in kinds().values() for part in kind.fit(rehearsal or fold)]
    if rehearsal is None:
        return fitted, fitted, None
    return [part.refit(fold).eval() for part in fitted], fitted, rehearsal
