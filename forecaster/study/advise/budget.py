"""Which attention fits a budget of time and memory, by curves measured with `forecaster bench`.

The figures are those of the next measured length; beyond the last one, nothing is given.
"""

import json
import re
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch

from forecaster.attention import CONTROLS
from forecaster.base import installation
from forecaster.base.errors import DataError, StorageError, UnavailableError, UsageError
from forecaster.base.machine import processor
from forecaster.study.bench.cells import TIE_SHARE, Document, dominated_by
from forecaster.study.bench.cores import YARDSTICK
from forecaster.study.bench.display import digits, title

UNITS: dict[str, float] = {
    f"{prefix}{suffix}": base**power / 2**20
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
KEYS = {"hardware", "causal", "batch", "heads", "width", "dtype", "device", "rows"}


@dataclass(frozen=True)
class Candidate:
    """A type at the measured length; `over` names the budgets that it exceeds."""

    attn: str
    milliseconds: float
    mib: float | None
    over: list[str]
    dominated_by: list[str]

    @property
    def eligible(self) -> bool:
        return not self.over and not self.dominated_by

    @property
    def weight(self) -> float:
        """The memory, for comparisons; unknown is the most."""
        return inf if self.mib is None else self.mib

    def figures(self) -> str:
        return f"{digits(self.milliseconds)} ms, {digits(self.mib, 'unknown')} MiB"


@dataclass(frozen=True)
class Advice:
    """The choice, None if nothing fits, and the figures behind it, measured at `length`.

    `candidates`: the choice, then the other eligible types, then the rest, each by time.
    """

    choice: str | None
    lookback: int
    length: int
    budget_ms: float | None
    memory_mib: float | None
    candidates: list[Candidate]
    not_measured: dict[str, str]
    curves: str
    hardware: str
    conditions: str
    command: str | None
    same_machine: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def budget(self) -> str:
        budgets = ((self.budget_ms, "ms"), (self.memory_mib, "MiB"))
        parts = [f"{value:g} {unit}" for value, unit in budgets if value is not None]
        return " and ".join(parts) or "none given"

    def text(self) -> str:
        lines = [
            f"attention over {self.lookback} tokens: {self.conditions}",
            f"measured on {self.hardware}: {self.curves}",
        ]
        if not self.same_machine:
            lines.append(
                "which is not this machine: measure here with `forecaster bench attention`"
            )
        if self.length != self.lookback:
            lines.append(f"at {self.length} tokens, the next length that was measured")
        lines += [f"budget: {self.budget}", "", f"{'':<18}{'ms':>9}{'MiB':>9}"]
        for each in self.candidates:
            word = "take" if each.attn == self.choice else "or" if each.eligible else ""
            remarks = [f"over the budget in {' and '.join(each.over)}"] * bool(each.over)
            if each.dominated_by:
                remarks.append(f"dominated by {', '.join(each.dominated_by)}")
            figures = f"{digits(each.milliseconds):>9}{digits(each.mib, 'unknown'):>9}"
            lines.append(f"{word:<5}{each.attn:<13}{figures}  {'; '.join(remarks)}".rstrip())
        lines += [f"not measured: {name}: {why}" for name, why in self.not_measured.items()]
        return "\n".join([*lines, "", self.reason()])

    def reason(self) -> str:
        able = [candidate for candidate in self.candidates if candidate.eligible]
        if not able:
            fastest = min(self.candidates, key=lambda each: each.milliseconds)
            lightest = min(self.candidates, key=lambda each: each.weight)
            return (
                f"Nothing fits: the fastest is {fastest.attn} ({fastest.figures()}), the lightest "
                f"{lightest.attn} ({lightest.figures()}). Attention sees tokens, not steps: longer "
                "ones (model.tokens=cycle or patch) are fewer."
            )
        names = ",".join(candidate.attn for candidate in able[:3])
        return (
            f"{able[0].attn} ({able[0].figures()}): the lightest of those within {TIE_SHARE:.0%} "
            f"of the fastest, of the {len(able)} within the budget that no type beats in time and "
            f"memory both.\nSpeed says nothing about accuracy: `forecaster compare --attn {names}` "
            "measures what a forecast gains from each."
        )


def advise(
    lookback: int,
    budget_ms: float | None = None,
    memory_mib: float | None = None,
    *,
    curves: Path | None = None,
    device: str = "cpu",
) -> Advice:
    """The fastest attention within the budget that is not dominated; among equals, the lightest.

    `lookback` is in tokens; the budget is for one layer, forward and backward. `curves`: a file of
    `forecaster bench attention`, by default the newest of this machine and `device` in the user's
    cache that covers the length. Raises UnavailableError if nothing was measured at or beyond it.
    """
    file = curves or _newest(lookback, device)
    document = _read(file)
    if not _covers(document, lookback):
        lengths = sorted({row["length"] for row in document["rows"]})
        covered = f"lengths from {lengths[0]} to {lengths[-1]}" if lengths else "nothing"
        raise UnavailableError(
            f"{file} covers {covered}, not {lookback}, and curves are not extrapolated: measure it "
            f"with `{_measure(lookback)}`"
        )
    length = min(row["length"] for row in document["rows"] if row["length"] >= lookback)
    rows = [row for row in document["rows"] if row["length"] == length]
    types = [row for row in rows if row["attn"] not in (YARDSTICK, *CONTROLS)]
    limits = (("time", "milliseconds", budget_ms), ("memory", "mib", memory_mib))
    candidates = [
        Candidate(
            row["attn"],
            row["milliseconds"],
            row.get("mib"),
            [word for word, key, most in limits if most is not None and row.get(key, inf) > most],
            dominated_by(row, rows),
        )
        for row in types
        if "milliseconds" in row
    ]
    if not candidates:
        raise UnavailableError(f"{file} has no figure of any type at length {length}")
    candidates.sort(key=lambda candidate: candidate.milliseconds)
    able = [candidate for candidate in candidates if candidate.eligible]
    as_fast = [c for c in able if c.milliseconds <= able[0].milliseconds * (1 + TIE_SHARE)]
    choice = min(as_fast, key=lambda c: c.weight).attn if able else None
    return Advice(
        choice=choice,
        lookback=lookback,
        length=length,
        budget_ms=budget_ms,
        memory_mib=memory_mib,
        candidates=sorted(candidates, key=lambda c: (c.attn != choice, not c.eligible)),
        not_measured={row["attn"]: row["skipped"] for row in types if "skipped" in row},
        curves=str(file),
        hardware=document["hardware"],
        conditions=title(document),
        command=document.get("command"),
        same_machine=_same_machine(document),
    )


def read_memory(text: str) -> float:
    """ "2GiB" -> 2048.0, in MiB. Raises UsageError unless it is a size with its unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]i?B)", text)
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--memory: expected a size with its unit, as 2GiB or 512MiB, got {text}")
    return float(match[1]) * UNITS[match[2]]


def _covers(document: Document, length: int) -> bool:
    lengths = [row["length"] for row in document["rows"]]
    return bool(lengths) and min(lengths) <= length <= max(lengths)


def _same_machine(document: Document) -> bool:
    """Whether the curves are of this processor or GPU; older files do not name theirs."""
    if document["device"] == "cuda" and not torch.cuda.is_available():
        return False
    return bool(document.get("processor") == processor(document["device"]))


def _measure(length: int) -> str:
    return f"forecaster bench attention --length 96:{max(length, 97)}"


def _read(file: Path) -> Document:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != "curves" or KEYS - set(document):
        raise DataError(f"{file} does not hold curves as `forecaster bench attention` writes them")
    return document


def _newest(length: int, device: str) -> Path:
    """The newest curves of this machine, of those that cover the length if there are any."""
    folder = installation.cache() / "bench"
    found = [
        (_covers(document, length), file.stat().st_mtime, file)
        for file in folder.glob("*.json")
        if (document := _read(file))["device"] == device
        and not document["causal"]
        and _same_machine(document)
    ]
    if not found:
        raise UnavailableError(
            f"no curves measured on this machine ({processor(device)}) in {folder}: measure them "
            f"first with `{_measure(length)}`, or name a file with --curves"
        )
    return max(found)[-1]
