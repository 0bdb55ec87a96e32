"""Which attention fits a budget of time and memory, by curves measured with `forecaster bench`.

Between measured lengths, both are interpolated linearly in log-log; beyond them, nothing is given.
"""

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from forecaster import resources
from forecaster.attention import CONTROLS
from forecaster.bench.cells import TIE_SHARE, Document, Measurement, dominated_by
from forecaster.bench.cores import YARDSTICK
from forecaster.bench.display import digits, title
from forecaster.errors import DataError, StorageError, UnavailableError, UsageError
from forecaster.machine import processor

PAGE = 4096 / 2**20
"""The smallest memory that can be measured, in MiB."""
UNITS: dict[str, float] = {
    f"{prefix}{suffix}": base**power / 2**20
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
KEYS = {"hardware", "causal", "batch", "heads", "width", "dtype", "device", "rows"}


@dataclass(frozen=True)
class Candidate:
    """A type at the requested length; `over` names the budgets that it exceeds."""

    attn: str
    milliseconds: float
    mib: float | None
    over: list[str]
    dominated_by: list[str]

    @property
    def eligible(self) -> bool:
        return not self.over and not self.dominated_by

    def figures(self) -> str:
        return f"{digits(self.milliseconds)} ms, {digits(self.mib, 'unknown')} MiB"


@dataclass(frozen=True)
class Advice:
    """The choice, None if nothing fits, and the figures behind it.

    `candidates`: the choice, then the other eligible types, then the rest, each by time.
    `between`: the measured lengths that were interpolated, if any. `same_machine` is None if the
    curves do not name their processor, as in older files.
    """

    choice: str | None
    lookback: int
    budget_ms: float | None
    memory_mib: float | None
    between: tuple[int, int] | None
    candidates: list[Candidate]
    not_measured: dict[str, str]
    curves: str
    hardware: str
    conditions: str
    command: str | None
    same_machine: bool | None

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
            what = "may not be" if self.same_machine is None else "is not"
            lines.append(
                f"which {what} this machine: measure here with `forecaster bench attention`"
            )
        if self.between:
            low, high = self.between
            lines.append(f"between the measured lengths {low} and {high}, along log-log lines")
        lines += [f"budget: {self.budget}", "", f"{'':<18}{'ms':>9}{'MiB':>9}"]
        lines += [self._line(candidate) for candidate in self.candidates]
        lines += [f"not measured: {name}: {why}" for name, why in self.not_measured.items()]
        return "\n".join([*lines, "", self.reason()])

    def _line(self, candidate: Candidate) -> str:
        word = "take" if candidate.attn == self.choice else "or" if candidate.eligible else ""
        remarks = [f"over the budget in {' and '.join(candidate.over)}"] if candidate.over else []
        if candidate.dominated_by:
            names, more = candidate.dominated_by[:2], len(candidate.dominated_by) - 2
            rest = f" and {more} more" if more > 0 else ""
            remarks.append(f"dominated by {', '.join(names)}{rest}")
        figures = f"{digits(candidate.milliseconds):>9}{digits(candidate.mib, 'unknown'):>9}"
        return f"{word:<5}{candidate.attn:<13}{figures}  {'; '.join(remarks)}".rstrip()

    def reason(self) -> str:
        if self.choice is None:
            fastest = min(self.candidates, key=lambda candidate: candidate.milliseconds)
            lightest = min(self.candidates, key=lambda candidate: _last_if_none(candidate.mib))
            return (
                f"Nothing fits: the fastest is {fastest.attn} ({fastest.figures()}), the lightest "
                f"{lightest.attn} ({lightest.figures()}). Attention sees tokens, not steps: longer "
                "ones (model.tokens=cycle or patch) are fewer."
            )
        able = [candidate for candidate in self.candidates if candidate.eligible]
        own, others = able[0], able[1:]
        why = "it is the fastest"
        if any(other.milliseconds < own.milliseconds for other in others):
            why = f"none is faster by {TIE_SHARE:.0%}, and it is the lightest of those as fast"
        than = "; ".join(f"{other.attn} {other.figures()}" for other in others[:3])
        rest = f" The next: {than}." if others else " No other is left."
        names = ",".join(candidate.attn for candidate in able[:3])
        return (
            f"{own.attn} ({own.figures()}): of the {len(able)} within the budget that no type "
            f"beats in time and memory both, {why}.{rest}\nSpeed says nothing about accuracy: "
            f"`forecaster compare --attn {names}` measures what a forecast gains from each."
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
    cache that covers the length. Raises UnavailableError if nothing was measured at or around it.
    """
    document, file = _read(curves) if curves else _newest(lookback, device)
    rows, between, missing = _at(document, lookback, file)
    budgets = {"time": ("milliseconds", budget_ms), "memory": ("mib", memory_mib)}
    candidates = [
        Candidate(
            row["attn"],
            row["milliseconds"],
            row.get("mib"),
            [
                name
                for name, (key, most) in budgets.items()
                if most is not None and row.get(key, math.inf) > most
            ],
            dominated_by(row, rows),
        )
        for row in rows
    ]
    candidates.sort(key=lambda candidate: candidate.milliseconds)
    able = [candidate for candidate in candidates if candidate.eligible]
    choice = None
    if able:
        as_fast = [c for c in able if c.milliseconds <= able[0].milliseconds * (1 + TIE_SHARE)]
        choice = min(as_fast, key=lambda c: _last_if_none(c.mib)).attn
    candidates.sort(key=lambda candidate: (candidate.attn != choice, not candidate.eligible))
    return Advice(
        choice=choice,
        lookback=lookback,
        budget_ms=budget_ms,
        memory_mib=memory_mib,
        between=between,
        candidates=candidates,
        not_measured=missing,
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


def _last_if_none(value: float | None) -> float:
    return math.inf if value is None else value


def _same_machine(document: Document) -> bool | None:
    """Whether the curves are of this processor or GPU; None if they do not name theirs."""
    if "processor" not in document:
        return None
    if document["device"] == "cuda" and not torch.cuda.is_available():
        return False
    return bool(document["processor"] == processor(document["device"]))


def _measure(length: int) -> str:
    return f"forecaster bench attention --length 96:{max(length, 97)}"


def _read(file: Path) -> tuple[Document, Path]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != "curves" or KEYS - set(document):
        raise DataError(f"{file} does not hold curves as `forecaster bench attention` writes them")
    return document, file


def _newest(length: int, device: str) -> tuple[Document, Path]:
    folder = resources.cache() / "bench"
    found = [_read(file) for file in folder.glob("*.json")]
    found = [
        (document, file)
        for document, file in found
        if document["device"] == device and not document["causal"] and _same_machine(document)
    ]
    if not found:
        raise UnavailableError(
            f"no curves measured on this machine ({processor(device)}) in {folder}: measure them "
            f"first with `{_measure(length)}`, or name a file with --curves"
        )

    def merit(item: tuple[Document, Path]) -> tuple[bool, float]:
        lengths = _lengths(item[0])
        return lengths[0] <= length <= lengths[-1], item[1].stat().st_mtime

    return max(found, key=merit)


def _lengths(document: Document) -> list[int]:
    return sorted({row["length"] for row in document["rows"]})


def _at(
    document: Document, length: int, file: Path
) -> tuple[list[Measurement], tuple[int, int] | None, dict[str, str]]:
    """Time and memory of each type at a length; the lengths around it; and the missing types."""
    lengths = _lengths(document)
    if not lengths or not lengths[0] <= length <= lengths[-1]:
        covered = f"lengths from {lengths[0]} to {lengths[-1]}" if lengths else "nothing"
        raise UnavailableError(
            f"{file} covers {covered}, not {length}, and curves are not extrapolated: measure it "
            f"with `{_measure(length)}`"
        )
    low = max(each for each in lengths if each <= length)
    high = min(each for each in lengths if each >= length)
    known = {(row["attn"], row["length"]): row for row in document["rows"]}
    rows: list[Measurement] = []
    missing: dict[str, str] = {}
    for attn in dict.fromkeys(row["attn"] for row in document["rows"]):
        if attn in (YARDSTICK, *CONTROLS):
            continue
        ends = [known.get((attn, each), {}) for each in (low, high)]
        reasons = [end.get("skipped", "no figure") for end in ends if "milliseconds" not in end]
        if reasons:
            missing[attn] = reasons[0]
            continue
        row: Measurement = {"attn": attn, "length": length}
        for key in ("milliseconds", "mib"):
            if all(key in end for end in ends):
                row[key] = _between(low, high, length, *(max(end[key], PAGE) for end in ends))
        rows.append(row)
    if not rows:
        raise UnavailableError(f"{file} has no figure of any type at length {length}")
    return rows, None if low == high else (low, high), missing


def _between(low: int, high: int, length: int, first: float, last: float) -> float:
    """The value at `length` on the straight log-log line through both ends."""
    if low == high:
        return first
    part = math.log(length / low) / math.log(high / low)
    return float(first * (last / first) ** part)
