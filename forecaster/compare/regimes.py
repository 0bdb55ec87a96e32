"""The studied regimes: which series resemble each, and its recipe.

The grids of a regime have its name, further ones with a dot and a suffix. Existing evidence is
used; a regime without any is not measured yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forecaster.compare import evidence
from forecaster.compare.evidence import Place, Table
from forecaster.compare.grid import read
from forecaster.datasets.facts import RARE, Facts
from forecaster.resources import configs

COLUMNS, DRIFTS, ENOUGH = 8, 0.3, 10
"""Thresholds: the number of columns that is many, the drift that is high, the cycles that are
enough."""


class Seen(NamedTuple):
    """Whether a series resembles a regime, and the facts that decided it, in words."""

    alike: bool
    text: str


@dataclass(frozen=True)
class Regime:
    """`look` gets the facts of a series, and the weakest correlation of columns among the measured
    data. A `generated` regime shows what types can do, not that a forecast gains from it. `without`
    holds the suffixes of data sets that serve only as contrast. `fits` are the values, as `--set`
    takes them, that make its grid fit other data than its own."""

    name: str
    grids: tuple[str, ...]
    about: str
    wants: str
    look: Callable[[Facts, float | None], Seen]
    generated: bool = False
    without: tuple[str, ...] = ()
    fits: tuple[str, ...] = ("window.past=auto",)

    def tables(self, among: Sequence[Table] | None = None) -> tuple[Table, ...]:
        """The tables of this regime, `among` those given or by default those of the package."""
        return tuple(
            each
            for each in (evidence.known() if among is None else among)
            if each.place.grid in self.grids and not each.data.endswith(self.without)
        )

    @property
    def grid(self) -> str | None:
        """The grid with the same protocol for other data, if there is a file for it."""
        folder = configs() / "grids"
        return next((name for name in self.grids if (folder / f"{name}.yaml").is_file()), None)

    def see(self, facts: Facts) -> Seen:
        together = [each.together for each in self.tables() if each.together is not None]
        return self.look(facts, min(together, default=None))


@dataclass(frozen=True)
class Recipe:
    """What a run must copy from a place to have its tokens: `config` is the recipe there, `sets`
    are values as `--set` takes them, `attn` is the type if it is not among these. `text` describes
    it in words."""

    config: str
    sets: tuple[str, ...]
    attn: str | None
    text: str


def recipe(place: Place, attn: str) -> Recipe:
    """The recipe of a type at a place, from the file of the grid, except for the training and the
    sizes that only a comparison needs."""
    _, values = read(place.grid)
    protocol = values["protocol"]
    regime = protocol["regimes"][place.regime]
    swap = regime.get("swap", ["encoder"])
    sets = [
        text
        for text in (*protocol.get("set", []), *regime.get("set", []))
        if text.startswith(("model.", "attn")) and not text.startswith("model.feed_forward=")
    ]
    tokens = next((text for text in sets[::-1] if text.startswith("model.tokens=")), "")
    of = f"{tokens.partition('=')[2]} tokens" if tokens else "the recipe's tokens"
    where = " and ".join({"encoder": "encoder", "cross": "cross-attention"}[each] for each in swap)
    path = "with" if place.linear else "without"
    if "cross" in swap:
        sets.append(f"attn.cross={attn}")
    if not place.linear:
        sets += ["model.linear=false", "train.lr_of={}"]
    return Recipe(
        protocol["config"],
        tuple(sets),
        attn if "encoder" in swap else None,
        f"{attn} in the {where} over {of}, {path} the linear path",
    )


def _known(facts: Facts, _: float | None) -> Seen:
    if not facts.known:
        return Seen(False, "no column is named as known ahead (--future-covariates)")
    return Seen(True, some(facts.known))


def _columns(facts: Facts, weakest: float | None) -> Seen:
    if facts.series > 1:
        return Seen(False, f"{facts.series:,} series of one column, each forecast by itself")
    if facts.targets < COLUMNS:
        few = f"{facts.targets} column{'s' * (facts.targets > 1)} to forecast"
        return Seen(False, f"{few}, not {COLUMNS}")
    least = f"; the least that was measured is {weakest:.2f}" if weakest is not None else ""
    if facts.together is None:
        return Seen(False, f"{facts.targets} columns, but their correlation is not known")
    text = f"{facts.targets} columns with a mean correlation of {facts.together:.2f}{least}"
    return Seen(weakest is None or facts.together >= weakest, text)


def _drift(facts: Facts, _: float | None) -> Seen:
    if facts.drift is None:
        return Seen(False, "no visible cycle, or too few of them")
    return Seen(facts.drift >= DRIFTS, f"drift is {facts.drift:.2f}, where {DRIFTS} is much")


def _events(facts: Facts, _: float | None) -> Seen:
    if not facts.events:
        return Seen(False, "no rare event is known ahead")
    return Seen(True, some([event.name for event in facts.events]))


def _usual(facts: Facts, _: float | None) -> Seen:
    if not facts.seasons:
        return Seen(False, "no visible season")
    text = f"{facts.cycles:,} cycle{'s' * (facts.cycles != 1)} of {min(facts.seasons)} steps"
    if facts.drift is not None and facts.drift >= DRIFTS:
        return Seen(False, f"{text}, but their period wanders")
    enough = facts.cycles >= ENOUGH
    return Seen(enough, text if enough else f"{text}, not {ENOUGH}")


def some(names: Sequence[str]) -> str:
    """The first three names, and the number of others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


REGIMES: dict[str, Regime] = {
    regime.name: regime
    for regime in (
        Regime(
            "known", ("known",),
            "the tokens carry covariates known ahead, such as a forecast of the load",
            "a column that is named as known ahead",
            _known,
        ),
        Regime(
            "columns", ("columns",),
            "each column is a token, and many columns attend to one another",
            f"{COLUMNS} columns to forecast or more in one series, at least as strongly correlated "
            "as in the least correlated set that was measured",
            _columns,
        ),
        Regime(
            "drift", ("drift",),
            "waves whose period changes, so that no fixed distance fits; generated samples "
            "with a known phase of each step",
            f"drift of {DRIFTS} or more",
            _drift,
            generated=True,
            without=("-fixed",),
        ),
        Regime(
            "events", ("events",),
            "rare events such as holidays, the last of which was long ago",
            f"a column known ahead, or public holidays (--holidays), not zero in less than "
            f"{RARE:.0%} of the steps",
            _events,
        ),
        Regime(
            "recall", ("recall",),
            "a value far back is found by what was beside it; generated samples",
            "rare events, as above: a similar one has to be found",
            _events,
            generated=True,
        ),
        Regime(
            "usual", ("usual",),
            "seasons, and no other structure",
            f"a visible season, with {ENOUGH} cycles or more",
            _usual,
            fits=("window.past=auto", "model.tokens=cycle"),
        ),
    )
}  # fmt: skip
"""The regimes by name; the first that a series resembles is the most specific."""
