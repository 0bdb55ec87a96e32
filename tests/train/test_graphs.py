"""A training whose steps are replayed, beside the same one without; on a simulated GPU."""

from typing import Any

import pytest
import torch

from forecaster.attention import AttentionChoice, AttentionPlan
from tests.gpu_simulated.device import Simulated
from tests.train.small import PROB, TRAIN, VALIDATION, cycle, train


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
    graphed, *_ = trained(True, topk)
    assert capsys.readouterr().err.count("train.graphs: steps run as they are") == 1
    plain, *_ = trained(False, topk)
    for name in set(plain) - {"encoder.0.attention.key_projection.bias"}:  # without effect
        torch.testing.assert_close(graphed[name], plain[name], atol=1e-4, rtol=1e-3, msg=name)


def test_a_step_in_parts_runs_as_it_is() -> None:
    (_, graphed, _), (_, plain, _) = (trained(x, accumulate=2, epochs=5) for x in (True, False))
    assert graphed == pytest.approx(plain, rel=0.02)
