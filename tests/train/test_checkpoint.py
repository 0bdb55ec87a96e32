from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster import files
from forecaster.errors import StorageError
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


def names(folder: Path) -> list[int]:
    return sorted(int(file.name.split("-")[1]) for file in folder.iterdir())


def test_what_is_written_is_read(checkpoints: Checkpoints) -> None:
    facts = {"near": [[0.1, 1e-300, 3]], "best": float("inf"), "last": None, "pi": 3.14159265358979}
    checkpoints.write(state(7, **facts))
    found = checkpoints.newest()
    assert found is not None
    assert found.step == 7
    assert facts.items() <= found.facts.items()
    assert torch.equal(found.facts["a"][0]["b"], torch.tensor([7, 8, 9]))
    assert int(found.facts["draws"]) == 7


def test_there_may_be_none(checkpoints: Checkpoints, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / f".fit-000000009-{'0' * 16}.safetensors.1").write_text("half")
    assert checkpoints.newest() is None


def test_two_are_kept_and_each_stage_has_its_own(checkpoints: Checkpoints, tmp_path: Path) -> None:
    other = Checkpoints(tmp_path, "refit")
    other.write(state(5))
    for step in (9, 99, 1_000_000_000, 10_000_000_000):
        checkpoints.write(state(step))
    assert names(tmp_path) == [5, 1_000_000_000, 10_000_000_000]
    assert (checkpoints.newest() or state(0)).step == 10_000_000_000
    assert (other.newest() or state(0)).step == 5


def newest_file(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda file: int(file.name.split("-")[1]))


@pytest.mark.parametrize("damage", ["cut", "flip in the tensors", "flip in the facts", "empty"])
def test_a_damaged_one_falls_back_to_the_one_before(
    damage: str, checkpoints: Checkpoints, tmp_path: Path, said: list[str]
) -> None:
    checkpoints.write(state(1))
    checkpoints.write(state(2))
    file = newest_file(tmp_path)
    data = bytearray(file.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "empty":
        data = bytearray()
    else:
        data[-1 if "tensors" in damage else 20] ^= 1
    file.write_bytes(data)
    found = checkpoints.newest()
    assert found is not None
    assert found.step == 1
    assert said == [
        f"the checkpoint {file} is damaged, or of another version: the one before it is used, if "
        "any"
    ]


def test_no_pickle_is_read(checkpoints: Checkpoints, tmp_path: Path, said: list[str]) -> None:
    import hashlib
    import io
    import pickle

    class Canary:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "canary",)

    buffer = io.BytesIO()
    torch.save({"model": Canary()}, buffer)
    for number, data in enumerate((pickle.dumps(Canary()), buffer.getvalue())):
        digest = hashlib.sha256(data).hexdigest()[:16]
        (tmp_path / f"fit-{number:09}-{digest}.safetensors").write_bytes(data)
    assert checkpoints.newest() is None
    assert len(said) == 2
    assert not (tmp_path / "canary").exists()


def test_a_full_disk_leaves_the_ones_before(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.write(state(1))
    checkpoints.write(state(2))

    def full(place: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match=r"fit-000000003-\w+.safetensors could not .* No space"):
        checkpoints.write(state(3))
    assert names(tmp_path) == [1, 2]
