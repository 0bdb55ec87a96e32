"""Advice on which attention suits your data, by the regimes they resemble (compare/regimes.py)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forecaster.attention import CONTROLS
from forecaster.compare.evidence import LINEAR, Choice, Table, choose
from forecaster.compare.regimes import REGIMES, Regime, Seen, recipe, some
from forecaster.datasets.facts import Facts

Train = Callable[[str | None, str | None, Sequence[str]], str]
"""Builds the command that trains on the data: attention, configuration, further values."""
Compare = Callable[[str, str | None, Sequence[str]], str]
"""Builds the command that compares on the data: grid, attention if not the grid's, more values."""
HEAD = ("data", "T", "grid: tokens", "type", "MSE", "none", "static", "linear", "best floor",
        "− none", "− static", "train s", "ms")  # fmt: skip
NAMES = ("data", "grid: tokens", "type", "best type")
"""The heads of left-aligned columns."""


@dataclass(frozen=True)
class Finding:
    """A regime: whether the data resemble it, the measured choice, and what to run.

    `choice` is None if nothing was measured; `train` and `compare` are commands, None if there is
    nothing to run.
    """

    regime: Regime
    seen: Seen
    choice: Choice | None
    train: str | None
    compare: str | None

    def to_dict(self) -> dict[str, Any]:
        choice = None
        if self.choice is not None:
            kept = ("attn", "reason", "better", "worse", "of", "cost", "cheapest", "smallest")
            choice = {name: getattr(self.choice, name) for name in kept}
            choice["place"] = self.choice.place and self.choice.place._asdict()
            choice["evidence"] = evidence(self.choice)
        return {
            "regime": self.regime.name, "about": self.regime.about,
            "generated": self.regime.generated, "resembles": self.seen.alike,
            "seen": self.seen.text, "take": self.take, "choice": choice,
            "train": self.train, "compare": self.compare,
        }  # fmt: skip

    @property
    def take(self) -> str:
        """A sentence on the type that the tables favour."""
        return "not measured yet" if self.choice is None else sentence(self.choice)

    def lines(self) -> list[str]:
        lines = [f"resembles {self.regime.name}: {self.seen.text}", f"  {self.regime.about}"]
        if self.regime.generated and self.choice is not None:
            lines.append("  this shows what types can do, not that a forecast gains from it")
        lines.append(f"  {self.take}")
        if self.choice is not None:
            lines += _table(self.choice)
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
        open_ = [each.regime.name for each in self._alike if each.choice is None]
        if self.decisive is None or self.decisive.choice is None:
            said = _unmeasured(open_) if open_ else "no regime that was studied"
            return (
                f"Nothing is known: this resembles {said}. Take the cheapest, none, until you have "
                "compared."
            )
        name, choice = self.decisive.regime.name, self.decisive.choice
        on = "On ordinary seasonal series" if name == "usual" else f"On series like '{name}'"
        said = {
            "content": f"take {choice.attn}.",
            "positions": f"take {choice.attn}; content is not what helps there.",
            "nothing": "the cheapest. No attention is measurably better than none.",
        }[choice.reason]
        if self.decisive.regime.generated:
            said += " That is known only of generated samples: compare before you pay for it."
        rest = f" This one also resembles {_unmeasured(open_)}." if open_ else ""
        return f"{on}: {said}{rest}"

    @property
    def _alike(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.seen.alike]

    def to_dict(self) -> dict[str, Any]:
        decisive = self.decisive
        return {
            "choice": decisive and decisive.choice and decisive.choice.attn,
            "regime": decisive and decisive.regime.name,
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
        (finding.regime.generated, finding.choice.reason == "nothing", finding)
        for finding in findings
        if finding.seen.alike and finding.choice is not None
    ]
    decisive = min(measured, key=lambda each: each[:2], default=(True, True, None))[2]
    anyhow = None
    if not any(finding.seen.alike for finding in findings):
        anyhow = _to_compare(REGIMES["usual"], None, False, compare)
    return DataAdvice(facts, findings, decisive, anyhow)


def _find(regime: Regime, facts: Facts, train: Train, compare: Compare) -> Finding:
    seen, tables = regime.see(facts), regime.tables()
    choice = choose(tables)
    if not seen.alike:
        return Finding(regime, seen, choice, None, None)
    own, to_train, rival = facts.name in {table.data for table in tables}, None, None
    if choice is not None:
        rival = choice.attn if choice.reason == "content" else choice.cheapest
        if not regime.generated:
            to_train = _to_train(choice, own, train)
    asks = REGIMES["usual"] if regime.generated else regime
    return Finding(regime, seen, choice, to_train, _to_compare(asks, rival, own, compare))


