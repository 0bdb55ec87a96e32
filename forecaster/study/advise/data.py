"""Advice on which attention suits your data, by the regimes they resemble (compare/regimes.py)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forecaster.datasets.facts import Facts
from forecaster.study.compare.regimes import REGIMES, Known, Regime, Resemblance, some

Train = Callable[[str | None, str | None, Sequence[str]], str]
"""Builds the command that trains on the data: attention, configuration, further values."""
Compare = Callable[[str, str | None, Sequence[str]], str]
"""Builds the command that compares on the data: grid, attention if not the grid's, more values."""


@dataclass(frozen=True)
class Finding:
    """A regime, whether the data resemble it, and the commands to run, None for none."""

    regime: Regime
    seen: Resemblance
    train: str | None = None
    compare: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "regime": self.regime.name, "about": self.regime.about,
            "generated": self.regime.generated, "resembles": self.seen.alike,
            "seen": self.seen.text, "take": self.regime.known.found,
            "choice": asdict(self.regime.known), "train": self.train, "compare": self.compare,
        }  # fmt: skip

    def lines(self) -> list[str]:
        lines = [f"resembles {self.regime.name}: {self.seen.text}", f"  {self.regime.about}"]
        if self.regime.generated:
            lines.append("  this shows what types can do, not that a forecast gains from it")
        on = "; ".join(self.regime.known.on)
        lines += [f"  {self.regime.known.found}", f"  on       {on} (docs/comparison.md)"]
        lines += [f"  {sentence}" for sentence in _better_floors(self.regime.known)]
        named = (("train", self.train), ("compare", self.compare))
        return [*lines, *(f"  {name:<8} {command}" for name, command in named if command)]


@dataclass(frozen=True)
class DataAdvice:
    """The facts and findings, the finding that decides, None if nothing is known; and the command
    that compares if the data resemble no regime."""

    facts: Facts
    findings: tuple[Finding, ...]
    decisive: Finding | None
    compare: str | None

    @property
    def answer(self) -> str:
        """The advice in one line."""
        if self.decisive is None:
            return (
                "Nothing is known: this resembles no regime that was studied. Take the cheapest, "
                "none, until you have compared."
            )
        regime = self.decisive.regime
        on = f"On series like '{regime.name}'"
        if regime.name == "usual":
            on = "On ordinary seasonal series"
        said = {
            "content": f"take {regime.known.attn}.",
            "positions": f"take {regime.known.attn}; content is not what helps there.",
            "nothing": "the cheapest. No attention is measurably better than none.",
        }[regime.known.reason]
        if regime.generated:
            said += " That is known only of generated samples: compare before you pay for it."
        return f"{on}: {said}"

    @property
    def _alike(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.seen.alike]

    def to_dict(self) -> dict[str, Any]:
        regime = self.decisive and self.decisive.regime
        return {
            "choice": regime and regime.known.attn,
            "regime": regime and regime.name,
            "answer": self.answer,
            "compare": self.compare,
            "facts": asdict(self.facts),
            "regimes": [finding.to_dict() for finding in self.findings],
        }

    def text(self) -> str:
        lines = [self.answer, "", *told(self.facts)]
        for finding in self._alike:
            lines += ["", *finding.lines()]
        if self.compare is not None:
            lines += ["", f"to compare   {self.compare}"]
        others = [finding for finding in self.findings if not finding.seen.alike]
        if others:
            lines += ["", "does not resemble"]
            lines += [f"  {each.regime.name:<8} {each.seen.text}" for each in others]
        return "\n".join(lines)


def advise(facts: Facts, train: Train, compare: Compare) -> DataAdvice:
    """The findings in the regimes that data with these facts resemble, and the type to take.

    The first regime that favours a type decides; if none does, the first; generated samples count
    only if nothing else is alike.
    """
    findings = tuple(_find(regime, facts, train, compare) for regime in REGIMES.values())
    alike = [finding for finding in findings if finding.seen.alike]
    decisive = min(
        alike,
        key=lambda each: (each.regime.generated, each.regime.known.reason == "nothing"),
        default=None,
    )
    anyhow = None if alike else compare("usual", None, REGIMES["usual"].fits)
    return DataAdvice(facts, findings, decisive, anyhow)


def _find(regime: Regime, facts: Facts, train: Train, compare: Compare) -> Finding:
    """The finding in a regime; on the very data of its grid, the run has the recipe of the grid."""
    seen, known = regime.see(facts), regime.known
    if not seen.alike:
        return Finding(regime, seen)
    own = facts.name in {each.partition(",")[0] for each in known.on}
    rival = known.attn if known.reason == "content" else known.cheapest
    asks = REGIMES["usual"] if regime.generated else regime
    to_train = None
    if not regime.generated:
        to_train = train(known.swapped, known.config if own else None, known.sets)
    return Finding(regime, seen, to_train, compare(asks.name, rival, () if own else asks.fits))


def _better_floors(known: Known) -> list[str]:
    """A sentence on the tables where a floor alone forecast better than the network."""
    lost = [each for each in known.evidence if each.get("floor_mse", math.inf) < each["mse"]]
    if not lost:
        return []
    where = "; ".join(
        f"{each['data']}, T = {each['horizon']}: {each['floor']} has MSE {each['floor_mse']:.4g}, "
        f"the network with {each['attn']} {each['mse']:.4g}"
        for each in lost
    )
    return [
        f"in {len(lost)} of these {len(known.evidence)} a floor, which needs no network, was the "
        f"better forecast: {where}"
    ]


def told(facts: Facts) -> list[str]:
    """The facts, one per line."""
    many = facts.series > 1
    columns = f"{facts.targets} column{'s' * (facts.targets > 1)}"
    if facts.together is not None:
        columns += f", with a mean correlation of {facts.together:.2f} (0 none, 1 complete)"
    shown = " and ".join(map(str, facts.seasons))
    seasons = f"{shown} steps; {facts.cycles:,} cycles of {min(facts.seasons)}" if shown else "none"
    events = [
        f"{each.name}: {each.count} in {each.share:.1%} of the steps" for each in facts.events
    ]
    return [
        f"data         {facts.name}: {facts.steps:,} steps of {facts.freq}; measured on the "
        f"first {facts.rows:,} of {'the longest' if many else 'them'}",
        f"to forecast  {f'{facts.series:,} series' if many else columns}",
        f"seasons      {seasons}",
        f"known ahead  {some(facts.known) or 'nothing is named (--future-covariates)'}",
        f"rare events  {some(events) or 'none are known'}",
    ]
