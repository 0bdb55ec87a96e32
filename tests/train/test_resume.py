"""A training that is interrupted anywhere and continued equals an uninterrupted one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.train import resume
from forecaster.train.checkpoint import Checkpoints
from forecaster.train.fit import Fit
from tests.train.small import cycle, informer, same, train


class EndedError(Exception):
    """Stands in for anything that ends a process."""


@pytest.fixture(autouse=True)
def _every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint be written after every epoch, however long it takes."""
    monkeypatch.setattr(resume, "SPARED", 0)


def until(step: int, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Fit]) -> None:
    """Run a training that ends before `steps` steps, and after its last checkpoint."""
    write = resume.Checkpointing.on_train_batch_start

    def end(self: Any, trainer: Any, *rest: Any) -> None:
        write(self, trainer, *rest)
        if trainer.global_step == step:
            torch.rand(3)
            raise EndedError

    with monkeypatch.context() as patch:
        patch.setattr(resume.Checkpointing, "on_train_batch_start", end)
        with pytest.raises(EndedError):
            call()


CASES: dict[str, tuple[Any, tuple[int, ...], int, dict[str, Any]]] = {
    "whole epochs": (cycle, (7, 12, 15), 14, {"tolerance": 0.3}),
    "checks within an epoch": (informer, (4, 9, 16), 14, {"checks": 3}),
    "checks epochs apart": (cycle, (41,), 39, {"epochs": 2, "updates": 150, "windows": 30}),
    "epochs told together": (cycle, (11,), 8, {"epochs": 2, "updates": 150, "windows": 60}),
    "one check left": (cycle, (23,), 21, {"checks": 2, "patience": 3, "lr": 0.02, "epochs": 9}),
    "halves": (cycle, (9,), 7, {"schedule": "halve", "optimiser": "adamw", "clip": 0.5}),
    "cosine": (cycle, (5,), 4, {"schedule": "cosine", "windows": 50, "accumulate": 3}),
    "without validation": (informer, (1, 9), 7, {"validation": None}),
    "mixed precision": (cycle, (9,), 7, {"precision": "bf16"}),
    "computed again": (informer, (9,), 7, {"checkpointing": True}),
}
"""Models, the steps before which their trainings end, the last that is kept, and settings."""


@pytest.mark.parametrize("case", CASES)
def test_the_weights_are_those_of_a_training_that_never_ended(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, ends, kept, settings = CASES[case]
    options = {"epochs": 4, "patience": 99, **settings}
    whole, once_told, told = build(), {}, {}
    once = train(whole, report=lambda f, n: once_told.update({n: f}), **options)
    said: list[str] = []

    def go() -> Fit:
        nonlocal model
        model = build()
        torch.rand(5)
        checkpoints = Checkpoints(tmp_path, say=said.append)
        return train(
            model, report=lambda f, n: told.update({n: f}), checkpoints=checkpoints, **options
        )

    model = build()
    for step in ends:
        until(step, monkeypatch, go)
    again = go()
    fitted = replace(again, seconds=once.seconds, windows_per_second=once.windows_per_second)
    assert fitted == once
    assert same(model, whole)
    assert f" step {kept} of " in said[-1]
    for figures in [*told.values(), *once_told.values()]:
        figures.pop("windows_per_second", None)
    assert told == once_told, "each epoch is told with the same figures, whenever it is told"


def test_a_training_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    whole, model = cycle(), cycle(width=4)
    once = train(whole, checkpoints=Checkpoints(tmp_path))
    after = torch.rand(1)
    assert train(model, checkpoints=Checkpoints(tmp_path)) == once
    assert same(model, whole)
    assert not model.training
    assert torch.equal(torch.rand(1), after), "what draws at random goes on"
    with pytest.raises(DataError, match="network"):
        train(cycle(width=8), checkpoints=Checkpoints(tmp_path))


def test_the_time_that_was_spent_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go(limit: float) -> Fit:
        return train(cycle(), checkpoints=Checkpoints(tmp_path), epochs=4, time_limit=limit)

    until(8, monkeypatch, lambda: go(1000))
    checkpoints = Checkpoints(tmp_path)
    state = checkpoints.read()
    checkpoints.write(replace(state, facts={**state.facts, "seconds": 999.999}))
    fitted = go(1000)
    assert (fitted.late, fitted.steps) == (True, 14)
    assert fitted.seconds > 999
