"""Example windows: the best, the median and the worst, by the error of the model itself."""

import numpy as np


def picked(errors: np.ndarray) -> dict[str, int]:
    """The numbers of these windows by name; `errors` (n,) are of all, nan without observations."""
    order = np.argsort(errors, kind="stable")[: np.count_nonzero(~np.isnan(errors))]
    places = {"best": 0, "median": len(order) // 2, "worst": -1}
    return {name: int(order[place]) for name, place in places.items()}
