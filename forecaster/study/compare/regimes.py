"""The studied regimes: which series resemble each, and what is known there.

The grids of a regime have its name, further ones with a dot and a suffix. FILE holds what they have
shown; `benchmarks/render.py` writes it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from forecaster.datasets.seasons import RARE, Facts

FILE = Path(__file__).with_name("evidence.json")
COLUMNS, ENOUGH = 8, 10
"""Thresholds, in round numbers: the columns that are many, and the cycles that are enough."""

Seen = tuple[bool, str]
"""Whether a series resembles a regime, and the facts that decided it, in words."""


@dataclass(frozen=True)
class Known:
    """What the finished grids of a regime have shown (`benchmarks/evidence.py`).

    `attn` is the type that they favour: `found` says why in words, and `reason` by what it is
    better: `content`, `positions` or `nothing`. `place` is the grid, its regime and whether there
    is a linear path, None if no type is better at any. In `of` tables it is `better` or `worse`;
    `cost` is its training time divided by that of `none`, `cheapest` the attention that trains
    fastest, and `smallest` the difference that would have been found. To have its tokens, a run
    copies `config`, `sets` and, for `--attn`, `swapped`. `together` is the weakest correlation of
    columns among the data sets `on` which it was measured, and `evidence` holds the figures.
    """

    attn: str
    reason: str
    place: dict[str, Any] | None
    better: int
    worse: int
    of: int
    cost: float | None
    cheapest: str | None
    smallest: float | None
    found: str
    config: str | None
    sets: list[str]
    swapped: str | None
    evidence: list[dict[str, Any]]
    together: float | None
    on: list[str]


@cache
def known() -> dict[str, Known]:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Known(**fields) for name, fields in document.items()}


@dataclass(frozen=True)
class Regime:
    """`look` gets the facts of a series, and the weakest correlation of columns among the measured
    data. A `generated` regime shows what types can do, not that a forecast gains from it. `fits`
    are the values, as `--set` takes them, that make its grid in configs/grids fit other data."""

    name: str
    about: str
    wants: str
    look: Callable[[Facts, float | None], Seen]
    generated: bool = False
    fits: tuple[str, ...] = ("window.past=auto",)

    @property
    def known(self) -> Known:
        return known()[self.name]

    def see(self, facts: Facts) -> Seen:
        return self.look(facts, self.known.together)


def _known(facts: Facts, _: float | None) -> Seen:
    if not facts.known:
        return False, "no column is named as known ahead (--future-covariates)"
    return True, some(facts.known)


def _columns(facts: Facts, weakest: float | None) -> Seen:
    if facts.series > 1:
        return False, f"{facts.series:,} series of one column, each forecast by itself"
    if facts.targets < COLUMNS:
        few = f"{facts.targets} column{'s' * (facts.targets > 1)} to forecast"
        return False, f"{few}, not {COLUMNS}"
    least = f"; the least that was measured is {weakest:.2f}" if weakest is not None else ""
    if facts.together is None:
        return False, f"{facts.targets} columns, but their correlation is not known"
    text = f"{facts.targets} columns with a mean correlation of {facts.together:.2f}{least}"
    return weakest is None or facts.together >= weakest, text


def _events(facts: Facts, _: float | None) -> Seen:
    if not facts.events:
        return False, "no rare event is known ahead"
    return True, some([event["name"] for event in facts.events])


def _usual(facts: Facts, _: float | None) -> Seen:
    if not facts.seasons:
        return False, "no visible season"
    text = f"{facts.cycles:,} cycle{'s' * (facts.cycles != 1)} of {min(facts.seasons)} steps"
    enough = facts.cycles >= ENOUGH
    return enough, text if enough else f"{text}, not {ENOUGH}"


def some(names: Sequence[str]) -> str:
    """The first three names, and the number of others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


REGIMES: dict[str, Regime] = {
    regime.name: regime
    for regime in (
        Regime("known", look=_known,
               about="the tokens carry covariates known ahead, such as a forecast of the load",
               wants="a column that is named as known ahead"),
        Regime("columns", look=_columns,
               about="each column is a token, and many columns attend to one another",
               wants=f"{COLUMNS} columns to forecast or more in one series, at least as strongly "
                     "correlated as in the least correlated set that was measured"),
        Regime("drift", generated=True,
               look=lambda *_: (False, "whether a period changes is not measured"),
               about="waves whose period changes, so that no fixed distance fits; generated "
                     "samples with a known phase of each step",
               wants="nothing: no set with a card has such a period"),
        Regime("recall", look=_events, generated=True,
               about="a value far back is found by what was beside it; generated samples",
               wants="rare events: a column known ahead, or public holidays (--holidays), not zero "
                     f"in less than {RARE:.0%} of the steps, of which a similar one has to be "
                     "found"),
        Regime("usual", look=_usual, fits=("window.past=auto", "model.tokens=cycle"),
               about="seasons, and no other structure",
               wants=f"a visible season, with {ENOUGH} cycles or more"),
    )
}  # fmt: skip
"""The regimes by name; the first that a series resembles is the most specific."""
