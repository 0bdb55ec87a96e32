"""Honest evaluation: every window, floors beside the model, paired intervals."""

from forecaster.evaluate.backtest import Evaluation, evaluate
from forecaster.evaluate.intervals import (
    SHARES,
    Calibration,
    Coverage,
    in_units,
    percent,
    seen_by,
    sides,
)
from forecaster.evaluate.metrics import (
    Score,
    Verdict,
    blocks,
    interval_text,
    is_borderline,
    naive_mae,
    paired_interval,
    score,
    scores,
)

__all__ = [
    "SHARES", "Calibration", "Coverage", "Evaluation", "Score", "Verdict", "blocks", "evaluate",
    "in_units", "interval_text", "is_borderline", "naive_mae", "paired_interval",
    "percent", "score", "scores", "seen_by", "sides",
]  # fmt: skip
