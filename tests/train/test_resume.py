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
from forecaster.train.run import Fit
from tests.train.small import cycle, informer, same, train


class EndedError(Exception):
    """Stands in for anything that ends a process."""


@pytest.fixture(autouse=True)
def _every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint be written at every step, however long it takes."""
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


OFTEN, SELDOM = 0.0, 60.0
"""Minutes between checkpoints: at every step, and only at the start of an epoch."""
CASES: dict[str, tuple[Any, float, tuple[int, ...], dict[str, Any]]] = {
    "whole epochs": (cycle, SELDOM, (12, 15), {"tolerance": 0.3}),
    "a checkpoint at a check": (informer, OFTEN, (2, 4, 15), {"checks": 3}),
    "checks epochs apart": (cycle, OFTEN, (41,), {"epochs": 2, "updates": 150, "windows": 30}),
    "halves": (cycle, OFTEN, (9,), {"schedule": "halve", "optimiser": "adamw", "clip": 0.5}),
    "cosine": (cycle, OFTEN, (3,), {"schedule": "cosine", "windows": 50, "accumulate": 3}),
    "without validation": (informer, OFTEN, (1, 9), {"validation": None}),
    "mixed precision": (cycle, OFTEN, (9,), {"precision": "bf16"}),
    "computed again": (informer, OFTEN, (9,), {"checkpointing": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_weights_are_those_of_a_training_that_never_ended(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, minutes, ends, settings = CASES[case]
    options = {"epochs": 4, "patience": 99, **settings}
    whole, once_told, told = build(), {}, {}
    once = train(whole, report=lambda f, n: once_told.update({n: f}), **options)
    said: list[str] = []

    def go() -> Fit:
        nonlocal model
        model = build()
        torch.rand(5)
        checkpoints = Checkpoints(tmp_path, minutes=minutes, say=said.append)
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
    if minutes == OFTEN:
        assert said[-1].endswith(f"step {ends[-1]} of {once.steps}")
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
        checkpoints = Checkpoints(tmp_path, minutes=0)
        return train(cycle(), checkpoints=checkpoints, epochs=4, time_limit=limit)

    until(8, monkeypatch, lambda: go(1000))
    checkpoints = Checkpoints(tmp_path)
    state = checkpoints.read()
    checkpoints.write(replace(state, facts={**state.facts, "seconds": 999.999}))
    fitted = go(1000)
    assert (fitted.late, fitted.steps) == (True, 14)
    assert fitted.seconds > 999
