import pytest
import torch
from torch import Tensor

from forecaster.attention.common import prefix
from forecaster.attention.common.definitions import softmax, visible
from forecaster.attention.common.prefix import prefix_softmax_mean
from tests.attention.agreement import assert_agree, inputs

# 13 steps: some hidden, all but two hidden, all hidden.

each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def slow(score: Tensor, value: Tensor, key_mask: Tensor | None = None) -> Tensor:
    seen = visible(value, value, True, key_mask)[..., None]
    return (softmax(score[:, :, None], seen, dim=3) * value[:, :, None]).sum(3)


def agree(score: Tensor, value: Tensor, tolerance: float, mask: Tensor | None = None) -> None:
    assert_agree(
        lambda a, x: prefix_softmax_mean(a, x, mask),
        lambda a, x: slow(a, x, mask),
        (score, value),
        tolerance,
    )


@pytest.mark.parametrize("slope", [-1000.0, -20.0, -1.0, 1.0, 2.5, 20.0, 1000.0])
@pytest.mark.parametrize("shared", [False, True])
@each_type
def test_ramps_of_any_slope(
    slope: float, shared: bool, dtype: torch.dtype, tolerance: float
) -> None:
    _, score, value = inputs(1, keys=50, width=1 if shared else 3, value_width=3, dtype=dtype)
    ramp = slope * torch.arange(50, dtype=dtype)[:, None] + score
    agree(ramp, value, tolerance)


@pytest.mark.parametrize("shared", [False, True])
@each_type
def test_scores_of_any_size(shared: bool, dtype: torch.dtype, tolerance: float) -> None:
    _, score, value = inputs(keys=50, width=1 if shared else 3, value_width=3, dtype=dtype)
    for size in (50.0, 1e4, 1e8):
        agree(size * score, value, tolerance)


def test_only_the_steep_blocks_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    monkeypatch.setattr(prefix, "_AT_ONCE", 64)
    tops = prefix._tops

    def spy(a: Tensor, before: Tensor, chunk: int) -> Tensor:
        sizes.append(chunk)
        return tops(a, before, chunk)

    monkeypatch.setattr(prefix, "_tops", spy)
    score = torch.zeros(1, 1, 192, 1)
    score[:, :, 100:] = 50.0  # within the second of three blocks
    prefix_softmax_mean(score, torch.randn(1, 1, 192, 1))
    assert sizes == [32, 32, 1, 32]


def test_finite_differences() -> None:
    _, score, value = inputs(1, keys=5, width=2)
    mask = torch.tensor([[False, True, True, False, True]])
    assert torch.autograd.gradcheck(prefix_softmax_mean, (score, value))
    assert torch.autograd.gradcheck(lambda a, x: prefix_softmax_mean(a, x, mask), (score, value))
    one = score.detach()[..., :1].requires_grad_()
    assert torch.autograd.gradcheck(prefix_softmax_mean, (one, value))
