"""The findings of the finished grids, which come with the package, and the type that they favour.

`benchmarks/render.py` writes FILE from `benchmarks/results/`. A verdict without the correction for
many verdicts (table.py) counts as no measurable difference.

The choice, among tables that share a *place* (the tokens of a regime and the linear path or not):

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
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any, Literal, NamedTuple

from forecaster.attention import CONTROLS
from forecaster.compare.table import AGAINST
from forecaster.evaluate import Verdict

FILE = Path(__file__).with_name("evidence.json")
LINEAR = "linear"
"""The row of the linear path alone."""
SEEDS = 3
"""The number of seeds that a table needs for statements about types instead of single models."""
GROUP = ("data", "horizon", "regime", "linear")
"""What the rows of a table share (`table.group_of`)."""
FIGURES = ("mse", "train_seconds", "inference_ms", "peak_mib")
Reason = Literal["content", "positions", "nothing"]
"""What a choice is better than: `none` and `static`; `none` alone; nothing."""


class Place(NamedTuple):
    """Where a type is used and over which tokens: a grid's regime, with the linear path or not."""

    grid: str
    regime: str
    linear: bool


@dataclass(frozen=True)
class Table:
    """A group of a grid: the measurements of each type, with everything else the same.

    `rows` has, by type, FIGURES, `full` (it amounts to full attention), `budget` (its parameters
    are within the budget) and the `verdicts` by reference that are better or worse. `smallest` has,
    by reference, the difference that would have been found with 80 % power, if known; `together` is
    how strongly the columns are correlated.
    """

    grid: str
    data: str
    horizon: int
    regime: str
    linear: bool
    tokens: int
    seeds: int
    floor: str
    floor_mse: float
    together: float | None
    smallest: dict[str, float]
    rows: dict[str, dict[str, Any]]

    @property
    def place(self) -> Place:
        """The place; grids whose names differ after a dot are the same protocol on other data."""
        return Place(self.grid.partition(".")[0], self.regime, self.linear)

    @property
    def types(self) -> list[str]:
        """The attention types, without controls and types that amount to full attention."""
        own = (*CONTROLS, LINEAR)
        return [name for name, row in self.rows.items() if name not in own and not row["full"]]

    def net(self, attn: str, references: Sequence[str]) -> int:
        """1 if a type is better than all of the references, -1 if it is worse than one, else 0."""
        said = self.rows.get(attn, {}).get("verdicts", {})
        verdicts = [said.get(name) for name in references if name in self.rows and name != attn]
        if Verdict.WORSE in verdicts:
            return -1
        return int(bool(verdicts) and all(verdict == Verdict.BETTER for verdict in verdicts))

    def cost(self, attn: str) -> float | None:
        """The training time of a type divided by that of `none`."""
        own, none = (self.rows.get(name, {}).get("train_seconds") for name in (attn, "none"))
        return own / none if own and none else None


@dataclass(frozen=True)
class Choice:
    """The type that tables favour, and in how many `of` them it is `better` and `worse`.

    `place` is None if no type is better at any place. `cost` is its training time divided by that
    of `none`; `cheapest` the attention that trains fastest; `smallest` the median of the
    differences from `none` that the tables would have found.
    """

    attn: str
    reason: Reason
    place: Place | None
    better: int
    worse: int
    of: int
    cost: float | None
    cheapest: str | None
    smallest: float | None
    tables: tuple[Table, ...]


def choose(tables: Iterable[Table]) -> Choice | None:
    """The choice for the tables of a regime by the rule above; None if there are none."""
    places: defaultdict[Place, list[Table]] = defaultdict(list)
    for table in tables:
        if "none" in table.rows:
            places[table.place].append(table)
    choices = [_at(place, own) for place, own in places.items()]
    if all(choice.reason == "nothing" for choice in choices):
        every = [table for own in places.values() for table in own]
        return _choice("none", "nothing", None, every) if every else None
    cells = [{(each.data, each.horizon) for each in choice.tables} for choice in choices]
    shared = set.intersection(*cells)

    def error(choice: Choice) -> float:
        return mean(
            log(max(each.rows[choice.attn]["mse"], 1e-12) / max(each.floor_mse, 1e-12))
            for each in choice.tables
            if choice.attn in each.rows and (not shared or (each.data, each.horizon) in shared)
        )

    return min(choices, key=error)


