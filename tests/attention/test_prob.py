import pytest
import torch

from forecaster.attention import prob_counts, prob_sparse_attention

from .agreement import inputs


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
    sample = torch.randint(90, (1, 20), generator=generator).expand(90, 20)
    together = prob_sparse_attention(q, k, v, sample_index=sample)
    for b in (0, 7, 18):
        alone = prob_sparse_attention(*(x[b : b + 1] for x in (q, k, v)), sample_index=sample)
        torch.testing.assert_close(together[b : b + 1], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_measure_is_not_rounded(dtype: torch.dtype) -> None:
    q, k, v = (x.detach() for x in inputs(24, queries=300, keys=300, width=16, dtype=dtype))
    sample = torch.randint(300, (300, 30), generator=torch.Generator().manual_seed(0))
    scores = (q.double() @ k.double().mT).gather(3, sample.expand(24, 2, 300, 30))
    order = (scores.amax(3) - scores.mean(3)).argsort(dim=2, descending=True)
    out = prob_sparse_attention(q, k, v, sample_index=sample)
    distance = (out - v.mean(2, keepdim=True)).abs().amax(3)
    u, _ = prob_counts(300, 300, 5)
    found = distance.argsort(2, descending=True)
    assert torch.equal(found[:, :, :u].sort(2).values, order[:, :, :u].sort(2).values)


def test_dropout_acts_on_active_rows() -> None:
    q, k, v = inputs(queries=60, keys=60)
    torch.manual_seed(0)
    plain = prob_sparse_attention(q, k, v, factor=1)
    dropped = prob_sparse_attention(q, k, v, factor=1, dropout_p=0.5)
    changed = ((dropped - plain).abs().amax(3) > 1e-9).sum(2)
    assert (changed == prob_counts(60, 60, 1)[0]).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_lazy_rows_is_summed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 1, 1024, 8, dtype=dtype) for _ in range(3))
    v.requires_grad_()
    out = prob_sparse_attention(q, k, v, factor=20)
    (gradient,) = torch.autograd.grad(out, v, torch.full_like(out, 1000.0))
    assert gradient.isfinite().all()
