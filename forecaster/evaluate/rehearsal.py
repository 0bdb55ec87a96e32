"""Intervals for series too short to keep windows apart for calibration: errors of a rehearsal.

The closed forms of the model forecast the later rows before the test split from what was known
then: the rows are cut into BLOCKS, and before each block every form is fitted anew to the rows
before it and weighed by its errors in the other blocks. So no error that calibrates has chosen the
weights that made it. The network, which cannot be trained anew so often, takes no part: its share
goes to the forms. The errors of all series, each in its own scale, are pooled by step.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch

from forecaster.datasets.card import End
from forecaster.datasets.windows import Windows
from forecaster.evaluate.intervals import Calibration, together
from forecaster.evaluate.joint import with_errors
from forecaster.forecast.intervals import Intervals
from forecaster.parts import Blend, Network, Part
from forecaster.parts.blend import shares
from forecaster.parts.products import products
from forecaster.plan.splits import MOST, Splits

BLOCKS = 4
"""The number of blocks of rows, each forecast by forms that are fitted to the rows before it."""

Block: TypeAlias = tuple[Sequence[Part], Windows]
"""Forms fitted to the rows before a block, and the windows whose targets begin in it."""


def rehearse(splits: Splits, model: Blend, device: str) -> tuple[Intervals, str] | None:
    """Intervals from the errors of a rehearsal, and the beginning of a sentence that says so.

    None for a model without closed forms, where fewer than two blocks hold a window, and where
    their errors support no level.
    """
    forms = [part for part in model.members if not isinstance(part, Network)]
    blocks = _blocks(splits, forms, device) if forms else []
    if len(blocks) < 2:
        return None
    errors = [products(*block) for block in blocks]
    done = []
    for (fitted, windows), held_out in zip(blocks, errors, strict=True):
        others = [other for other in errors if other is not held_out]
        sums = torch.stack([other.relative * other.pairs for other in others]).sum(dim=0)
        apart = sum(other.horizons for _, other in blocks if other is not windows)
        weights = shares(fitted, sums / max(sum(other.pairs for other in others), 1), apart)
        parts = {part.name: part for part in fitted}
        blend = Blend(model.task, parts, weights).to(device).eval()
        levels = tuple(splits.plan.config.intervals.levels)
        done.append(Calibration(blend, windows, levels, blocks=len(blocks)).complete())
    horizon = splits.plan.config.window.horizon
    series = len(np.unique(np.concatenate([other.item for other in done])))
    count = sum(len(other.windows) * other.windows.every for other in done)
    horizons = (count + series * (horizon - 1)) / horizon
    intervals = together(done, horizons, pooled=True)
    if not intervals.levels:
        return None
    few = f", as much as {horizons:.0f} apart" if series == 1 else ""
    return with_errors(intervals, done), (
        f"from a rehearsal on {intervals.windows:,} windows{few}, forecast by the closed forms "
        f"alone, fitted anew before each of {len(done)} blocks of training and validation rows: "
    )


def _blocks(splits: Splits, forms: Sequence[Part], device: str) -> list[Block]:
    """The blocks of the later half of the training windows and of validation that hold a window.

    Targets after validation are missing: they belong to the test split.
    """
    past, _, horizon = splits.plan.config.window.lengths()
    items = splits.plan.series.layout
    (begin, train), (_, end), (_, last) = (
        (np.asarray(first), np.asarray(stop)) for first, stop in splits.plan.borders.parts.values()
    )
    first_rows = items.places if train.ndim else 0
    start = train - np.maximum(train - first_rows - past - horizon, 0) // 2
    edges = [start + (end - start) * number // BLOCKS for number in range(BLOCKS + 1)]
    blocks = list[Block]()
    for first, stop in pairwise(edges):
        targets = _end(first), _end(np.minimum(stop + horizon - 1, last))
        if not items.windows(past, horizon, *targets)[1].any():
            continue
        if not items.windows(past, horizon, _end(begin), _end(first))[1].any():
            continue
        fold = replace(splits.fold(device), train=splits.windows(_end(begin), _end(first), device))
        windows = splits.judging(*targets, device)
        values = windows.values.clone()
        values[torch.from_numpy(~items.before(_end(end)))[: len(values)]] = torch.nan
        windows = replace(windows, values=values).spaced(MOST)
        blocks.append(([part.refit(fold).to(device).eval() for part in forms], windows))
    return blocks


def _end(steps: np.ndarray) -> End:
    return tuple(steps.tolist()) if steps.ndim else int(steps)