def _at(place: Place, tables: list[Table]) -> Choice:
    types = list(dict.fromkeys(name for table in tables for name in table.types))
    best = _best(types, tables, ("none", "static"))
    if best:
        return _choice(best, "content", place, tables)
    best = _best([*types, *CONTROLS], tables, ("none",))
    return _choice(best or "none", "positions" if best else "nothing", place, tables)


def _best(types: list[str], tables: list[Table], references: Sequence[str]) -> str | None:
    def merit(attn: str) -> tuple[int, int, float]:
        against = [sum(t.net(attn, names) for t in tables) for names in (references, ("full",))]
        return against[0], against[1], -_mean_cost(attn, tables)

    able = [attn for attn in types if merit(attn)[0] > 0]
    return max(able, key=merit, default=None)


def _mean_cost(attn: str, tables: Sequence[Table]) -> float:
    """The geometric mean over tables; infinite if unknown."""
    known = [cost for table in tables if (cost := table.cost(attn))]
    return exp(mean(map(log, known))) if known else float("inf")


def _choice(attn: str, reason: Reason, place: Place | None, tables: list[Table]) -> Choice:
    against = ("none", "static") if reason == "content" else ("none",)
    nets = [table.net(attn, against) for table in tables]
    within = [
        name
        for name in dict.fromkeys(name for table in tables for name in table.types)
        if all(table.rows[name]["budget"] for table in tables if name in table.rows)
    ]
    cheapest = min(within, key=lambda name: _mean_cost(name, tables), default=None)
    cost = _mean_cost(attn, tables)
    smallest = [table.smallest["none"] for table in tables if "none" in table.smallest]
    return Choice(
        attn, reason, place, nets.count(1), nets.count(-1), len(tables),
        cost if cost < float("inf") else None, cheapest, median(smallest) if smallest else None,
        tuple(tables),
    )  # fmt: skip


@cache
def known() -> tuple[Table, ...]:
    """The tables that come with the package."""
    return read(FILE.read_text(encoding="utf-8"))


def read(text: str) -> tuple[Table, ...]:
    return tuple(Table(**table) for table in json.loads(text)["tables"])


def write(comparisons: Iterable[Mapping[str, Any]], cells: Iterable[Mapping[str, Any]]) -> str:
    """The text of FILE from documents of benchmarks/compare.py: those of grids, and of cells.

    Rows of fewer than SEEDS are left out.
    """
    together = {(cell["grid"], cell["data"]): cell.get("together") for cell in cells}
    tables: dict[tuple[Any, ...], dict[str, Any]] = {}
    for document in comparisons:
        for row in filter(judged, document["rows"]):
            grid = document["grid"]
            key = (grid, *(row[name] for name in GROUP))
            table = tables.setdefault(key, {
                "grid": grid, **{name: row[name] for name in GROUP}, "tokens": row["tokens"],
                "seeds": len(row["seeds"]), "floor": row["best_floor"],
                "floor_mse": _short(row["floor_mse"]), "together": _short(together.get(key[:2])),
                "smallest": defaultdict(list), "rows": {},
            })  # fmt: skip
            for name in AGAINST:
                smallest = row["against"].get(name, {}).get("smallest")
                if smallest is not None:
                    table["smallest"][name].append(smallest)
            table["rows"][row["attn"]] = {
                **{name: _short(row.get(name)) for name in FIGURES},
                "full": row["is_full"], "budget": row["within_budget"],
                "verdicts": {
                    name: said["verdict"]
                    for name, said in row["against"].items()
                    if said.get("holm") is not None and said["verdict"] != Verdict.SAME
                },
            }  # fmt: skip
    lines = []
    for table in tables.values():
        table["smallest"] = {k: _short(median(v)) for k, v in table["smallest"].items()}
        rows = [f"  {json.dumps(k)}: {json.dumps(row)}" for k, row in table.pop("rows").items()]
        head = json.dumps(table).removesuffix("}")
        lines.append("\n".join([f' {head}, "rows": {{', ",\n".join(rows), " }}"]))
    return "\n".join(['{"tables": [', ",\n".join(lines), "]}", ""])


def judged(row: Mapping[str, Any]) -> bool:
    """Whether a row has the seeds that a verdict needs."""
    return len(row["seeds"]) >= SEEDS


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
