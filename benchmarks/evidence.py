"""What `forecaster advise` knows: the type that the finished grids favour in each regime.

`write` gives the text of forecaster/study/compare/evidence.json. Only rows of SEEDS or more count,
and a verdict without the correction for many verdicts (forecaster/study/compare/table.py) counts
as no measurable difference. The choice, among tables that share a *place* (the tokens of a regime
and the linear path or not):

1. The attention types that are measurably better than `none`, and than `static` if the table has
   it, in more tables than they are worse in. Among several, the one with the largest number of
   better minus worse tables; then the one with the largest number against `full`; then the one that
   trains fastest.
2. If there is none: the same against `none` alone, including the controls `static` and `mean`.
   Then content is not what helps.
3. Otherwise `none`: no attention is measurably better than none, and none is the cheapest.

Among several places, the one whose choice has the lower error counts.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean, median
from typing import Any, NamedTuple

from forecaster.attention import CONTROLS
from forecaster.evaluate.metrics import Verdict
from forecaster.study.compare.grid import LINEAR, read
from forecaster.study.compare.regimes import FILE, REGIMES
from forecaster.study.compare.table import AGAINST

__all__ = ["FILE", "judged", "known", "write"]

SEEDS = 3
"""The number of seeds that a row needs for statements about types instead of single models."""
CONTRAST = ("phase-256-fixed",)
"""Data sets that serve only as contrast to a regime."""
Row = Mapping[str, Any]
"""A row of a grid's comparison, as benchmarks/compare.py keeps it."""
Key = tuple[str, int, str, bool]
"""The data, horizon, regime and linear path of a table."""


class Place(NamedTuple):
    """Where a type is used and over which tokens: a grid's regime, with the linear path or not."""

    grid: str
    regime: str
    linear: bool


@dataclass(frozen=True)
class Table:
    """The rows of a grid that differ in the type alone, by its name."""

    grid: str
    data: str
    horizon: int
    regime: str
    linear: bool
    rows: dict[str, Row]

    @property
    def place(self) -> Place:
        """The place; grids whose names differ after a dot are the same protocol on other data."""
        return Place(self.grid.partition(".")[0], self.regime, self.linear)

    @property
    def types(self) -> list[str]:
        """The attention types, without controls and types that amount to full attention."""
        own = (*CONTROLS, LINEAR)
        return [name for name, row in self.rows.items() if name not in own and not row["is_full"]]

    def verdict(self, attn: str, reference: str) -> Verdict:
        """The verdict of a type against a reference, if it was corrected."""
        said = self.rows.get(attn, {}).get("against", {}).get(reference, {})
        return Verdict(said["verdict"]) if said.get("holm") is not None else Verdict.SAME

    def net(self, attn: str, references: Sequence[str]) -> int:
        """1 if a type is better than all of the references, -1 if it is worse than one, else 0."""
        known = [name for name in references if name in self.rows and name != attn]
        verdicts = [self.verdict(attn, name) for name in known]
        if Verdict.WORSE in verdicts:
            return -1
        return int(bool(verdicts) and all(verdict == Verdict.BETTER for verdict in verdicts))

    def cost(self, attn: str) -> float | None:
        """The training time of a type divided by that of `none`."""
        own, none = (self.rows.get(name, {}).get("train_seconds") for name in (attn, "none"))
        return own / none if own and none else None

    def smallest(self) -> dict[str, float]:
        """By reference, the difference that would have been found with 80 % power, if known."""
        found = {}
        for name in AGAINST:
            said = [row["against"].get(name, {}).get("smallest") for row in self.rows.values()]
            if known := [value for value in said if value is not None]:
                found[name] = median(known)
        return found


@dataclass(frozen=True)
class Choice:
    """The type that tables favour; `reason` is what it is better than: `content` (`none` and
    `static`), `positions` (`none` alone) or `nothing`. Without a place, no type is better at any.
    """

    attn: str
    reason: str
    place: Place | None
    tables: Sequence[Table]

    def cost(self, attn: str) -> float:
        """The mean training time of a type divided by that of `none`; infinite if unknown."""
        known = [cost for table in self.tables if (cost := table.cost(attn))]
        return exp(mean(map(log, known))) if known else float("inf")

    @property
    def cheapest(self) -> str | None:
        """The attention within the budget of parameters that trains fastest."""
        types = dict.fromkeys(name for table in self.tables for name in table.types)
        rows = {name: [t.rows[name] for t in self.tables if name in t.rows] for name in types}
        within = [n for n, own in rows.items() if all(row["within_budget"] for row in own)]
        return min(within, key=self.cost, default=None)


