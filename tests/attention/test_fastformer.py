from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import FastformerAttention, Place, additive_attention, fastformer

from .agreement import assert_agree, inputs

both = pytest.mark.parametrize("causal", [False, True])
each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def scorers(wide: bool = True, size: float = 1.0, dtype: torch.dtype = torch.float64) -> Any:
    """Weights for 2 heads of width 3, and biases."""
    generator = torch.Generator().manual_seed(5)
    shapes = (2, 6 if wide else 3), (2, 6 if wide else 3), (2,), (2,)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [(size * x).to(dtype).requires_grad_() for x in drawn]


def agree(tensors: list[Tensor], tolerance: float, **options: Any) -> None:
    assert_agree(
        lambda q, k, v, w_q, w_k, b_q, b_k: additive_attention(
            q, k, v, w_q, w_k, query_bias=b_q, key_bias=b_k, **options
        ),
        lambda q, k, v, w_q, w_k, b_q, b_k: fastformer.definition(
            q, k, v, w_q, w_k, query_bias=b_q, key_bias=b_k, **options
        ),
        tensors,
        tolerance,
    )


def module(length: int = 11, **options: Any) -> FastformerAttention:
    torch.manual_seed(0)
    return FastformerAttention(Place(6, 2, length, length), **options)


@both
@each_type
@pytest.mark.parametrize("end", [-50.0, 50.0])
def test_scores_that_rise_or_fall(
    causal: bool, end: float, dtype: torch.dtype, tolerance: float
) -> None:
    q, k, v = inputs(1, queries=41, keys=41, dtype=dtype)
    ramp = torch.linspace(0, 1, 41, dtype=dtype)[:, None]
    rising = [0.05 * x.detach() + ramp for x in (q, k)]
    weights = [torch.full((2, 6), end / 6 * 3**0.5, dtype=dtype) for _ in range(2)]
    agree([*rising, v, *weights, *scorers(dtype=dtype)[2:]], tolerance, causal=causal)


def test_a_head_of_its_own_is_a_wide_weight_with_zeros_elsewhere() -> None:
    tensors = inputs()
    w_q, w_k = (x.detach() for x in scorers(wide=False)[:2])
    wide = [torch.block_diag(w[:1], w[1:]) for w in (w_q, w_k)]
    torch.testing.assert_close(
        additive_attention(*tensors, w_q, w_k), additive_attention(*tensors, *wide)
    )


def test_the_first_causal_row_is_that_of_a_series_of_one_step() -> None:
    tensors, weights = inputs(), scorers()[:2]
    first = additive_attention(*(x[:, :, :1] for x in tensors), *weights)
    rows = additive_attention(*tensors, *weights, causal=True)
    torch.testing.assert_close(rows[:, :, :1], first)


def test_a_causal_row_knows_only_its_prefix() -> None:
    tensors, weights = inputs(queries=40, keys=40), scorers()[:2]
    prefix = additive_attention(*(x[:, :, :35] for x in tensors), *weights, causal=True)
    rows = additive_attention(*tensors, *weights, causal=True)
    torch.testing.assert_close(rows[:, :, :35], prefix, atol=1e-12, rtol=0)


def test_says_what_does_not_fit() -> None:
    q, k, v = inputs(keys=5)
    with pytest.raises(ValueError, match=r"the same shape, got q \(2, 2, 7, 3\), k \(2, 2, 5, 3\)"):
        additive_attention(q, k, v, *scorers()[:2])
    for shape in ((2, 5), (1, 6)):
        with pytest.raises(
            ValueError, match=r"query_weight must be \(H, H·E\) = \(2, 6\) or .*got"
        ):
            fastformer.scorer("query", torch.zeros(shape), None, 2, 3, torch.float32)
    with pytest.raises(ValueError, match=r"key_bias must be \(H,\) = \(2,\), got \(3,\)"):
        fastformer.scorer("key", torch.zeros(2, 3), torch.zeros(3), 2, 3, torch.float32)


@both
def test_the_module_adds_the_projected_query(causal: bool) -> None:
    attention, x = module(share_value=False), torch.randn(2, 11, 6)
    q, k, v = (
        projection(x).view(2, 11, 2, 3).transpose(1, 2)
        for projection in (
            attention.query_projection,
            attention.key_projection,
            attention.get_submodule("value_projection"),
        )
    )
    u = fastformer.definition(
        q, k, v, attention.query_score.weight, attention.key_score.weight, causal=causal
    )
    want = attention.out_projection(u.transpose(1, 2).flatten(2)) + attention.query_projection(x)
    torch.testing.assert_close(attention(x, causal=causal), want)


def test_the_value_is_the_query_unless_told_otherwise() -> None:
    shared, apart = module(), module(share_value=False)
    assert shared.value_projection is None
    assert apart.value_projection is not None
    apart.load_state_dict(shared.state_dict(), strict=False)
    apart.value_projection.load_state_dict(shared.query_projection.state_dict())
    x = torch.randn(2, 11, 6)
    torch.testing.assert_close(apart(x), shared(x))


def test_starts_as_the_authors_do_and_learns_all_it_owns() -> None:
    torch.manual_seed(0)
    attention = FastformerAttention(Place(64, 4, 11, 11))
    for name, parameter in attention.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            assert 0.016 < parameter.std() < 0.024
    count = sum(p.numel() for p in attention.parameters())
    assert count == 3 * (64 * 64 + 64) + 2 * (4 * 64 + 4)
    attention(torch.randn(2, 11, 64)).square().sum().backward()
    assert all(p.grad is not None for p in attention.parameters())


def test_drops_what_is_added_to_the_query_in_training_only() -> None:
    attention, x = module(dropout=0.5), torch.randn(2, 11, 6)
    plain = attention.eval()(x)
    query = attention.query_projection(x)
    dropped = attention.train()(x) - query
    doubled = torch.isclose(dropped, 2 * (plain - query), atol=1e-6)
    assert ((dropped.abs() < 1e-7) | doubled).all()
    assert not doubled.all()
    with pytest.raises(ValueError, match=r"got dropout=1.0"):
        module(dropout=1.0)
