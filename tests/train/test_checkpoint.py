from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster.base import atomic
from forecaster.base.errors import StorageError
from forecaster.train.checkpoint import Checkpoints, State


def state(step: int, **facts: Any) -> State:
    tensors = {"a": [{"b": torch.arange(3) + step}], "draws": torch.tensor(step)}
    return State(step, {**facts, **tensors})


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path: Path, said: list[str]) -> Checkpoints:
    return Checkpoints(tmp_path, say=said.append)


def test_what_is_written_is_read(checkpoints: Checkpoints) -> None:
    facts = {"near": [[0.1, 1e-300, 3]], "best": float("inf"), "last": None, "pi": 3.14159265358979}
    checkpoints.write(state(7, **facts))
    found = checkpoints.read()
    assert found is not None
    assert found.step == 7
    assert facts.items() <= found.facts.items()
    assert torch.equal(found.facts["a"][0]["b"], torch.tensor([7, 8, 9]))
    assert int(found.facts["draws"]) == 7


def test_there_may_be_none(checkpoints: Checkpoints, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert checkpoints.read() is None


def test_the_last_is_kept_of_each_stage(checkpoints: Checkpoints, tmp_path: Path) -> None:
    other = Checkpoints(tmp_path, "refit")
    other.write(state(5))
    for step in (99, 100):
        checkpoints.write(state(step))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "fit.safetensors", "refit.safetensors",
    ]  # fmt: skip
    assert (checkpoints.read() or state(0)).step == 100
    assert (other.read() or state(0)).step == 5


@pytest.mark.parametrize("damage", ["cut", "flip in the facts", "flip in a tensor", "empty"])
def test_a_damaged_one_is_reported(damage: str, checkpoints: Checkpoints, said: list[str]) -> None:
    checkpoints.write(state(1))
    data = bytearray(checkpoints.file.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "empty":
        data = bytearray()
    else:
        data[-40 if damage == "flip in a tensor" else 20] ^= 1
    checkpoints.file.write_bytes(data)
    assert checkpoints.read() is None
    assert said == [f"{checkpoints.file} is damaged, or of another version: training starts anew"]


def test_no_pickle_is_read(checkpoints: Checkpoints, tmp_path: Path, said: list[str]) -> None:
    import io
    import pickle

    class Canary:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "canary",)

    buffer = io.BytesIO()
    torch.save({"model": Canary()}, buffer)
    for data in (pickle.dumps(Canary()), buffer.getvalue()):
        checkpoints.file.write_bytes(data + sha256(data).digest())
        assert checkpoints.read() is None
    assert len(said) == 2
    assert not (tmp_path / "canary").exists()


def test_a_full_disk_leaves_the_one_before(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.write(state(1))

    def full(place: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(StorageError, match=r"fit\.safetensors could not .* No space"):
        checkpoints.write(state(2))
    assert (checkpoints.read() or state(0)).step == 1
