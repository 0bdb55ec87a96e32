import pytest
import torch
from torch import Tensor

from forecaster.attention.common import prefix
from forecaster.attention.common.prefix import prefix_softmax_mean
from tests.attention import naive
from tests.attention.agreement import assert_agree, inputs

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def slow(score: Tensor, value: Tensor, key_mask: Tensor | None = None) -> Tensor:
    score = score.expand_as(value)

    def row(b: int, h: int, i: int) -> Tensor:
        steps = naive.visible(i, value.shape[2], True, key_mask, b)
        return (score[b, h, steps].softmax(dim=0) * value[b, h, steps]).sum(dim=0)

    return naive.rows(value, value, row)


def agree(score: Tensor, value: Tensor, tolerance: float, mask: Tensor | None = None) -> None:
    assert_agree(
        lambda a, x: prefix_softmax_mean(a, x, mask),
        lambda a, x: slow(a, x, mask),
        (score, value),
        tolerance,
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of a few chunks each."""
    monkeypatch.setattr(prefix, "_CHUNK", 4)
    monkeypatch.setattr(prefix, "_AT_ONCE", 2 * 3 * 8)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@each_type
def test_equals_its_definition(
    shared: bool, masked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    _, score, value = inputs(3, keys=13, width=1 if shared else 3, value_width=3, dtype=dtype)
    agree(score, value, tolerance, MASK if masked else None)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("length", [1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23])
def test_lengths_around_chunks_and_blocks(length: int) -> None:
    _, score, value = inputs(keys=length)
    agree(score, value, 1e-9)


@pytest.mark.parametrize("length", [31, 32, 33, 71])
def test_chunks_of_the_usual_size(length: int) -> None:
    _, score, value = inputs(1, keys=length, dtype=torch.float32)
    agree(score, value, 1e-4)


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


def test_hidden_steps_may_hold_anything() -> None:
    _, score, value = (x.detach() for x in inputs(1, keys=6))
    mask = torch.tensor([[True, False, True, True, False, True]])
    before = prefix_softmax_mean(score, value, mask)
    score[:, :, ~mask[0]], value[:, :, ~mask[0]] = torch.inf, torch.nan
    assert torch.equal(prefix_softmax_mean(score, value, mask), before)


def test_nothing_is_taken_from_the_future() -> None:
    _, score, value = (x.detach() for x in inputs(keys=70))
    before = prefix_softmax_mean(score, value)[:, :, :40]
    score[:, :, 40:] += 30
    value[:, :, 40:] -= 9
    torch.testing.assert_close(
        prefix_softmax_mean(score, value)[:, :, :40], before, atol=1e-12, rtol=0
    )
