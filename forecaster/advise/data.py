"""Advice on which attention suits your data, by the regimes they resemble (compare/regimes.py)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forecaster.compare.regimes import REGIMES, Regime, Seen, some
from forecaster.datasets.facts import Facts

Train = Callable[[str | None, str | None, Sequence[str]], str]
"""Builds the command that trains on the data: attention, configuration, further values."""
Compare = Callable[[str, str | None, Sequence[str]], str]
"""Builds the command that compares on the data: grid, attention if not the grid's, more values."""


@dataclass(frozen=True)
class Finding:
    """A regime, whether the data resemble it, and what to run.

    `train` and `compare` are commands, None if there is nothing to run.
    """

    regime: Regime
    seen: Seen
    train: str | None = None
    compare: str | None = None

    def to_dict(self) -> dict[str, Any]:
        known = self.regime.known
        return {
            "regime": self.regime.name, "about": self.regime.about,
            "generated": self.regime.generated, "resembles": self.seen.alike,
            "seen": self.seen.text, "take": self.take, "choice": known and asdict(known),
            "train": self.train, "compare": self.compare,
        }  # fmt: skip

    @property
    def take(self) -> str:
        """A sentence on the type that the tables favour."""
        known = self.regime.known
        return "not measured yet" if known is None else known.found

    def lines(self) -> list[str]:
        known = self.regime.known
        lines = [f"resembles {self.regime.name}: {self.seen.text}", f"  {self.regime.about}"]
        if self.regime.generated and known is not None:
            lines.append("  this shows what types can do, not that a forecast gains from it")
        lines.append(f"  {self.take}")
        if known is not None:
            lines.append(f"  on       {'; '.join(known.on)} (docs/comparison.md)")
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
        open_ = [each.regime.name for each in self._alike if each.regime.known is None]
        regime = None if self.decisive is None else self.decisive.regime
        if regime is None or (known := regime.known) is None:
            said = _unmeasured(open_) if open_ else "no regime that was studied"
            return (
                f"Nothing is known: this resembles {said}. Take the cheapest, none, until you have "
                "compared."
            )
        on = f"On series like '{regime.name}'"
        if regime.name == "usual":
            on = "On ordinary seasonal series"
        said = {
            "content": f"take {known.attn}.",
            "positions": f"take {known.attn}; content is not what helps there.",
            "nothing": "the cheapest. No attention is measurably better than none.",
        }[known.reason]
        if regime.generated:
            said += " That is known only of generated samples: compare before you pay for it."
        rest = f" This one also resembles {_unmeasured(open_)}." if open_ else ""
        return f"{on}: {said}{rest}"

    @property
    def _alike(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.seen.alike]

    def to_dict(self) -> dict[str, Any]:
        regime = self.decisive and self.decisive.regime
        return {
            "choice": regime and regime.known and regime.known.attn,
            "regime": regime and regime.name,
            "answer": self.answer,
            "compare": self.compare,
            "facts": self.facts.to_dict(),
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

    The first regime that favours a type decides; if none does, the first that was measured;
    generated samples count only if nothing else was measured.
    """
    findings = tuple(_find(regime, facts, train, compare) for regime in REGIMES.values())
    measured = [
        (finding.regime.generated, known.reason == "nothing", finding)
        for finding in findings
        if finding.seen.alike and (known := finding.regime.known) is not None
    ]
    decisive = min(measured, key=lambda each: each[:2], default=(True, True, None))[2]
    anyhow = None
    if not any(finding.seen.alike for finding in findings):
        anyhow = _to_compare(REGIMES["usual"], None, False, compare)
    return DataAdvice(facts, findings, decisive, anyhow)


def _find(regime: Regime, facts: Facts, train: Train, compare: Compare) -> Finding:
    """The finding in a regime; on the very data of its grid, the run has the recipe of the grid."""
    seen, known = regime.see(facts), regime.known
    if not seen.alike:
        return Finding(regime, seen)
    own, to_train, rival = False, None, None
    if known is not None:
        own = facts.name in {each.partition(",")[0] for each in known.on}
        rival = known.attn if known.reason == "content" else known.cheapest
        if not regime.generated:
            to_train = train(known.swapped, known.config if own else None, known.sets)
    asks = REGIMES["usual"] if regime.generated else regime
    return Finding(regime, seen, to_train, _to_compare(asks, rival, own, compare))


def _to_compare(regime: Regime, attn: str | None, own: bool, compare: Compare) -> str | None:
    """The command that compares as a regime's grid does, adapted if the data are not its `own`."""
    return regime.grid and compare(regime.grid, attn, () if own else regime.fits)


def _unmeasured(names: Sequence[str]) -> str:
    listed = " and ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])
    return f"{listed}, which {'are' if names[1:] else 'is'} not measured yet"


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
    drift = "no clear cycle" if facts.drift is None else f"{facts.drift:.2f} (0 one period, 1 none)"
    return [
        f"data         {facts.name}: {facts.steps:,} steps of {facts.freq}; measured on the "
        f"first {facts.rows:,} of {'the longest' if many else 'them'}",
        f"to forecast  {f'{facts.series:,} series' if many else columns}",
        f"seasons      {seasons}",
        f"known ahead  {some(facts.known) or 'nothing is named (--future-covariates)'}",
        f"rare events  {some(events) or 'none are known'}",
        f"drift        {drift}",
    ]
