import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import Place, full_attention, topk
from forecaster.attention.topk import TopKAttention, topk_attention

from .agreement import assert_agree, inputs
from .memory import peak_mib
from .naive import topk as slow

# 13 steps: some hidden, all but two hidden (fewer than are kept), all hidden.
MASK = torch.stack([torch.arange(13) % 4 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

# The ways to select, made to apply at the lengths of these tests.
PATHS: dict[str, dict[str, int]] = {
    "marks": {"_SHORT": 10**6},
    "topk": {"_SHORT": 0},
    "groups": {"_SHORT": 0, "_GROUP": 2},
    "small blocks": {"_SHORT": 0, "_SCORES": 50, "_ROWS": 3},
    "small marked blocks": {"_SCORES": 90, "_ROWS": 4},
}


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PATHS[request.param].items():
        monkeypatch.setattr(topk, name, value)


def quantised(*shape: int, levels: int = 2, seed: int = 0) -> Tensor:
    """Small whole numbers: their products and sums are exact, so equal scores are equal bits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-levels, levels + 1, shape, generator=generator).float()


@pytest.mark.usefixtures("path")
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
        lambda q, k, v: topk_attention(q, k, v, topk=3, **options),
        lambda q, k, v: slow.attend(q, k, v, topk=3, **options),
        inputs(3, queries=13, keys=13, value_width=2, dtype=dtype),
        tolerance,
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("queries", "keys"), [(1, 2), (11, 29), (7, 3), (2, 63), (2, 64), (2, 65)])
def test_lengths_may_differ(queries: int, keys: int) -> None:
    assert_agree(
        lambda q, k, v: topk_attention(q, k, v, topk=2, scale=0.7),
        lambda q, k, v: slow.attend(q, k, v, topk=2, scale=0.7),
        inputs(queries=queries, keys=keys),
        1e-9,
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_all_that_tie_are_kept(levels: int, causal: bool) -> None:
    q, k, v = (quantised(2, 2, 13, 3, levels=levels, seed=seed) for seed in range(3))
    options: dict[str, Any] = {"topk": 3, "causal": causal, "key_mask": MASK[:2]}
    assert_agree(
        lambda q, k, v: topk_attention(q, k, v, **options),
        lambda q, k, v: slow.attend(q, k, v, **options),
        (q, k, v + torch.randn(v.shape)),
        1e-5,
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("ties", [2, 5])
def test_a_tie_hidden_among_random_scores_is_kept(ties: int) -> None:
    q, k, v = inputs(1, 2, 6, 70, width=1, dtype=torch.float32)
    with torch.no_grad():
        k[0, 1, 10 : 10 + ties] = k[0, 1].sort(0, descending=True).values[2]
        q[0, 1, 3] = 1.0
    third = k[0, 1, :, 0] == k[0, 1, 10, 0]
    assert third.sum() == ties + 1 - bool(third[10 : 10 + ties].sum() > ties)
    assert_agree(
        lambda *x: topk_attention(*x, topk=3),
        lambda *x: slow.attend(*x, topk=3),
        (q, k, v),
        1e-5,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(causal: bool) -> None:
    tensors = inputs(heads=1, queries=5, keys=5, width=2)
    assert torch.autograd.gradcheck(
        lambda *x: topk_attention(*x, topk=2, causal=causal, key_mask=MASK[1:, 8:]), tensors
    )


@pytest.mark.usefixtures("path")
def test_keys_that_nobody_kept_have_no_gradient() -> None:
    q, k, v = inputs(1, 1, 2, 40)
    q_only, k_only = q.detach(), k.detach()
    kept = (q_only @ k_only.mT).topk(3).indices.unique()
    topk_attention(q, k, v, topk=3).square().sum().backward()
    assert k.grad is not None
    assert v.grad is not None
    for gradient in (k.grad, v.grad):
        assert gradient[0, 0].any(1).nonzero().flatten().tolist() == kept.tolist()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [1, 8])
def test_is_full_attention_when_all_keys_are_kept(keys: int, causal: bool) -> None:
    q, k, v = inputs(queries=keys, keys=keys)
    out = topk_attention(q, k, v, topk=8, causal=causal)
    assert torch.equal(out, full_attention(q, k, v, causal=causal))
    q, k, v = inputs(queries=9, keys=9)
    same = (topk_attention(q, k, v, causal=causal) - full_attention(q, k, v, causal=causal)).abs()
    assert (same.amax((0, 1, 3)) < 1e-9).tolist() == [causal] * 8 + [False]


@pytest.mark.parametrize("keys", [1, 2, 63, 64, 65, 200, 1000])
def test_the_ways_to_select_agree(keys: int) -> None:
    x = torch.randn(4, 9, keys, generator=torch.Generator().manual_seed(0))
    x[0, 3] = x[0, 3].sort().values
    x[0, 4] = x[0, 4].sort(descending=True).values
    x[1, :, keys // 2 :] = -torch.inf
    x[2, 0, 0], x[2, 1, -1] = 3e38, -3e38
    x[3] *= 1e30
    for count in {1, min(4, keys), min(8, keys)}:
        values, index = x.topk(count)
        got = topk._largest(x, count)
        assert torch.equal(got[0], values)
        assert torch.equal(x.gather(2, got[1]), values)
        assert torch.equal(got[1].sort(2).values[2:], index.sort(2).values[2:])
        if count < keys:
            marked_values, marked, tied = topk._select_by_rounds(x, count)
            assert not tied
            assert torch.equal(marked_values.sort(2, descending=True).values, values)
            assert torch.equal(x.gather(2, marked), marked_values)


@pytest.mark.usefixtures("path")
def test_strides_change_nothing() -> None:
    q, k, v = (x.detach() for x in inputs(3, 2, 13, 13))
    plain = topk_attention(*(x.contiguous() for x in (q, k, v)), topk=3)
    strided = (x.transpose(0, 3).contiguous().transpose(0, 3) for x in (q, k, v))
    torch.testing.assert_close(topk_attention(*strided, topk=3), plain, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_selects_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (30 * x.detach() for x in inputs(2, 2, 40, 40, width=16, dtype=dtype))
    out = topk_attention(q, k, v, causal=True)
    assert out.dtype is dtype
    assert torch.equal(out, topk_attention(q.float(), k.float(), v.float(), causal=True).to(dtype))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=16, dtype=torch.float32)
        topk_attention(q, k, v, causal=causal).sum().backward()

    run(64)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 8


def test_refuses_to_keep_nothing() -> None:
    with pytest.raises(ValueError, match="topk must be at least 1, got topk=0"):
        topk_attention(*inputs(), topk=0)
    with pytest.raises(ValueError, match="topk must be at least 1, got topk=0"):
        TopKAttention(Place(6, 2, 7, 7), topk=0)


def test_says_what_it_amounts_to() -> None:
    assert TopKAttention(Place(6, 2, 7, 8)).amounts_to().text == "full: topk >= S (topk = 8, S = 8)"
    assert TopKAttention(Place(6, 2, 7, 9)).amounts_to().text == (
        "topk: each query attends to 8 of 9 keys"
    )


def test_the_module_passes_its_option_on() -> None:
    torch.manual_seed(0)
    module, x = TopKAttention(Place(6, 2, 20, 20), topk=2).eval(), torch.randn(1, 20, 6)
    before = module(x)
    module.topk = 20
    assert not torch.allclose(module(x), before)
