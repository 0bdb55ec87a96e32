"""Forecast with an exported model, from a history to a table, without torch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.base.extras import needed
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.export.description import Description, read
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question

Run = Callable[[Mapping[str, np.ndarray], Sequence[str]], Sequence[np.ndarray]]
"""Returns the outputs of a model with the given names, for inputs by name."""


class Exported(Predictor):
    """A `Predictor` whose numbers come from an exported model.

    It holds no network, and cannot drop parts of the model when a history is short.
    """

    def __init__(self, description: Description, run: Run) -> None:
        self.description, self.run = description, run
        self._learn(description)

    @property
    def digest(self) -> str:
        return self.description.bundle

    @property
    def needs(self) -> int:
        return self.description.needs

    @property
    def least(self) -> int:  # in Predictor a cached property
        return self.description.needs

    def _ahead(
        self,
        question: Question,
        scaler: Scaler,
        known: np.ndarray,
        levels: Sequence[float],
    ) -> tuple[np.ndarray, np.ndarray]:
        history = question.values
        shape = (len(history), 1, history.shape[2])
        inputs: dict[str, np.ndarray] = {
            "history": history.astype(np.float64),
            "known": known.astype(np.float32),
            "levels": np.array(levels or self.levels[:1], dtype=np.float64),
            "mean": np.broadcast_to(scaler.mean, shape),
            "std": np.broadcast_to(scaler.std, shape),
            "item": self.numbers(question),
        }
        outputs = ["forecast", "quantiles"] if levels else ["forecast"]
        arrays = self.run({name: inputs[name] for name in self.description.inputs}, outputs)
        if levels:
            return arrays[0], arrays[1]
        return arrays[0], np.empty((*arrays[0].shape, 0))


def load(folder: str | Path, threads: int | None = None) -> Exported:
    """The ONNX model of a folder, ready to forecast on the processor.

    Raises UnavailableError if there is none, or no ONNX Runtime; BundleError if it is damaged.
    """
    description, model = read(Path(folder))
    return Exported(description, session(model, threads))


def session(model: bytes, threads: int | None = None) -> Run:
    """A function that runs an ONNX model. Raises UnavailableError without ONNX Runtime."""
    with needed("running an exported model"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    network: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, np.ndarray], wanted: Sequence[str]) -> Sequence[np.ndarray]:
        outputs: Sequence[np.ndarray] = network.run(list(wanted), dict(inputs))
        return outputs

    return run
