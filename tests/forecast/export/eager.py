"""A writer that writes no readable file: the graph runs in Python."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from forecaster.forecast.export.description import Description
from forecaster.forecast.export.runtime import Run
from forecaster.forecast.served import ServedModel


def write(served: ServedModel, description: Description) -> tuple[bytes, Run]:
    def run(inputs: Mapping[str, np.ndarray], wanted: Sequence[str]) -> list[np.ndarray]:
        with torch.no_grad():
            found = served(**{name: torch.tensor(array) for name, array in inputs.items()})
        return [output.numpy() for output in found[: len(wanted)]]

    return b"a model", run
