from typing import Any

import pytest
import torch
import torch.nn.functional as F

from forecaster.attention import FullAttention, Place, full_attention

from . import naive
from .agreement import assert_agree, inputs

MASK = torch.tensor([[True, True, False, True, True, False, True], [False] * 7])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    causal: bool, masked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}
    assert_agree(
        lambda q, k, v: full_attention(q, k, v, **options),
        lambda q, k, v: naive.full(q, k, v, **options),
        inputs(dtype=dtype),
        tolerance,
    )


@pytest.mark.parametrize("value_width", [1, 8])
def test_widths_and_lengths_may_differ(value_width: int) -> None:
    assert_agree(
        lambda q, k, v: full_attention(q, k, v, scale=0.7),
        lambda q, k, v: naive.full(q, k, v, scale=0.7),
        inputs(queries=5, keys=3, width=3, value_width=value_width),
        1e-9,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(causal: bool) -> None:
    tensors = inputs(queries=4, keys=4, width=2)
    assert torch.autograd.gradcheck(
        lambda *x: full_attention(*x, causal=causal, key_mask=MASK[:, :4]), tensors
    )


def test_a_mask_without_holes_is_no_mask() -> None:
    q, k, v = inputs()
    mask = torch.ones(2, 7, dtype=torch.bool)
    assert torch.equal(full_attention(q, k, v, key_mask=mask), full_attention(q, k, v))


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of torch 2.10
def test_unequal_widths_do_not_build_the_matrix() -> None:
    q, k, v = inputs(1, 1, 4096, 4096, width=4, value_width=8, dtype=torch.float32)
    with torch.profiler.profile(profile_memory=True) as profile:
        full_attention(q, k, v)
    largest = max(event.cpu_memory_usage for event in profile.key_averages())
    assert largest < 4096 * 4096


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    module, x = FullAttention(Place(8, 2, 5, 5), dropout=0.5), torch.randn(3, 5, 8)
    assert not torch.equal(module(x), module(x))
    module.eval()
    plain = FullAttention(Place(8, 2, 5, 5)).eval()
    plain.load_state_dict(module.state_dict())
    assert torch.equal(module(x), plain(x))


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_refuses_an_impossible_dropout(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"dropout must be .* got dropout={dropout}"):
        FullAttention(Place(8, 2, 5, 5), dropout=dropout)


def test_refuses_causal_with_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="got 5 queries, 7 keys"):
        full_attention(*inputs(queries=5), causal=True)


def test_large_scores_in_half_precision_stay_finite() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (30 * x for x in inputs(width=64, dtype=dtype))
        out = full_attention(q, k, v, key_mask=MASK)
        want = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
        assert out.isfinite().all()
        plain = full_attention(q, k, v)
        torch.testing.assert_close(plain.double(), want, atol=2.0, rtol=0.02)
