import subprocess
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from forecaster.attention import ATTENTIONS, AttentionChoice, AttentionPlan
from forecaster.base.errors import DeviceLostError
from forecaster.forecast.runner import Runner
from forecaster.model import Informer, Task, TokenInformer
from forecaster.model.base import ForecastModel
from forecaster.parts import Blend, Network

BREAK = """
import os

import torch

from forecaster.base.errors import DeviceLostError
from tests.forecast.test_runner import batch, make_model, runner

model = make_model().to("cuda")
run, forward = runner(model, "cuda"), model.forward

def wrong(*_):
    raise ValueError("wrong")

def broken(past, *others):
    return past.flatten()[torch.full((1,), 10**9, device="cuda")]

model.forward = wrong
try:
    run(*batch(1, False))
except ValueError:
    print("ValueError")
model.forward = forward
assert run(*batch(1, False)).shape == (1, 6, 2)
model.forward = broken
try:
    run(*batch(2, False))
except DeviceLostError as error:
    print(error, flush=True)
os._exit(0)  # as the service ends: what torch would clean up is lost
"""

TASK = Task(
    columns=3, targets=(0, 2), past=24, start=12, horizon=6, calendar=2, season=6, covariates=1
)


def make_model(name: str = "prob", skeleton: str = "tokens") -> Blend:
    torch.manual_seed(0)
    choice = AttentionChoice(name, {"factor": 1} if name == "prob" else {})
    plan = AttentionPlan(choice, choice)
    model: ForecastModel = Informer(TASK, plan, width=8, heads=2, feed_forward=8)
    if skeleton == "tokens":
        model = TokenInformer(TASK, plan, width=8, parts=3, calendar=True)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return Blend.alone(Network(model.eval()))


def runner(model: Blend, device: str = "cpu") -> Callable[..., np.ndarray]:
    """Calls a blend on a device, with the known features in one array."""

    def forecast(past: Tensor, known: Tensor, observed: Tensor | None) -> Tensor:
        return model(past, known[:, :24], known[:, 24:], observed)

    run = Runner(forecast, device)
    return lambda *arrays: run(
        *(None if x is None else torch.from_numpy(x) for x in arrays)
    ).numpy()


def batch(count: int, masked: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    draw = np.random.default_rng(count)
    past = draw.normal(size=(count, 24, 3)).astype(np.float32)
    known = draw.normal(size=(count, 30, 3)).astype(np.float32)
    return past, known, draw.random(past.shape) > 0.2 if masked else None


@pytest.mark.parametrize("masked", [False, True])
def test_on_a_processor_it_is_the_model_itself(masked: bool) -> None:
    model = make_model()
    past, known, observed = batch(3, masked)
    found = runner(model)(past, known, observed)
    given = past, known[:, :24], known[:, 24:], observed
    with torch.inference_mode():
        wanted = model(*(None if x is None else torch.from_numpy(x) for x in given))
    assert found.shape == (3, 6, 2)
    np.testing.assert_array_equal(found, wanted.numpy())


class TestFailures:
    def test_where_memory_is_short_the_caller_is_told(self, monkeypatch: Any) -> None:
        for error in (
            torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be ..."),
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
        ):
            with pytest.raises(torch.OutOfMemoryError):
                failing(error, monkeypatch)(*batch(4, False))

    @pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
    def test_a_device_is_lost_where_nothing_works_any_more(
        self, monkeypatch: Any, kind: type[Exception]
    ) -> None:
        what, inputs = "CUDA error: an illegal memory access was encountered", batch(1, False)
        run, works = failing(kind(f"{what}\nFor debugging ..."), monkeypatch), torch.ones
        full = torch.AcceleratorError("CUDA error: out of memory")
        for probe in (works, torch.OutOfMemoryError("full"), full):
            monkeypatch.setattr(torch, "ones", Mock(side_effect=probe))
            with pytest.raises(kind):
                run(*inputs)
        monkeypatch.setattr(torch, "ones", Mock(side_effect=RuntimeError("gone")))
        with pytest.raises(DeviceLostError, match=f"^the GPU is lost: {what}$"):
            run(*inputs)


def failing(error: Exception, monkeypatch: Any) -> Callable[..., np.ndarray]:
    """A runner whose model raises an error."""
    model = make_model()
    monkeypatch.setattr(model, "forward", Mock(side_effect=error))
    return runner(model)


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.mark.parametrize("skeleton", ["informer", "tokens"])
    @pytest.mark.parametrize("name", ATTENTIONS)
    def test_it_answers_as_a_processor(self, name: str, skeleton: str) -> None:
        here = runner(make_model(name, skeleton))
        there = runner(make_model(name, skeleton).to("cuda"), "cuda")
        for count, masked in ((3, False), (3, True), (1, False), (4, False), (300, True)):
            past, known, observed = batch(count, masked)
            found = there(past, known, observed)
            np.testing.assert_allclose(found, here(past, known, observed), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(found, there(past, known, observed))
            alone = there(past[-1:], known[-1:], observed[-1:] if masked else None)
            np.testing.assert_allclose(found[-1:], alone, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("name", ["prob", "topk"])
    def test_an_answer_does_not_depend_on_its_batch(self, name: str) -> None:
        run = runner(make_model(name, "informer").to("cuda"), "cuda")
        past, known, _ = batch(37, False)
        together = run(past, known, None)
        alone = [run(past[i : i + 1], known[i : i + 1], None) for i in range(37)]
        np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-5, atol=1e-5)

    def test_what_breaks_the_device_is_told_from_other_failures(self) -> None:
        """In a separate process, which has no GPU afterwards."""
        done = subprocess.run(
            [sys.executable, "-c", BREAK], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("ValueError\nthe GPU is lost: ")
