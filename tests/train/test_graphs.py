"""A training whose steps are replayed, beside the same one without; on a simulated GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.attention.common.draws import DrawingAttention
from forecaster.base.errors import DivergedError
from forecaster.train import resume
from forecaster.train.checkpoint import Checkpoints
from forecaster.train.fit import Fit
from tests.gpu_simulated.device import Simulated
from tests.train.small import PROB, TRAIN, VALIDATION, cycle, train
from tests.train.test_resume import until


def trained(graphs: bool, plan: AttentionPlan = PROB, **config: Any) -> tuple[Any, ...]:
    with Simulated() as gpu:
        model = cycle(plan, dropout=0.1)
        # 121 windows in batches of 15 and 16: two shapes, each often enough
        options = {"epochs": 5, "batch": 15, "patience": 99, "schedule": "halve", **config}
        data = TRAIN.to("cuda"), VALIDATION.to("cuda")
        fitted = train(model, *data, device="cuda", graphs=graphs, **options)
        state = {name: x.cpu() for name, x in model.state_dict().items()}
    return state, gpu.launches / fitted.steps, fitted


@pytest.mark.parametrize("clip", [None, 0.1])
def test_it_ends_with_the_same_weights(clip: float | None) -> None:
    (graphed, few, fitted), (plain, many, same) = (
        trained(graphs, clip=clip) for graphs in (True, False)
    )
    for name in set(plain) - {"encoder.0.attention.key_projection.bias"}:  # without effect
        torch.testing.assert_close(graphed[name], plain[name], atol=1e-4, rtol=1e-3, msg=name)
    assert fitted.steps == same.steps == 40
    assert fitted.validation_mse == pytest.approx(same.validation_mse, rel=1e-5)
    assert few < many / 2


def test_a_step_that_waits_runs_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    topk = AttentionPlan(AttentionChoice("topk", {"topk": 2}), AttentionChoice("full"))
    graphed, *_ = trained(True, topk, epochs=3)
    assert capsys.readouterr().err.count("train.graphs: steps run as they are") == 1
    plain, *_ = trained(False, topk, epochs=3)
    for name in set(plain) - {"encoder.0.attention.key_projection.bias"}:  # without effect
        torch.testing.assert_close(graphed[name], plain[name], atol=1e-4, rtol=1e-3, msg=name)


def test_a_step_in_parts_runs_as_it_is() -> None:
    (_, graphed, _), (_, plain, _) = (trained(x, accumulate=2, epochs=3) for x in (True, False))
    assert graphed == pytest.approx(plain, rel=0.02)


def resumed(folder: Path, ends: tuple[int, ...], patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The weights of a training that ends before these steps, and is resumed each time."""
    keeper = Checkpoints(folder, say=lambda text: None)
    options = {"epochs": 5, "batch": 15, "patience": 99, "schedule": "halve", "device": "cuda"}
    with Simulated() as gpu:
        data = TRAIN.to("cuda"), VALIDATION.to("cuda")

        def go() -> Fit:
            nonlocal model
            model = cycle(PROB)
            return train(model, *data, checkpoints=keeper, **options)

        model = cycle(PROB)
        for step in ends:
            until(step, patch, go)
        gpu.clear()
        go()
        assert gpu.launches < 40 * 100, "steps are replayed"
        return {name: x.cpu() for name, x in model.state_dict().items()}


def test_a_training_that_is_resumed_is_replayed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resume, "SPARED", 0)
    folders = tmp_path / "whole", tmp_path / "again"
    for folder in folders:
        folder.mkdir()
    whole = resumed(folders[0], (), monkeypatch)
    again = resumed(folders[1], (13, 22), monkeypatch)
    assert "train.graphs" not in capsys.readouterr().err
    for name in set(whole) - {"encoder.0.attention.key_projection.bias"}:  # without effect
        torch.testing.assert_close(again[name], whole[name], atol=1e-4, rtol=1e-3, msg=name)


def test_after_a_training_that_failed_a_model_draws_anew() -> None:
    model = cycle(PROB)
    with Simulated(), pytest.raises(DivergedError):
        train(model, TRAIN.to("cuda"), VALIDATION.to("cuda"), device="cuda", lr=1e30, epochs=3)
    drawing = [m for m in model.modules() if isinstance(m, DrawingAttention)]
    assert drawing
    assert all(m.draws > 0 and m.ahead is None for m in drawing)