def joined(comparisons: Iterable[Row], name: str) -> dict[Key, dict[str, Row]]:
    """By table, the rows of the grids with this name, or with this name before a dot, by type.

    Of two rows of a type that of more seeds counts, or of the grid that is named first. Grids ran
    on different machines, so training times of later ones are those beside `none` of the grid,
    times that of `none` here.
    """
    found: defaultdict[Key, dict[str, Row]] = defaultdict(dict)
    for document in sorted(comparisons, key=lambda document: document["grid"]):
        if document["grid"].partition(".")[0] != name:
            continue
        none = {_key(row): row for row in document["rows"] if row["attn"] == "none"}
        first = {key: own["none"] for key, own in found.items() if "none" in own}
        for row in document["rows"]:
            key, own = _key(row), found[_key(row)]
            row = {**row, "grid": document["grid"]}
            if key in none and key in first:
                row["train_seconds"] *= first[key]["train_seconds"] / none[key]["train_seconds"]
            if row["attn"] not in own or len(own[row["attn"]]["seeds"]) < len(row["seeds"]):
                own[row["attn"]] = row
    return found


def _key(row: Row) -> Key:
    return row["data"], row["horizon"], row["regime"], row["linear"]


def tables(comparisons: Iterable[Row], name: str) -> list[Table]:
    """The tables of the grids with this name, with the rows that may be judged."""
    found = {
        key: {attn: row for attn, row in own.items() if judged(row)}
        for key, own in joined(comparisons, name).items()
        if key[0] not in CONTRAST
    }
    return [
        Table(min(row["grid"] for row in own.values()), *key, own)
        for key, own in found.items()
        if own
    ]


def choose(tables: Iterable[Table]) -> Choice | None:
    """The choice for the tables of a regime by the rule above; None if there are none."""
    places: defaultdict[Place, list[Table]] = defaultdict(list)
    for table in tables:
        if "none" in table.rows:
            places[table.place].append(table)
    choices = [_at(place, own) for place, own in places.items()]
    if all(choice.reason == "nothing" for choice in choices):
        every = [table for own in places.values() for table in own]
        return Choice("none", "nothing", None, every) if every else None
    cells = [
        {(each.data, each.horizon) for each in choice.tables if choice.attn in each.rows}
        for choice in choices
    ]
    shared = set.intersection(*cells)

    def error(choice: Choice) -> float:
        return mean(
            log(max(each.rows[choice.attn]["mse"], 1e-12) / max(_floor(each)[1], 1e-12))
            for each in choice.tables
            if choice.attn in each.rows and (not shared or (each.data, each.horizon) in shared)
        )

    return min(choices, key=error)


def _at(place: Place, tables: list[Table]) -> Choice:
    types = list(dict.fromkeys(name for table in tables for name in table.types))
    best = _best(types, tables, ("none", "static"))
    if best:
        return Choice(best, "content", place, tables)
    best = _best([*types, *CONTROLS], tables, ("none",))
    return Choice(best or "none", "positions" if best else "nothing", place, tables)


def _best(types: list[str], tables: list[Table], references: Sequence[str]) -> str | None:
    def merit(attn: str) -> tuple[int, int, float]:
        against = [sum(t.net(attn, names) for t in tables) for names in (references, ("full",))]
        return against[0], against[1], -Choice(attn, "", None, tables).cost(attn)

    able = [attn for attn in types if merit(attn)[0] > 0]
    return max(able, key=merit, default=None)


def _floor(table: Table) -> tuple[str, float]:
    row = next(iter(table.rows.values()))
    return row["best_floor"], row["floor_mse"]


