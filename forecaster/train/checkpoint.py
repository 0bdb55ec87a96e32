"""Checkpoints of a training: files of safetensors with JSON in their header, and no pickle.

    fit-000000120-0f3a91c2d45b6e78.safetensors

holds the state of `fit` before its optimiser step 121 (or after its last one). The name ends with
the first 16 digits of the file's SHA-256, which reveal a damaged file. The newest two are kept.
"""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from forecaster import files
from forecaster.errors import StorageError
from forecaster.progress import Say

FORMAT = 2
KEPT = 2
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
    """The folder of the checkpoints of one training; `stage` tells apart the trainings of a run.

    Checkpoints are at most `minutes` apart. `resumed` is called with the place at which a training
    begins or continues.
    """

    folder: Path
    stage: str = "fit"
    minutes: float = 1.0
    say: Say = lambda sentence: None
    resumed: Callable[[str], None] = lambda where: None

    def write(self, state: State) -> None:
        """Write a state, and keep only the last of the older ones. Raises StorageError."""
        data = packed(state)
        digest = hashlib.sha256(data).hexdigest()[:16]
        files.write(self.folder / f"{self.stage}-{state.step:09}-{digest}.safetensors", data)
        for old in self._files()[KEPT:]:
            with suppress(OSError):
                old.unlink()

    def newest(self) -> State | None:
        """The newest intact state, if there is one; damaged ones are reported and skipped."""
        for file in self._files():
            state = _read(file)
            if state is not None:
                return state
            self.say(
                f"the checkpoint {file} is damaged, or of another version: the one before it is "
                "used, if any"
            )
        return None

    def _files(self) -> list[Path]:
        """The files of this training, newest first."""
        form = re.compile(rf"{re.escape(self.stage)}-\d{{9,}}-[0-9a-f]{{16}}\.safetensors")
        found = [file for file in self.folder.iterdir() if form.fullmatch(file.name)]
        return sorted(found, key=lambda file: int(file.name.split("-")[-2]), reverse=True)


def packed(state: State) -> bytes:
    """A state as bytes: safetensors with the facts in their header."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    facts = _without(state.facts, "facts", tensors)
    data: bytes = save(
        tensors, {"state": json.dumps({"format": FORMAT, "step": state.step, "facts": facts})}
    )
    return data


def _without(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A value in which the names of tensors stand for them; adds these to `tensors`."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {TENSOR: name}
    if isinstance(value, dict):
        return {key: _without(each, f"{name}/{key}", tensors) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without(each, f"{name}/{place}", tensors) for place, each in enumerate(value)]
    return value


def _with(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value that `_without` took apart, with lists for tuples and words as keys."""
    if isinstance(value, dict):
        if [*value] == [TENSOR]:
            return tensors[value[TENSOR]]
        return {key: _with(each, tensors) for key, each in value.items()}
    return [_with(each, tensors) for each in value] if isinstance(value, list) else value


def unpacked(data: bytes) -> State | None:
    """The state that was `packed`; None if the bytes are not a state."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        length = int.from_bytes(data[:8], "little")
        found = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["state"])
        if found["format"] != FORMAT:
            return None
        return State(found["step"], _with(found["facts"], load(data)))
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _read(file: Path) -> State | None:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StorageError(f"the checkpoint {file} could not be read: {error}") from error
    if hashlib.sha256(data).hexdigest()[:16] != file.stem.split("-")[-1]:
        return None
    return unpacked(data)
