"""Advice on which attention suits your data, by the regimes they resemble (compare/regimes.py)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from forecaster.datasets.seasons import Facts
from forecaster.study.compare.regimes import REGIMES, Regime, some

Train = Callable[[str | None, str | None, Sequence[str]], str]
"""Builds the command that trains on the data: attention, configuration, further values."""
Compare = Callable[[str, str | None, Sequence[str]], str]
"""Builds the command that compares on the data: grid, attention if not the grid's, more values."""


def advise(facts: Facts, train: Train, compare: Compare) -> dict[str, Any]:
    """The advice for data with these facts, in plain JSON types.

    `choice` is the type to take, and `regime` the one that decides it; None if nothing is known.
    `answer` is the advice in a sentence, and `compare` the command if the data resemble no regime.
    `regimes` holds what is known in each, with the commands to run; None for none.

    The first regime that favours a type decides; if none does, the first; generated samples count
    only if nothing else is alike.
    """
    regimes = [_find(regime, facts, train, compare) for regime in REGIMES.values()]
    alike = [REGIMES[row["regime"]] for row in regimes if row["resembles"]]
    decisive = min(
        alike, key=lambda row: (row.generated, row.known.reason == "nothing"), default=None
    )
    return {
        "choice": decisive and decisive.known.attn,
        "regime": decisive and decisive.name,
        "answer": _answer(decisive),
        "compare": None if alike else compare("usual", None, REGIMES["usual"].fits),
        "facts": asdict(facts),
        "regimes": regimes,
    }


def text(advice: dict[str, Any], facts: Facts) -> str:
    lines = [advice["answer"], "", *told(facts)]
    for regime in advice["regimes"]:
        if regime["resembles"]:
            lines += ["", *_lines(regime)]
    if advice["compare"] is not None:
        lines += ["", f"to compare   {advice['compare']}"]
    others = [regime for regime in advice["regimes"] if not regime["resembles"]]
    if others:
        lines += ["", "does not resemble"]
        lines += [f"  {regime['regime']:<8} {regime['seen']}" for regime in others]
    return "\n".join(lines)


def _find(regime: Regime, facts: Facts, train: Train, compare: Compare) -> dict[str, Any]:
    """What is known in a regime; on the very data of its grid, the run has the recipe of the
    grid."""
    (alike, seen), known = regime.see(facts), regime.known
    is_data_set = facts.name in {name.partition(",")[0] for name in known.on}
    rival = known.attn if known.reason == "content" else known.cheapest
    asks = REGIMES["usual"] if regime.generated else regime
    to_train = to_compare = None
    if alike:
        to_compare = compare(asks.name, rival, () if is_data_set else asks.fits)
        if not regime.generated:
            to_train = train(known.swapped, known.config if is_data_set else None, known.sets)
    return {
        "regime": regime.name, "about": regime.about, "generated": regime.generated,
        "resembles": alike, "seen": seen, "take": known.found, "choice": asdict(known),
        "train": to_train, "compare": to_compare,
    }  # fmt: skip


def _answer(decisive: Regime | None) -> str:
    if decisive is None:
        return (
            "Nothing is known: this resembles no regime that was studied. Keep prob, the default, "
            "until you have compared."
        )
    on = f"On series like '{decisive.name}'"
    if decisive.name == "usual":
        on = "On ordinary seasonal series"
    sentence = {
        "content": f"take {decisive.known.attn}.",
        "positions": f"take {decisive.known.attn}; content is not what helps there.",
        "nothing": "no attention is measurably better than none; prob is as good as any.",
    }[decisive.known.reason]
    if decisive.generated:
        sentence += " That is known only of generated samples: compare before you pay for it."
    return f"{on}: {sentence}"


def _lines(known: dict[str, Any]) -> list[str]:
    """What is known in a regime, and the commands to run."""
    lines = [f"resembles {known['regime']}: {known['seen']}", f"  {known['about']}"]
    if known["generated"]:
        lines.append("  this shows what types can do, not that a forecast gains from it")
    on = "; ".join(known["choice"]["on"])
    lines += [f"  {known['take']}", f"  on       {on} (docs/comparison.md)"]
    lines += [f"  {sentence}" for sentence in _better_floors(known["choice"]["evidence"])]
    return lines + [f"  {name:<8} {known[name]}" for name in ("train", "compare") if known[name]]


def _better_floors(evidence: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence on the tables where a floor alone forecast better than the network."""
    lost = [cell for cell in evidence if cell.get("floor_mse", math.inf) < cell["mse"]]
    if not lost:
        return []
    where = "; ".join(
        f"{cell['data']}, T = {cell['horizon']}: {cell['floor']} has MSE {cell['floor_mse']:.4g}, "
        f"the network with {cell['attn']} {cell['mse']:.4g}"
        for cell in lost
    )
    return [
        f"in {len(lost)} of these {len(evidence)} a floor, which needs no network, was the "
        f"better forecast: {where}"
    ]


def told(facts: Facts) -> list[str]:
    many = facts.series > 1
    columns = f"{facts.targets} column{'s' * (facts.targets > 1)}"
    if facts.together is not None:
        columns += f", with a mean correlation of {facts.together:.2f} (0 none, 1 complete)"
    shown = " and ".join(map(str, facts.seasons))
    seasons = f"{shown} steps; {facts.cycles:,} cycles of {min(facts.seasons)}" if shown else "none"
    events = [
        f"{event['name']}: {event['count']} in {event['share']:.1%} of the steps"
        for event in facts.events
    ]
    return [
        f"data         {facts.name}: {facts.steps:,} steps of {facts.freq}; measured on the "
        f"first {facts.rows:,} of {'the longest' if many else 'them'}",
        f"to forecast  {f'{facts.series:,} series' if many else columns}",
        f"seasons      {seasons}",
        f"known ahead  {some(facts.known) or 'nothing is named (--future-covariates)'}",
        f"rare events  {some(events) or 'none are known'}",
    ]
