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

FORMAT = 1
KEPT = 2


@dataclass(frozen=True)
class State:
    """Everything that determines how a training continues: tensors, and the rest in `facts`."""

    step: int
    facts: dict[str, Any]
    tensors: dict[str, Tensor] = field(repr=False)

    def below(self, prefix: str) -> dict[str, Tensor]:
        return below(self.tensors, prefix)


def below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


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
            self.say(f"the checkpoint {file} is damaged: the one before it is used, if any")
        return None

    def _files(self) -> list[Path]:
        """The files of this training, newest first."""
        form = re.compile(rf"{re.escape(self.stage)}-\d{{9,}}-[0-9a-f]{{16}}\.safetensors")
        found = [file for file in self.folder.iterdir() if form.fullmatch(file.name)]
        return sorted(found, key=lambda file: int(file.name.split("-")[-2]), reverse=True)


def packed(state: State) -> bytes:
    """A state as bytes: safetensors with the facts in their header."""
    from safetensors.torch import save

    facts = json.dumps({"format": FORMAT, "step": state.step, **state.facts})
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.tensors.items()}
    data: bytes = save(tensors, {"state": facts})
    return data


def unpacked(data: bytes) -> State | None:
    """The state that was `packed`; None if the bytes are not a state."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        length = int.from_bytes(data[:8], "little")
        facts = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["state"])
        if facts["format"] != FORMAT:
            return None
        return State(facts["step"], facts, load(data))
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
