"""Honest evaluation: every window, floors beside the model, paired intervals."""

from forecaster.evaluate.backtest import Evaluation, evaluate
from forecaster.evaluate.floors import Floor, all_floors
from forecaster.evaluate.metrics import Score, naive_mae, paired_interval, score

__all__ = [
    "Evaluation", "Floor", "Score", "all_floors", "evaluate", "naive_mae", "paired_interval",
    "score",
]  # fmt: skip