def known(comparisons: Sequence[Row], cells: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """What was found in each regime, as `regimes.Finding` reads it.

    The arguments are the documents of benchmarks/compare.py: those of grids, and of cells.
    """
    together = {(cell["grid"], cell["data"]): cell.get("together") for cell in cells}
    found: dict[str, dict[str, Any]] = {}
    for name in REGIMES:
        own = tables(comparisons, name)
        if choice := choose(own):
            alike = [together.get((table.grid, table.data)) for table in own]
            found[name] = {
                **_told(choice),
                "together": min((value for value in alike if value is not None), default=None),
                "on": sorted({f"{table.data}, T = {table.horizon}" for table in own}),
            }
    return found


def write(comparisons: Sequence[Row], cells: Iterable[Row]) -> str:
    """The text of FILE."""
    return json.dumps(_short(known(comparisons, cells)), indent=1) + "\n"


def _told(choice: Choice) -> dict[str, Any]:
    against = ("none", "static") if choice.reason == "content" else ("none",)
    nets = [table.net(choice.attn, against) for table in choice.tables]
    smallest = [own["none"] for table in choice.tables if "none" in (own := table.smallest())]
    cost = choice.cost(choice.attn)
    told = {
        "attn": choice.attn, "reason": choice.reason,
        "place": choice.place and choice.place._asdict(),
        "better": nets.count(1), "worse": nets.count(-1), "of": len(nets),
        "cost": cost if cost < float("inf") else None, "cheapest": choice.cheapest,
        "smallest": median(smallest) if smallest else None,
    }  # fmt: skip
    copied = _recipe(choice)
    everywhere = all("static" in table.rows for table in choice.tables)
    found = sentence(told, copied.pop("text"), everywhere)
    evidence = [_evidence(table, choice) for table in choice.tables]
    return {**told, "found": found, **copied, "evidence": evidence}


def _recipe(choice: Choice) -> dict[str, Any]:
    """What a run must copy from the place of a choice to have its tokens, and the text about it.

    `config` is the recipe there, `sets` are values as `--set` takes them, without those of the
    training and the sizes that only a comparison needs; `swapped` is the type if it is not among
    these. Without a place, the data keep their own recipe.
    """
    attn, place = choice.attn, choice.place
    if place is None:
        return {"config": None, "sets": [], "swapped": attn, "text": ""}
    protocol = read(place.grid)[1]["protocol"]
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
    return {
        "config": protocol["config"], "sets": sets, "swapped": attn if "encoder" in swap else None,
        "text": f"{attn} in the {where} over {of}, {path} the linear path",
    }  # fmt: skip


def sentence(told: Row, recipe: str, everywhere: bool) -> str:
    """A sentence on the choice; `everywhere` says whether all of its tables have `static`."""
    tables = f"{told['of']} table{'s' * (told['of'] > 1)}"
    if told["place"] is None:
        power = f" (80 % power to see {told['smallest']:.4f})" if told["smallest"] else ""
        least = f"; the cheapest attention is {told['cheapest']}" if told["cheapest"] else ""
        return (
            f"in {tables} no attention is measurably better than none{power}: take the cheapest, "
            f"none{least}"
        )
    if told["reason"] == "nothing":
        return f"take {recipe}: in {tables} with these tokens no attention is measurably better"
    than = "none, though no type than static,"
    if told["reason"] == "content":
        than = "none and static" if everywhere else "none, and than static where it can run,"
    cost = f"; {told['cost']:.1f} times the training time of none" if told["cost"] else ""
    return (
        f"take {recipe}: measurably better than {than} in {told['better']} of {tables}, worse in "
        f"{told['worse']}{cost}"
    )


def _evidence(table: Table, choice: Choice) -> dict[str, Any]:
    """A table in short: the chosen type, or the best one if none is better, beside the controls."""
    attn, (floor, floor_mse) = choice.attn, _floor(table)
    if choice.reason == "nothing" or attn not in table.rows:
        attn = min(table.types, key=lambda name: table.rows[name]["mse"], default="none")
    own = table.rows[attn]
    controls = [name for name in (*CONTROLS[::-1], LINEAR) if name in table.rows]
    against = [name for name in ("none", "static") if name in table.rows and name != attn]
    return {
        "grid": table.grid, "data": table.data, "horizon": table.horizon, "regime": table.regime,
        "linear": table.linear, "tokens": own["tokens"], "seeds": len(own["seeds"]), "attn": attn,
        "mse": own["mse"], "controls": {name: table.rows[name]["mse"] for name in controls},
        "floor": floor, "floor_mse": floor_mse,
        "against": {name: table.verdict(attn, name) for name in against},
        "smallest": table.smallest(), "train_seconds": own.get("train_seconds"),
        "inference_ms": own.get("inference_ms"),
    }  # fmt: skip


def judged(row: Row) -> bool:
    """Whether a row has the seeds that a verdict needs."""
    return len(row["seeds"]) >= SEEDS


def _short(value: Any) -> Any:
    """The document with five significant digits of each number that is not whole."""
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
