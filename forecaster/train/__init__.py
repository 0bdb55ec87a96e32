"""Training, the only package that imports lightning."""

from forecaster.train.checkpoint import Checkpoints
from forecaster.train.memory import bounded, ensure_it_fits
from forecaster.train.run import Fit, Report, fit, takes_bf16

__all__ = ["Checkpoints", "Fit", "Report", "bounded", "ensure_it_fits", "fit", "takes_bf16"]
