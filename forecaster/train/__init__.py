"""Training, the only package that imports lightning."""

from forecaster.train.lean import few_metrics

with few_metrics():
    from forecaster.train.run import Fit, fit

__all__ = ["Fit", "fit"]
