"""The reader: from files or frames of rows to a series on a time grid."""

from forecaster.datasets.reader.cards import read_card
from forecaster.datasets.reader.rows import FILE, history, read, read_frame

__all__ = ["FILE", "history", "read", "read_card", "read_frame"]
