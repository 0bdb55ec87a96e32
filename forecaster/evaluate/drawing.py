"""A Matplotlib figure that a notebook shows, without pyplot and its global state."""

import io

from matplotlib.figure import Figure


class Drawing(Figure):
    """A figure that a notebook shows when it is the last value of a cell."""

    def _repr_png_(self) -> bytes:
        into = io.BytesIO()
        self.savefig(into, format="png", dpi=100)
        return into.getvalue()
