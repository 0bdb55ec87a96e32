"""The one reader: from files or frames of rows to a series on a grid of time steps."""

from forecaster.datasets.reader.rows import FILE, Own, history, read

__all__ = ["FILE", "Own", "history", "read"]
