"""The parts of benchmarks/on_gpu.py on a simulated GPU, with small sizes.

Three things are not simulated. The tests of a GPU do not run: only their command is looked at.
Torch has no report of waits here: the simulated device gives its own, in the same words.
The times say nothing.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from benchmarks import on_gpu, parts
from benchmarks.parts import Figures, Limited, Part
from benchmarks.step import Network
from forecaster.forecast.runner import Runner
from forecaster.train.module import ForecastModule
from tests.gpu_simulated.device import PRODUCT, Simulated

ROOT = PRODUCT.parent
THIN = ("model.width=8", "model.heads=2", "model.feed_forward=8", "train.batch=8")
SIZES = on_gpu.Sizes(
    attentions=("full", "prob"),
    networks={
        "default": Network("default", 48, 24, 6, THIN),
        "informer": Network("informer", 24, 12, 6, THIN),
    },
    trained=("informer",),
    served=("default",),
    options={"model.width": 8, "model.encoder_layers": 1, "train.updates": 4, "train.windows": 64},
    rows=400, steps=4, batch=1, lengths=(48,), masked=(64,), batches=(1, 3), rounds=1,
)  # fmt: skip
ITEMS = {
    "environment": 1, "tests": 1, "correct": 1, "waits": 2, "bf16": 2, "answers": 2,
    "same_bits": 4, "masks": 6, "graphs": 4, "steps": 4, "cores": 4, "served": 1,
}  # fmt: skip


class Telling(Simulated):
    """Tells of its waits as torch does, when it is asked to."""

    mode = "default"

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def wait(self, what: str) -> None:
        super().wait(what)
        file, _, line = self.waits[-1][1].partition(":")
        if self.mode == "warn" and line:
            text = "called a synchronizing CUDA operation"
            warnings.warn_explicit(text, UserWarning, str(ROOT / file), int(line))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telling]:
    def elsewhere(sizes: on_gpu.Sizes, kind: str, device: str) -> Any:
        if device != "cpu":
            return fitted(sizes, kind, device)
        with _disable_current_modes():  # its backward pass would make tensors of the GPU
            return fitted(sizes, kind, device)

    fitted = on_gpu.fitted
    monkeypatch.setattr(on_gpu, "fitted", elsewhere)
    with Telling() as simulated:
        monkeypatch.setattr("torch.cuda.set_sync_debug_mode", simulated.set_mode)
        yield simulated


def measured(name: str, **sizes: Any) -> Figures:
    """What a part finds."""
    every = on_gpu.parts(replace(SIZES, **sizes))
    return parts.run_part(next(part for part in every if part.name == name), 1000)


@pytest.mark.long
def test_each_part_runs_to_its_end(
    gpu: Telling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(on_gpu, "subprocess", Mock(run=Mock(return_value=Mock(returncode=0))))
    monkeypatch.setattr(on_gpu, "find_spec", lambda name: name != "matplotlib" or None)
    file = tmp_path / "on-gpu.json"
    assert parts.run(on_gpu.parts(SIZES), 1000, {"kind": "on_gpu"}, file) == 0
    document = json.loads(file.read_text())
    found, output = document["parts"], capsys.readouterr().out
    assert document["kind"] == "on_gpu"
    assert {name: len(part["rows"]) for name, part in found.items()} == ITEMS
    for name, part in found.items():
        assert f"{name:12s}{part['seconds']:6.1f} s  ok\n" in output.partition("summary")[2]
    (informer,) = found["correct"]["rows"]
    assert informer["mse"] > 0
    assert informer["apart"][0] < 1e-4
    assert [row["bf16 output"][0] > 1e-3 for row in found["bf16"]["rows"]] == [True, True]
    times = [row["ms"] for name in ("masks", "steps", "cores") for row in found[name]["rows"]]
    times += [found["served"]["rows"][0][f"{device} 3 ms"] for device in ("cuda", "cpu")]
    assert min(times) > 0


def test_a_line_that_waits_in_each_step_is_counted(
    gpu: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(module: ForecastModule, batch: Any) -> Tensor:
        found = loss(module, batch)
        found.item()
        return found

    loss = ForecastModule.loss
    (before,) = measured("waits", attentions=("full",))["rows"]
    monkeypatch.setattr(ForecastModule, "loss", waiting)
    (after,) = measured("waits", attentions=("full",))["rows"]
    more = {place: count for place, count in after.items() if before.get(place) != count}
    assert more.pop("waits") == before["waits"] + 1
    ((place, count),) = more.items()
    assert place.startswith("forecaster/train/module.py:")
    assert count == 1


@pytest.mark.long
def test_wrong_numbers_are_failures(gpu: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    def drifting(runner: Runner, *given: Any) -> Any:
        nonlocal drift
        drift += 0.01 * (runner.device == "cuda")
        return call(runner, *given) + drift

    def full(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    drift, call = 0.0, Runner.__call__
    monkeypatch.setattr(Runner, "__call__", drifting)
    monkeypatch.setattr(on_gpu, "TILED", dict.fromkeys(on_gpu.TILED, full))
    monkeypatch.setattr(on_gpu, "SMOOTH", (1e-9, 1e-9))
    assert measured("correct")["ended"] == "FAILED: informer"
    assert measured("answers")["ended"] == "FAILED: full, prob"
    assert measured("bf16")["ended"] == "FAILED: full"
    assert measured("masks")["ended"].startswith("FAILED: 64 False strided, 64 False fixed")


def test_what_fails_or_comes_too_late_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(place: int, way: str) -> Figures:
        nonlocal now
        now += 10
        return {"figure": Limited(place / 3, 0.5), "way": 1 / (way != "wrong")}

    def broken() -> Figures:
        raise ValueError("first\nsecond")

    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    chosen = [
        Part("broken", 99, broken),
        Part("beyond", 99, measure, ((1, 2), ("a",))),
        Part("late", 5, measure, ((0, 1), ("a", "b"))),
        Part("wrong", 99, measure, (range(8), ("wrong",))),
        Part("hopeless", 99, measure, ((0,), ("a",))),
    ]
    assert parts.run(chosen, 110, {}, tmp_path / "found.json") == 3
    found = json.loads((tmp_path / "found.json").read_text())["parts"]
    assert {name: part["ended"] for name, part in found.items()} == {
        "broken": "FAILED: broken",
        "beyond": "FAILED: 2 a",
        "late": "ok; no time left for 3 of 4",
        "wrong": "FAILED: " + ", ".join(f"{n} wrong" for n in range(6)) + " and 2 others",
        "hopeless": "no time left",
    }
    assert found["broken"]["rows"] == [{"item": "broken", "raised": "ValueError: first"}]
    assert found["beyond"]["rows"][0] == {"item": "1 a", "figure": [0.3333, 0.5], "way": 1.0}
    assert found["wrong"]["rows"][7]["raised"] == "ZeroDivisionError: division by zero"
    assert parts.is_beyond(Limited(float("nan"), 1))


def test_the_command_runs_the_parts_that_are_asked_for(
    gpu: Telling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(return_value={"figure": 1})
    for only, status in (("one,three", 0), ("one,four", 2)):
        words = ["on_gpu.py", "--only", only, "--out", str(tmp_path / "new"), "--seconds", "9"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            parts.command_line("", lambda seconds: [
                Part(name, seconds, asked, ((name,),)) for name in ("one", "two", "three")
            ], "cuda")  # fmt: skip
        assert ended.value.code == status
    assert [call.args for call in asked.call_args_list] == [("one",), ("three",)]
    document = json.loads((tmp_path / "new" / "on-gpu.json").read_text())
    assert document["command"].startswith("python -m benchmarks.on_gpu --only one,three ")
    assert document["hardware"].startswith("simulated, torch ")


def test_the_tests_of_a_gpu_run_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.gpu" in file.read_text() and file != Path(__file__)
    }
    assert {*on_gpu.TESTS} == marked
    run = Mock(return_value=Mock(returncode=0))
    monkeypatch.setattr(on_gpu, "subprocess", Mock(run=run))
    assert on_gpu.tests(SIZES) == {"status": Limited(0, 0), "left out": []}
    command = run.call_args.args[0]
    assert {*command} >= marked | {"gpu"}
    assert "--noconftest" not in command
    missing = {"fastapi", "beartype", "hypothesis"}
    monkeypatch.setattr(on_gpu, "find_spec", lambda name: name not in missing or None)
    assert len(on_gpu.tests(SIZES)["left out"]) == 2
    assert {*run.call_args.args[0]} >= {"--noconftest", os.devnull}
    run.return_value.returncode = 1
    assert parts.is_beyond(on_gpu.tests(SIZES)["status"])
