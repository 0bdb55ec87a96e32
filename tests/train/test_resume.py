"""A training that is interrupted anywhere and continued equals an uninterrupted one."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.model import ForecastModel
from forecaster.train import resume
from forecaster.train.checkpoint import Checkpoints
from forecaster.train.run import Fit
from tests.train.small import Constant, cycle, informer, level, train


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


def same(one: ForecastModel, other: ForecastModel) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def timeless(fitted: Fit) -> Fit:
    return replace(fitted, seconds=0, windows_per_second=0)


OFTEN, SELDOM = 0.0, 60.0
"""Minutes between checkpoints: at every step, and only at the start of an epoch."""
CASES: dict[str, tuple[Any, float, tuple[int, ...], dict[str, Any]]] = {
    "tokens": (cycle, OFTEN, (12, 15, 21), {}),
    "whole epochs": (cycle, SELDOM, (12, 15, 21), {}),
    "dropout, distilling": (informer, OFTEN, (6, 15, 27), {"checks": 3}),
    "a tolerance": (informer, SELDOM, (12, 27), {"checks": 7, "tolerance": 0.3}),
    "a checkpoint at a check": (cycle, OFTEN, (2, 4, 6), {"checks": 3, "patience": 5}),
    "checks epochs apart": (
        cycle,
        OFTEN,
        (40, 41, 101),
        {"epochs": None, "updates": 150, "windows": 30},
    ),
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
    whole = build()
    reported: dict[int, Any] = {}
    once = train(whole, report=lambda f, n: reported.update({n: f}), **options)
    where: list[str] = []
    again: dict[int, Any] = {}

    def go() -> Fit:
        nonlocal model
        model = build()
        torch.rand(5)
        checkpoints = Checkpoints(tmp_path, minutes=minutes, resumed=where.append)
        return train(
            model, report=lambda f, n: again.update({n: f}), checkpoints=checkpoints, **options
        )

    model = build()
    for step in ends:
        until(step, monkeypatch, go)
        again.pop(0, None)  # lines from before training appear only in the first try
    assert timeless(go()) == timeless(once)
    assert same(model, whole)
    assert (where[0], len(where)) == ("its start", 1 + len(ends))
    if minutes == OFTEN:
        assert where[-1].partition(", ")[2].startswith(f"step {ends[-1]} of {once.steps}")
    for figures in [*again.values(), *reported.values()]:
        figures.pop("windows_per_second", None)
    reported.pop(0, None)
    assert again == reported, "each epoch is told with the same figures, whenever it is told"


def test_a_training_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    whole, model = cycle(), cycle(width=4)
    once = train(whole, checkpoints=Checkpoints(tmp_path))
    after = torch.rand(1)
    assert train(model, checkpoints=Checkpoints(tmp_path)) == once
    assert same(model, whole)
    assert not model.training
    assert torch.equal(torch.rand(1), after)


def test_what_draws_at_random_goes_on(tmp_path: Path) -> None:
    train(Constant(0.0), level(1, 20), None, checkpoints=Checkpoints(tmp_path))
    wanted = torch.rand(1)
    train(Constant(0.0), level(1, 20), None, checkpoints=Checkpoints(tmp_path))
    assert wanted == torch.rand(1)


def test_the_time_that_was_spent_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go(limit: float) -> Fit:
        checkpoints = Checkpoints(tmp_path, minutes=0)
        return train(cycle(), checkpoints=checkpoints, epochs=4, time_limit=limit)

    until(8, monkeypatch, lambda: go(1000))
    checkpoints = Checkpoints(tmp_path)
    state = checkpoints.read()
    assert state is not None
    assert 0 < state.facts["seconds"] < 1000
    for file in tmp_path.iterdir():
        file.unlink()
    checkpoints.write(replace(state, facts={**state.facts, "seconds": 999.999}))
    fitted = go(1000)
    assert (fitted.late, fitted.steps) == (True, 14)
    assert fitted.seconds > 999


def test_other_threads_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []

    def go() -> Fit:
        return train(cycle(), checkpoints=Checkpoints(tmp_path, resumed=where.append))

    until(8, monkeypatch, go)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    go()
    assert where[1:] == [
        "epoch 2, step 7 of 14 (on 3 threads, 1 before: the last digits may differ)"
    ]


def test_another_network_is_refused(tmp_path: Path) -> None:
    train(cycle(), checkpoints=Checkpoints(tmp_path))
    with pytest.raises(DataError, match=r"does not fit the network .*width|size mismatch"):
        train(cycle(width=8), checkpoints=Checkpoints(tmp_path))


def test_checkpoints_take_little_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If epochs are quick, not every one has a checkpoint."""
    written: list[float] = []
    write = Checkpoints.write

    def slow(self: Checkpoints, state: Any) -> None:
        time.sleep(0.05)
        write(self, state)
        written.append(state.step)

    monkeypatch.setattr(resume, "SPARED", 50)
    monkeypatch.setattr(Checkpoints, "write", slow)
    train(Constant(0.0), level(1, 20), None, epochs=9, checkpoints=Checkpoints(tmp_path))
    assert written == [1, 9]
