"""A measurement in parts, in the order of their worth, for a machine that is at hand for minutes.

What fails, or has no time left, says so, and the rest goes on.
"""

import argparse
import json
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from forecaster.base import machine
from forecaster.base.errors import UnavailableError
from forecaster.study.bench import Setup, about

FAILED = "FAILED"
MOST = 6
"""The failures of a part that the summary names."""
Figures = dict[str, Any]
"""What is measured of one item, by name."""


class Limited(NamedTuple):
    """A figure that must be at most `limit`; nan is not."""

    figure: float
    limit: float


class Part(NamedTuple):
    """`measure` takes one of each of `factors`, in all combinations: its items.

    After `seconds` no further item begins.
    """

    name: str
    seconds: float
    measure: Callable[..., Figures]
    factors: tuple[Iterable[Any], ...] = ()


def command_line(text: str, make: Callable[[float], list[Part]], device: str) -> None:
    """Run the parts that are asked for; `make` makes them for a number of seconds.

    The exit status is the number of parts that failed.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=460)
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of the figures")
    parser.add_argument("--only", help="parts, separated by commas")
    asked = parser.parse_args()
    parts = {part.name: part for part in make(asked.seconds)}
    names = [*parts] if asked.only is None else asked.only.split(",")
    if not {*names} <= {*parts}:
        parser.error(f"--only: expected some of {','.join(parts)}")
    try:
        machine.device(device)
    except UnavailableError as error:
        parser.error(str(error))
    asked.out.mkdir(parents=True, exist_ok=True)
    name = Path(sys.argv[0]).stem
    command = shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]])
    document = {"kind": name, "command": command, **about(Setup(device=device))}
    file = asked.out / f"{name.replace('_', '-')}.json"
    chosen = [part for part in parts.values() if part.name in names]
    sys.exit(run(chosen, asked.seconds, document, file))


def run(parts: Iterable[Part], seconds: float, document: Figures, file: Path) -> int:
    """Measure parts while `seconds` are left; returns how many failed.

    Figures are printed as they come; after each part, `document` is written with those so far.
    """
    end, found = time.monotonic() + seconds, {}
    for part in parts:
        print(f"== {part.name}", flush=True)
        found[part.name] = run_part(part, end - time.monotonic())
        file.write_text(json.dumps({**document, "parts": found}, indent=1) + "\n")
    print("== summary")
    for name, each in found.items():
        print(f"{name:12s}{each['seconds']:6.1f} s  {each['ended']}")
    return sum(each["ended"].startswith(FAILED) for each in found.values())


def run_part(part: Part, seconds: float) -> Figures:
    """The figures of its items, and how it ended."""
    begun, rows, failed, late = time.monotonic(), [], [], 0
    for item in product(*part.factors):
        if time.monotonic() - begun >= min(part.seconds, seconds):
            late += 1
            continue
        title = " ".join(map(str, item)) or part.name
        figures = attempt(part.measure, *item)
        if "raised" in figures or any(map(is_beyond, figures.values())):
            failed.append(title)
        rows.append({"item": title, **figures})
        print(title, *(f"{name}: {shown(each)}" for name, each in figures.items()), sep=", ")
        sys.stdout.flush()
    how = ended(failed, len(rows), late)
    return {"ended": how, "seconds": round(time.monotonic() - begun, 1), "rows": rows}


def ended(failed: list[str], done: int, late: int) -> str:
    if not done:
        return "no time left"
    more = f" and {len(failed) - MOST} others" if len(failed) > MOST else ""
    how = f"{FAILED}: {', '.join(failed[:MOST])}{more}" if failed else "ok"
    return f"{how}; no time left for {late} of {late + done}" if late else how


def attempt(measure: Callable[..., Figures], *item: Any) -> Figures:
    """The figures with four digits; or the error, under "raised"."""
    try:
        return {name: rounded(value) for name, value in measure(*item).items()}
    except Exception as error:  # what follows is measured all the same
        traceback.print_exc(limit=-4, file=sys.stdout)
        return {"raised": traceback.format_exception_only(error)[0].splitlines()[0][:150]}


def is_beyond(value: Any) -> bool:
    return isinstance(value, Limited) and not value.figure <= value.limit


def rounded(value: Any) -> Any:
    if isinstance(value, Limited):
        return Limited(rounded(value.figure), value.limit)
    return float(f"{value:.4g}") if isinstance(value, float) else value


def shown(value: Any) -> str:
    if isinstance(value, Limited):
        return f"{value.figure} (at most {value.limit})"
    return str(value)
