"""Honest evaluation: every window, floors beside the model, paired intervals."""

from forecaster.evaluate.backtest import Evaluation, evaluate
from forecaster.evaluate.floors import Floor, all_floors
from forecaster.evaluate.intervals import SHARES, Coverage, calibrate, in_units, percent, sides
from forecaster.evaluate.metrics import (
    Score,
    Verdict,
    interval_text,
    is_borderline,
    naive_mae,
    paired_interval,
    score,
)

__all__ = [
    "SHARES", "Coverage", "Evaluation", "Floor", "Score", "Verdict", "all_floors", "calibrate",
    "evaluate", "in_units", "interval_text", "is_borderline", "naive_mae", "paired_interval",
    "percent", "score", "sides",
]  # fmt: skip
