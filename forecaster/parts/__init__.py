"""Forecasts that need no gradient: parts that can be used alone or blended with others.

A kind of part is a class with `fit`, `forward`, `settings` and `build` (base.py). Ours are in
KINDS; those of other packages are entry points in the group `forecaster.parts`, named after their
kind. A service imports only those that its settings name (`forecaster.attention.plugins`). It reads
`model`, `record`, `datasets`, `attention` and `base`. Begin reading with `base`, then `blend`.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

import torch

from forecaster.attention.plugins import allowed
from forecaster.base import machine, signals
from forecaster.base.errors import BundleError
from forecaster.parts.base import Fold, Part
from forecaster.parts.blend import Blend, Network, Weights, weigh
from forecaster.parts.boosted import Boosted
from forecaster.parts.naive import CycleMean, LastValue, TrainingMean
from forecaster.parts.products import mse
from forecaster.parts.ridge import Ridge
from forecaster.parts.smoothing import Smoothing
from forecaster.record import NETWORK

GROUP = "forecaster.parts"
KINDS: dict[str, type[Part]] = {
    part.kind: part for part in (TrainingMean, LastValue, CycleMean, Smoothing, Boosted, Ridge)
}
"""The closed forms, in the order in which they are shown."""
PRETRAINED = "chronos"

QUARTER = 0.25
"""The most that a network weighs where the closed forms need a rehearsal."""

Forms: TypeAlias = tuple[list[Part], list[Part], Fold | None]
"""The closed forms of a fold, the same ones as fitted to its rehearsal, and the rehearsal: None if
enough windows choose."""

__all__ = [
    "KINDS",
    "NETWORK",
    "Blend",
    "Fold",
    "Forms",
    "Network",
    "Part",
    "Weights",
    "blend_forms",
    "fit_forms",
    "kind_of",
    "kinds",
    "weigh",
    "weigh_forms",
]  # fmt: skip


def kinds() -> dict[str, type[Part]]:
    """All kinds by name: ours, then those of other packages."""
    return {**KINDS, **{name: entry.load() for name, entry in _offered().items()}}


def kind_of(name: str) -> type[Part]:
    """The class of a kind. Raises BundleError for one that is unknown or may not be loaded here."""
    if name in KINDS:
        return KINDS[name]
    if name == PRETRAINED:  # imported by those that name one
        from forecaster.parts.pretrained import Pretrained

        return Pretrained
    offered = _offered()
    if name not in offered:
        raise BundleError(
            f"this bundle has a part of the kind '{name}', but the kinds known here are "
            f"{', '.join([*KINDS, *offered])}; install the package that provides it"
        )
    if not allowed(name, GROUP):
        raise BundleError(
            f"this bundle has a part of the kind '{name}' of another package, which may not be "
            f"loaded here; allow it with FORECASTER_PARTS={name}"
        )
    kind: type[Part] = offered[name].load()
    return kind


def _offered() -> dict[str, EntryPoint]:
    """The kinds that other packages offer; none can replace one of ours."""
    return {
        entry.name: entry
        for entry in entry_points(group=GROUP)
        if entry.name not in (*KINDS, PRETRAINED)
    }


@machine.exact()
def fit_forms(fold: Fold) -> Forms:
    """Every closed form for a fold; if few windows choose, the choices come from its rehearsal."""
    rehearsal, device = fold.rehearsal, fold.choose.values.device
    fitted: list[Part] = []
    for kind in (*kinds().values(), *([kind_of(PRETRAINED)] if fold.pretrained else [])):
        signals.check()
        fitted += [part.to(device).eval() for part in kind.fit(rehearsal or fold)]
    if rehearsal is None:
        return fitted, fitted, None
    return [part.refit(fold).to(device).eval() for part in fitted], fitted, rehearsal


@machine.exact()
def blend_forms(fold: Fold, forms: Forms) -> Blend:
    """The closed forms of a fold as one forecast, weighed as they are beside a network."""
    parts, rehearsed, rehearsal = forms
    return Blend.weighed(
        parts, weigh(rehearsed, (rehearsal or fold).choose, len(fold.train))
    ).eval()


@machine.exact()
def weigh_forms(fold: Fold, forms: Forms, network: Network) -> tuple[list[Part], Weights]:
    """All parts, the closed forms of a fold and the network, and their weights.

    The errors are those on `fold.choose`. If it has few windows, the closed forms are first
    weighted among each other by the forecasts of their rehearsal, and only then against the
    network, which has no rehearsal: it has a quarter of the votes, as one family of four, and at
    most a quarter of the weight, as these windows stopped it: 62 % from two windows cost 0.962
    against 0.552 without it.
    """
    parts, rehearsed, rehearsal = forms
    trained, device = len(fold.train), fold.choose.values.device
    if rehearsal is None:
        candidates: list[Part] = [*(part.to(device) for part in parts), network]
        return candidates, weigh(candidates, fold.choose, trained)
    there = rehearsal.choose.values.device  # may be another one; some parts are in both lists
    weights = weigh([part.to(there) for part in rehearsed], rehearsal.choose, trained)
    candidates = [*(part.to(device) for part in parts), network]
    together = Blend(fold.task, {part.name: part for part in parts}, weights.common).eval()
    errors = mse(candidates, fold.choose)
    both = weigh([together.to(device), network], fold.choose, trained, (3.0, 1.0)).common
    share = both[1:].clamp(max=QUARTER)
    by_series = None
    if weights.of_series is not None:
        even = share.mean().expand(len(weights.of_series), 1)
        by_series = torch.cat([weights.of_series * (1 - even), even], dim=1)
    common = torch.cat([weights.common * (1 - share), share])
    return candidates, Weights(common, errors, by_series)
