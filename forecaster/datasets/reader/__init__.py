"""The reader: from files or frames of rows to a series on a time grid.

`files` opens a table, `roles` finds what its columns are, `clock` reads its stamps and `cells` its
values; `places` puts the rows on a `grid`, `irregular` judges them. Begin reading with `rows`.
"""

from forecaster.datasets.reader.cards import read_card
from forecaster.datasets.reader.roles import FILE
from forecaster.datasets.reader.rows import history, read, read_frame

__all__ = ["FILE", "history", "read", "read_card", "read_frame"]
