"""Checkpoints of a training: files of safetensors with JSON in their header, and no pickle.

`fit.safetensors` holds the newest state of `fit`, between two epochs or after the last one.
Its last 32 bytes are the SHA-256 of those before them, which reveals a damaged file.
"""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from forecaster.base import atomic
from forecaster.base.errors import StorageError
from forecaster.base.progress import Say

FORMAT = 4  # counted up whenever `State.facts` change; a state of another one is not read
TENSOR = "tensor"
"""The key of what stands for a tensor in the header: its name among the tensors."""


@dataclass(frozen=True)
class State:
    """All that determines how a training continues after `step`.

    `facts` hold what JSON can hold, and tensors, in dicts and lists at any depth.
    """

    step: int
    facts: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Checkpoints:
    """The folder of the checkpoints of one training; `stage` tells apart the trainings of a run."""

    folder: Path
    stage: str = "fit"
    say: Say = lambda sentence: None

    @property
    def file(self) -> Path:
        return self.folder / f"{self.stage}.safetensors"

    def tell(self, where: str) -> None:
        self.say(f"resuming {self.folder.parent.name} at {where}")

    def write(self, state: State) -> None:
        """Write a state in place of the one before. Raises StorageError."""
        atomic.write(self.file, packed(state))

    def read(self) -> State | None:
        """The newest state; None if there is none, or, with a sentence, if it is damaged."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.file} could not be read: {error}") from error
        state = unpacked(data)
        if state is None:
            self.say(f"{self.file} is damaged, or of another version: training starts anew")
        return state


def packed(state: State) -> bytes:
    """A state as bytes: safetensors with the facts in their header."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    facts = _without(state.facts, "facts", tensors)
    data: bytes = save(
        tensors, {"state": json.dumps({"format": FORMAT, "step": state.step, "facts": facts})}
    )
    return data + sha256(data).digest()


def _without(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A value in which the names of tensors stand for them; adds these to `tensors`."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {TENSOR: name}
    if isinstance(value, dict):
        return {key: _without(item, f"{name}/{key}", tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without(item, f"{name}/{place}", tensors) for place, item in enumerate(value)]
    return value


def _with(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value that `_without` took apart, with lists for tuples and words as keys."""
    if isinstance(value, dict):
        if [*value] == [TENSOR]:
            return tensors[value[TENSOR]]
        return {key: _with(item, tensors) for key, item in value.items()}
    return [_with(item, tensors) for item in value] if isinstance(value, list) else value


def unpacked(data: bytes) -> State | None:
    """The state that was `packed`; None if the bytes are not a state."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data, digest = data[:-32], data[-32:]
    if sha256(data).digest() != digest:
        return None
    try:
        length = int.from_bytes(data[:8], "little")
        state = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["state"])
        if state["format"] != FORMAT:
            return None
        return State(state["step"], _with(state["facts"], load(data)))
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError):
        return None