def _to_compare(regime: Regime, attn: str | None, own: bool, compare: Compare) -> str | None:
    """The command that compares as a regime's grid does, adapted if the data are not its `own`."""
    return regime.grid and compare(regime.grid, attn, () if own else regime.fits)


def _to_train(choice: Choice, own: bool, train: Train) -> str:
    """The command that trains. If no type is better, it has the tokens of the data's own recipe;
    if the grid contains this data set, it has the grid's recipe."""
    if choice.place is None:
        return train(choice.attn, None, ())
    copied = recipe(choice.place, choice.attn)
    return train(copied.attn, copied.config if own else None, copied.sets)


def _unmeasured(names: Sequence[str]) -> str:
    listed = " and ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])
    return f"{listed}, which {'are' if names[1:] else 'is'} not measured yet"


def sentence(choice: Choice) -> str:
    """A sentence on the type that the tables favour, with the number of tables."""
    tables = f"{choice.of} table{'s' * (choice.of > 1)}"
    if choice.place is None:
        seen = f" (80 % power to see {choice.smallest:.4f})" if choice.smallest else ""
        least = f"; the cheapest attention is {choice.cheapest}" if choice.cheapest else ""
        return (
            f"in {tables} no attention is measurably better than none{seen}: take the cheapest, "
            f"none{least}"
        )
    take = f"take {recipe(choice.place, choice.attn).text}"
    if choice.reason == "nothing":
        return f"{take}: in {tables} with these tokens no attention is measurably better"
    than = "none, though no type than static,"
    if choice.reason == "content":
        everywhere = all("static" in table.rows for table in choice.tables)
        than = "none and static" if everywhere else "none, and than static where it can run,"
    cost = f"; {choice.cost:.1f} times the training time of none" if choice.cost else ""
    return (
        f"{take}: measurably better than {than} in {choice.better} of {tables}, worse in "
        f"{choice.worse}{cost}"
    )


def evidence(choice: Choice) -> list[dict[str, Any]]:
    """The tables of a choice as plain JSON types: the chosen type, or the best one if no type is
    better than `none`, beside the controls."""
    return [_evidence(table, choice) for table in choice.tables]


def _evidence(table: Table, choice: Choice) -> dict[str, Any]:
    attn = choice.attn
    if choice.reason == "nothing" or attn not in table.rows:
        attn = min(table.types, key=lambda name: table.rows[name]["mse"], default="none")
    own = table.rows[attn]
    said = {
        name: own["verdicts"].get(name, "no measurable difference")
        for name in ("none", "static")
        if name in table.rows and name != attn
    }
    controls = {
        name: table.rows[name]["mse"] for name in (*CONTROLS[::-1], LINEAR) if name in table.rows
    }
    return {
        "grid": table.grid, "data": table.data, "horizon": table.horizon, "regime": table.regime,
        "linear": table.linear, "tokens": table.tokens, "seeds": table.seeds, "attn": attn,
        "mse": own["mse"], "controls": controls, "floor": table.floor,
        "floor_mse": table.floor_mse, "against": said, "smallest": table.smallest,
        "train_seconds": own["train_seconds"], "inference_ms": own["inference_ms"],
    }  # fmt: skip


def _table(choice: Choice) -> list[str]:
    """The evidence in columns."""
    best = choice.reason == "nothing"
    cells = [["best type" if best and head == "type" else head for head in HEAD]]
    for row in evidence(choice):
        path = "" if row["linear"] else ", plain"
        controls = [_figure(row["controls"].get(name), 4) for name in ("none", "static", LINEAR)]
        said = [row["against"].get(name, "–") for name in ("none", "static")]
        cells.append([
            row["data"], str(row["horizon"]), f"{row['grid']}: {row['regime']}{path}", row["attn"],
            _figure(row["mse"], 4), *controls, _figure(row["floor_mse"], 4),
            *(word.replace("no measurable difference", "=") for word in said),
            _figure(row["train_seconds"], 1), _figure(row["inference_ms"], 1),
        ])  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "    " + "  ".join(
            f"{cell:<{width}}" if head in NAMES else f"{cell:>{width}}"
            for head, cell, width in zip(cells[0], line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]  # fmt: skip


def _figure(value: float | None, places: int) -> str:
    return "–" if value is None else f"{value:.{places}f}"


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
