from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    Place,
    ProbSparseAttention,
    full_attention,
    prob_counts,
    prob_sparse_attention,
)

from .agreement import inputs


def draw(queries: int, keys: int, count: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(keys, (queries, count), generator=generator)


def module(length: int = 23, **options: Any) -> ProbSparseAttention:
    torch.manual_seed(0)
    return ProbSparseAttention(Place(6, 2, length, length), **{"factor": 2, **options}).eval()


def series(length: int = 23) -> Tensor:
    return torch.randn(3, length, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("queries", "keys", "factor", "counts"),
    [
        (1, 1, 5, (1, 1)),
        (2, 3, 1, (1, 2)),
        (15, 16, 5, (15, 15)),
        (21, 84, 5, (20, 25)),
        (96, 336, 5, (25, 30)),
        (720, 720, 3, (21, 21)),
        (8192, 48, 5, (50, 20)),
    ],
)
def test_counts(queries: int, keys: int, factor: int, counts: tuple[int, int]) -> None:
    assert prob_counts(queries, keys, factor) == counts


@pytest.mark.parametrize("length", [16, 200])
def test_is_not_full_attention_beyond(length: int) -> None:
    q, k, v = inputs(queries=length, keys=length)
    same = (prob_sparse_attention(q, k, v) - full_attention(q, k, v)).abs().amax(3) < 1e-9
    u, _ = prob_counts(length, length, 5)
    assert (same.sum(2) == u).all()


def test_ties_go_to_the_lower_index() -> None:
    _, k, v = inputs(1, 1, queries=40, keys=40)
    q = torch.ones(1, 1, 40, 3).double()
    sample = torch.tensor([[3, 17, 8]]).expand(40, 3)
    out = prob_sparse_attention(q, k, v, factor=2, sample_index=sample)
    lazy = (out - v.mean(2, keepdim=True)).abs().amax(3) < 1e-12
    u, _ = prob_counts(40, 40, 2)
    assert lazy.flatten().tolist() == [False] * u + [True] * (40 - u)


def test_near_ties_fall_the_same_way_in_any_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 1, 24, generator=generator).expand(19, 2, 90, 24)
    q = q * (1 + 1e-7 * torch.randn(q.shape, generator=generator))
    k, v = (torch.randn(19, 2, 90, 24, generator=generator) for _ in range(2))
    sample = draw(1, 90, 20).expand(90, 20)
    together = prob_sparse_attention(q, k, v, sample_index=sample)
    for b in (0, 7, 18):
        alone = prob_sparse_attention(*(x[b : b + 1] for x in (q, k, v)), sample_index=sample)
        torch.testing.assert_close(together[b : b + 1], alone, atol=1e-5, rtol=1e-5)


def test_a_query_without_a_real_sampled_key_comes_last() -> None:
    q, k, v = inputs(1, 1, queries=9, keys=9)
    sample = torch.zeros(9, 2, dtype=torch.long)
    sample[5:7] = 4  # only queries 5 and 6 sample a real key
    mask = torch.arange(9)[None] > 2
    out = prob_sparse_attention(q, k, v, factor=1, sample_index=sample, key_mask=mask)
    full = full_attention(q, k, v, key_mask=mask)
    active = (out - full).abs().amax(3).flatten() < 1e-12
    u, _ = prob_counts(9, 9, 1)
    assert active.nonzero().flatten().tolist() == sorted([5, 6, 0][:u])


def test_strictly_causal_when_every_query_is_active() -> None:
    q, k, v = inputs(queries=12, keys=12)
    before = prob_sparse_attention(q, k, v, causal=True)[:, :, :7]
    q, k, v = (torch.cat([x[:, :, :7], 5 + x[:, :, 7:]], dim=2) for x in (q, k, v))
    assert torch.equal(prob_sparse_attention(q, k, v, causal=True)[:, :, :7], before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_measure_is_not_rounded(dtype: torch.dtype) -> None:
    q, k, v = (x.detach() for x in inputs(24, queries=300, keys=300, width=16, dtype=dtype))
    sample = draw(300, 300, 30)
    scores = (q.double() @ k.double().mT).gather(3, sample.expand(24, 2, 300, 30))
    order = (scores.amax(3) - scores.mean(3)).argsort(dim=2, descending=True)
    out = prob_sparse_attention(q, k, v, sample_index=sample)
    distance = (out - v.mean(2, keepdim=True)).abs().amax(3)
    u, _ = prob_counts(300, 300, 5)
    assert torch.equal(
        distance.argsort(2, descending=True)[:, :, :u].sort(2).values,
        order[:, :, :u].sort(2).values,
    )


def test_autocast_keeps_the_measure_and_the_means_exact() -> None:
    q, k, v = (x.float() for x in inputs(queries=100, keys=100, width=8))
    plain = prob_sparse_attention(q, k, v, factor=1, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = prob_sparse_attention(q, k, v, factor=1, causal=True)
    different = ((out - plain).abs().amax(3) > 1e-6).sum(2)
    assert (different <= prob_counts(100, 100, 1)[0]).all()
    torch.testing.assert_close(out, plain, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0}, "factor must be at least 1, got factor=0"),
        ({"dropout": 1.5}, "got dropout=1.5"),
    ],
)
def test_refuses_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(**options)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (torch.zeros(7, 0, dtype=torch.long), r"with L = 7, got torch.int64 of shape \(7, 0\)"),
        (torch.full((7, 2), 9), r"lie in \[0, 9\), got values from 9 to 9"),
        (torch.full((7, 2), -1), r"lie in \[0, 9\), got values from -1 to -1"),
    ],
)
def test_refuses_an_impossible_sample(sample: Tensor, message: str) -> None:
    q, k, v = inputs(queries=7, keys=9)
    with pytest.raises(ValueError, match=message):
        prob_sparse_attention(q, k, v, sample_index=sample)


def test_full_attention_in_disguise_keeps_no_sample() -> None:
    assert "sample" not in module(6, factor=5).state_dict()


def test_dropout_acts_on_active_rows_in_training_only() -> None:
    q, k, v = inputs(queries=60, keys=60)
    torch.manual_seed(0)
    plain = prob_sparse_attention(q, k, v, factor=1)
    dropped = prob_sparse_attention(q, k, v, factor=1, dropout_p=0.5)
    changed = ((dropped - plain).abs().amax(3) > 1e-9).sum(2)
    assert (changed == prob_counts(60, 60, 1)[0]).all()

    x = series()
    same, other = module(seed=3), module(seed=3, dropout=0.5)
    assert torch.equal(same(x), other(x))
    assert not torch.equal(same.train()(x), other.train()(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_lazy_rows_is_summed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 1, 1024, 8, dtype=dtype) for _ in range(3))
    v.requires_grad_()
    out = prob_sparse_attention(q, k, v, factor=20)
    (gradient,) = torch.autograd.grad(out, v, torch.full_like(out, 1000.0))
    assert gradient.isfinite().all()
