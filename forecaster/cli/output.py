"""The output of commands: results on stdout and in files, everything else on stderr."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.base.atomic import storing
from forecaster.base.errors import UsageError
from forecaster.base.spelling import in_shell

if TYPE_CHECKING:
    import pandas as pd

BLOCKS, WIDEST = "▁▂▃▄▅▆▇█", 36
STEPS, COLUMNS = 7, 3
"""The most steps and columns of `glance`."""
TABLES, PICTURES = (".csv", ".parquet"), (".png", ".svg")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def command() -> str:
    return in_shell(["forecaster", *sys.argv[1:]])


def nothing(text: object) -> None:
    pass


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))


def row(name: str, text: str) -> None:
    print(f"{name:<14}{text}")


def print_pages(name: str, pages: str) -> None:
    """Print the command to type and, on the next line, the address to open; nothing if empty."""
    if pages:
        print(f"{name:<9}" + pages.replace("\n", f"\n{'open':<9}"))


def glance(
    frame: "pd.DataFrame", time: str, levels: Sequence[float], band: Sequence[float]
) -> list[str]:
    """The next steps of a forecast as lines for people: rounded, with the ends of a band in
    brackets, and over them the whole horizon of each column in blocks.

    `frame` is that of `predict` with quantiles at `levels`, among which those of `band` are.
    """
    place = [*frame.columns].index(time)
    every = [*frame.columns[place + 1 :]]
    ends = {f"{name} {level:g}" for name in every for level in levels}
    names = [name for name in every if name not in ends]
    ids = frame.iloc[:, :place]
    first = frame[(ids == ids.iloc[0]).all(axis=1)]
    columns = [["/".join(map(str, ids.iloc[0])) or time, "", *_plain(first[time][:STEPS])]]
    for name in names[:COLUMNS]:
        drawn = [first[name], *(first[f"{name} {end:g}"] for end in band)]
        low, high = drawn[-2:] if band else (first[name].min(), first[name].max())
        digits = _digits(float((high - low).mean()) if band else high - low)
        cells = []
        for value, *around in zip(*(part[:STEPS] for part in drawn), strict=True):
            between = " to ".join(f"{end:,.{digits}f}" for end in around)
            cells.append(f"{value:,.{digits}f}" + (f" ({between})" if around else ""))
        columns.append([name, blocks(first[name].to_numpy()), *cells])
    wide = [max(map(len, column)) for column in columns]
    lines = ["  ".join(map(str.ljust, row, wide)).rstrip() for row in zip(*columns, strict=True)]
    others = {"step": len(first) - STEPS, "column": len(names) - COLUMNS}
    others["series"] = len(frame) // len(first) - 1
    more = [
        f"{n:,} more {what}{'s' * (n > 1 and what[-1] != 's')}"
        for what, n in others.items()
        if n > 0
    ]
    if band:
        lines.append(f"in brackets the {100 * (band[1] - band[0]):.3g} % band")
    if more:
        lines.append(f"{', '.join(more)}: --output FILE.csv")
    return lines


def blocks(values: Any) -> str:
    """Values as a line of blocks, means of some where there are many."""
    import numpy as np

    means = np.array([part.mean() for part in np.array_split(values, min(len(values), WIDEST))])
    low, high = means.min(), means.max()
    return "".join(BLOCKS[round(7 * (mean - low) / (high - low or 1))] for mean in means)


def _plain(times: "pd.Series[Any]") -> list[str]:
    """Times in words, without those of the day where all are midnight."""
    whole = times.dt.normalize().eq(times).all()
    return [str(time.date() if whole else time) for time in times]


def _digits(spread: float) -> int:
    """The digits after the point that show two of a spread."""
    return min(max(0, 1 - math.floor(math.log10(spread))), 9) if spread > 0 else 2


def check_ending(option: str, file: Path | None, *endings: str) -> None:
    """Raise UsageError for a file in another format than those that can be written."""
    if file and file.suffix not in endings:
        known = " or ".join(f"FILE{ending}" for ending in endings)
        raise UsageError(f"--{option}: expected {known}, got {file}")


def write(frame: Any, output: Path) -> None:
    with storing(f"{output} could not be written"):
        if output.suffix == ".parquet":
            frame.to_parquet(output, index=False)
        else:
            frame.to_csv(output, index=False)


def draw(figure: Any, file: Path) -> None:
    check_ending("picture", file, *PICTURES)
    with storing(f"{file} could not be written"):
        figure.savefig(file)
