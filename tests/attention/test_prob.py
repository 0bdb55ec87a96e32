import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from forecaster.attention import (
    Place,
    ProbSparseAttention,
    full_attention,
    prob,
    prob_counts,
    prob_sparse_attention,
)

from . import naive
from .agreement import assert_agree, inputs
from .memory import peak_mib

VARIANTS = ["paper", "informer2020"]
# 13 steps: some hidden, all but two hidden (so many samples meet no real key), all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
@pytest.mark.parametrize("exporting", [False, True])
def test_equals_its_definition(
    exporting: bool,
    causal: bool,
    masked: bool,
    variant: Any,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: exporting)
    sample = draw(13, 13)
    options: dict[str, Any] = {
        "causal": causal,
        "key_mask": MASK if masked else None,
        "variant": variant,
        "factor": 1,
    }
    assert_agree(
        lambda q, k, v: prob_sparse_attention(q, k, v, sample_index=sample, **options),
        lambda q, k, v: naive.prob(q, k, v, sample, **options),
        inputs(3, queries=13, keys=13, value_width=2, dtype=dtype),
        tolerance,
    )


@pytest.mark.parametrize(("queries", "keys"), [(11, 29), (29, 11), (7, 1), (40, 40)])
def test_lengths_may_differ(queries: int, keys: int) -> None:
    sample = draw(queries, keys, 5)
    assert_agree(
        lambda q, k, v: prob_sparse_attention(
            q, k, v, factor=1, sample_index=sample.int(), scale=0.3
        ),
        lambda q, k, v: naive.prob(q, k, v, sample, 1, scale=0.3),
        inputs(queries=queries, keys=keys),
        1e-9,
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scores", [1, 13 * 4 * 2, 13 * 4 * 4])
def test_the_portions_of_the_measure_do_not_matter(
    scores: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = (x.float() for x in inputs(3, 3, queries=13, keys=13))
    options: dict[str, Any] = {"factor": 1, "key_mask": MASK if masked else None}
    whole = prob_sparse_attention(q, k, v, **options)
    monkeypatch.setattr(prob, "_SCORES", scores)
    assert torch.equal(prob_sparse_attention(q, k, v, **options), whole)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_by_finite_differences(causal: bool, variant: Any) -> None:
    sample = draw(5, 5)
    mask = torch.tensor([[False, True, True, False, True], [False] * 5])
    assert torch.autograd.gradcheck(
        lambda q, k, v: prob_sparse_attention(
            q, k, v, factor=1, sample_index=sample, variant=variant, causal=causal, key_mask=mask
        ),
        inputs(heads=1, queries=5, keys=5, width=2),
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 15])
def test_is_full_attention_when_every_query_is_active(length: int, causal: bool) -> None:
    q, k, v = inputs(queries=length, keys=length)
    out = prob_sparse_attention(q, k, v, factor=5, causal=causal)
    assert torch.equal(out, full_attention(q, k, v, causal=causal))


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


def test_the_seed_decides_the_sample() -> None:
    q, k, v = inputs(queries=60, keys=60)
    first = prob_sparse_attention(q, k, v, factor=1)
    assert torch.equal(prob_sparse_attention(q, k, v, factor=1, seed=0), first)
    assert not torch.equal(prob_sparse_attention(q, k, v, factor=1, seed=1), first)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_near_the_truth(dtype: torch.dtype, causal: bool) -> None:
    q, k, v = (30 * x for x in inputs(queries=60, keys=60, width=64, dtype=dtype))
    sample = draw(60, 60, 21)
    out = prob_sparse_attention(q, k, v, sample_index=sample, causal=causal)
    exact = (x.detach().double() for x in (q, k, v))
    want = prob_sparse_attention(*exact, sample_index=sample, causal=causal)
    assert out.dtype is dtype
    torch.testing.assert_close(out.double(), want, atol=0.3, rtol=0.02)


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


def test_says_what_it_amounts_to() -> None:
    place = Place(8, 2, 84, 84)
    assert ProbSparseAttention(place).amounts_to().text == (
        "prob: 25 of 84 queries active, 25 of 84 keys sampled"
    )
    assert (
        ProbSparseAttention(Place(8, 2, 12, 12)).amounts_to().text
        == "full: u >= L (u = 12, L = 12)"
    )


@pytest.mark.parametrize("place", [{"depth": 1}, {"role": "decoder"}])
def test_every_place_has_a_sample_of_its_own(place: dict[str, Any]) -> None:
    here, there = (ProbSparseAttention(Place(6, 2, 23, 23, **at)) for at in ({}, place))
    assert not torch.equal(here.state_dict()["sample"], there.state_dict()["sample"])


def test_seed_and_factor_change_the_sample() -> None:
    samples = [module(**options).state_dict()["sample"] for options in ({}, {"seed": 1})]
    assert not torch.equal(*samples)
    assert module(factor=1).state_dict()["sample"].shape == (23, 4)


def test_full_attention_in_disguise_keeps_no_sample() -> None:
    assert "sample" not in module(6, factor=5).state_dict()


def test_evaluates_with_the_sample_of_the_state_dict() -> None:
    changed = module()
    changed.load_state_dict({**changed.state_dict(), "sample": torch.zeros(23, 8).long()})
    assert not torch.equal(changed(series()), module()(series()))


def test_evaluates_at_other_lengths_too() -> None:
    attention, x = module(), series(31)
    with torch.inference_mode():
        first = attention(x)
    again = module()(x.requires_grad_())
    again.sum().backward()
    assert torch.equal(first, again)


def test_training_draws_anew_and_resumes_where_it_stopped(tmp_path: Path) -> None:
    attention, x = module(factor=1).train(), series()
    attention(x), attention(x)
    save_file(attention.state_dict(), tmp_path / "state.safetensors")
    third, fourth = attention(x), attention(x)
    assert not torch.equal(third, fourth)

    resumed = module(factor=1).train()
    resumed.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert torch.equal(resumed(x), third)
    assert torch.equal(resumed(x), fourth)


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


def test_training_does_not_change_what_evaluation_samples() -> None:
    attention, x = module(), series()
    before = attention(x)
    attention.train()(x)
    assert torch.equal(attention.eval()(x), before)


def test_another_process_needs_only_torch_and_computes_the_same_bits() -> None:
    program = """
import hashlib, sys, torch
from forecaster.attention import Place, ProbSparseAttention
torch.manual_seed(0)
attention = ProbSparseAttention(Place(6, 2, 23, 23), factor=2).eval()
out = attention(torch.randn(3, 31, 6, generator=torch.Generator().manual_seed(1)))
assert not {"pydantic", "pandas", "lightning", "mlflow"} & set(sys.modules)
print(hashlib.sha256(out.detach().numpy().tobytes()).hexdigest())
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    here = module()(series(31)).detach().numpy().tobytes()
    assert run.stdout.strip() == hashlib.sha256(here).hexdigest()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        prob_sparse_attention(q, k, v, causal=causal).sum().backward()

    run(64)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_lazy_rows_is_summed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 1, 1024, 8, dtype=dtype) for _ in range(3))
    v.requires_grad_()
    out = prob_sparse_attention(q, k, v, factor=20)
    (gradient,) = torch.autograd.grad(out, v, torch.full_like(out, 1000.0))
    assert gradient.isfinite().all()
