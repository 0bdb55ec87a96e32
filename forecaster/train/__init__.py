"""Training, the only package that imports lightning."""

from forecaster.train.run import Fit, fit

__all__ = ["Fit", "fit"]
