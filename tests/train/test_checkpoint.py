import io
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster.train.checkpoint import Checkpoints, State


def state(step: int, **facts: Any) -> State:
    return State(step, {**facts, "a": [{"b": torch.arange(3) + step}], "draws": torch.tensor(step)})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.read() is None
    facts = {"near": [[0.1, 1e-300, 3]], "best": float("inf"), "last": None, "pi": 3.14159265358979}
    checkpoints.write(state(7, **facts))
    found = checkpoints.read()
    assert found.step == found.facts["draws"] == 7
    assert facts.items() <= found.facts.items()
    assert torch.equal(found.facts["a"][0]["b"], torch.tensor([7, 8, 9]))
    other = Checkpoints(tmp_path, "refit")
    other.write(state(5))
    checkpoints.write(state(100))
    assert len([*tmp_path.iterdir()]) == 2, "the last of each stage"
    assert [each.read().step for each in (checkpoints, other)] == [100, 5]


class Canary:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("damage", ["cut", "empty", "facts", "tensor", "pickle", "torch"])
def test_a_damaged_one_is_reported_and_no_pickle_is_read(damage: str, tmp_path: Path) -> None:
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, say=said.append)
    checkpoints.write(state(1))
    data = bytearray(checkpoints.file.read_bytes())
    canary, buffer = Canary(tmp_path / "canary"), io.BytesIO()
    if damage == "torch":
        torch.save({"model": canary}, buffer)
    elif damage == "pickle":
        pickle.dump(canary, buffer)
    if content := buffer.getvalue():
        data = bytearray(content + sha256(content).digest())
    elif damage in ("cut", "empty"):
        data = data[: -1 if damage == "cut" else 0]
    else:
        data[-40 if damage == "tensor" else 20] ^= 1
    checkpoints.file.write_bytes(data)
    assert checkpoints.read() is None
    (told,) = said
    assert str(checkpoints.file) in told
    assert not canary.file.exists()
