import sys
from typing import Any

import pytest
import torch

from forecaster.attention import AFTSimpleAttention, Place, aft_simple_attention
from forecaster.attention.common import prefix

from .agreement import assert_agree, inputs
from .memory import peak_mib
from .naive.aft_simple import aft_simple as slow_aft_simple

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

both = pytest.mark.parametrize("causal", [False, True])
each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def agree(tensors: Any, tolerance: float, **options: Any) -> None:
    assert_agree(
        lambda q, k, v: aft_simple_attention(q, k, v, **options),
        lambda q, k, v: slow_aft_simple(q, k, v, **options),
        tensors,
        tolerance,
    )


@both
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("at_once", [None, 24], ids=["whole", "in parts"])
@each_type
def test_equals_its_definition(
    monkeypatch: pytest.MonkeyPatch,
    causal: bool,
    masked: bool,
    at_once: int | None,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    if at_once is not None:
        monkeypatch.setattr(prefix, "_AT_ONCE", at_once)
        monkeypatch.setattr(prefix, "_CHUNK", 4)
    tensors = inputs(3, queries=13, keys=13, dtype=dtype)
    agree(tensors, tolerance, causal=causal, key_mask=MASK if masked else None)


@pytest.mark.parametrize(("queries", "keys"), [(7, 13), (13, 7), (1, 5), (5, 1)])
def test_lengths_may_differ(queries: int, keys: int) -> None:
    agree(inputs(queries=queries, keys=keys), 1e-9)
    mask = torch.arange(keys) < torch.tensor([keys - 1, keys])[:, None]
    agree(inputs(queries=queries, keys=keys), 1e-9, key_mask=mask)


@both
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 65])
def test_any_length(causal: bool, length: int) -> None:
    agree(inputs(1, queries=length, keys=length), 1e-9, causal=causal)


@both
@each_type
def test_keys_of_any_size(causal: bool, dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = inputs(queries=70, keys=70, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    uniform = 100 * torch.rand(k.shape, generator=generator, dtype=torch.float64) - 50
    ramp = torch.linspace(-50, 50, 70)[:, None].to(dtype) + k.detach()
    for keys in (uniform.to(dtype), ramp, -ramp, 20 * ramp, -20 * ramp):
        agree((q, keys, v), tolerance, causal=causal)


@both
def test_gradients_by_finite_differences(causal: bool) -> None:
    mask = torch.tensor([[False, True, False, True], [False] * 4])
    assert torch.autograd.gradcheck(
        lambda q, k, v: aft_simple_attention(q, k, v, causal=causal, key_mask=mask),
        inputs(heads=1, queries=4, keys=4, width=2),
    )


def test_without_causal_all_steps_get_the_same_mean() -> None:
    q, k, v = inputs()
    out = aft_simple_attention(q, k, v) / q.sigmoid()
    torch.testing.assert_close(out, out[:, :, :1].expand_as(out))


@both
def test_equal_keys_give_the_gated_mean(causal: bool) -> None:
    q, k, v = inputs()
    steps = torch.arange(1.0, 8.0).double()[:, None]
    mean = v.cumsum(2) / steps if causal else v.mean(2, keepdim=True)
    out = aft_simple_attention(q, torch.zeros_like(k), v, causal=causal)
    torch.testing.assert_close(out, q.sigmoid() * mean)


@both
def test_hidden_keys_may_hold_anything(causal: bool) -> None:
    q, k, v = (x.detach() for x in inputs(1))
    mask = torch.arange(7)[None] != 3
    before = aft_simple_attention(q, k, v, causal=causal, key_mask=mask)
    k[:, :, 3], v[:, :, 3] = torch.inf, torch.nan
    assert torch.equal(aft_simple_attention(q, k, v, causal=causal, key_mask=mask), before)


@both
def test_layout_changes_nothing(causal: bool) -> None:
    tensors = inputs()
    strided = [x.detach().transpose(2, 3).contiguous().transpose(2, 3) for x in tensors]
    torch.testing.assert_close(
        aft_simple_attention(*strided, causal=causal), aft_simple_attention(*tensors, causal=causal)
    )


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(causal: bool, dtype: torch.dtype) -> None:
    tensors = [30 * x.detach() for x in inputs(queries=40, keys=40, dtype=dtype)]
    out = aft_simple_attention(*tensors, causal=causal)
    exact = aft_simple_attention(*(x.float() for x in tensors), causal=causal)
    assert out.dtype is dtype
    assert torch.equal(out, exact.to(dtype))


def test_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="got 7 queries, 5 keys"):
        aft_simple_attention(*inputs(keys=5), causal=True)
    with pytest.raises(ValueError, match=r"attention 'aft-simple' .* set model\.mix=false"):
        AFTSimpleAttention(Place(6, 2, 7, 7, mix=True))


@both
def test_heads_change_nothing(causal: bool) -> None:
    results = []
    for heads in (1, 3):
        torch.manual_seed(0)
        module = AFTSimpleAttention(Place(6, heads, 7, 7))
        results.append(module(torch.randn(2, 7, 6), causal=causal))
    torch.testing.assert_close(*results)


def test_says_what_it_amounts_to() -> None:
    assert AFTSimpleAttention(Place(6, 2, 7, 7)).amounts_to().text == (
        "aft-simple: one mean of the visible values per feature, gated by the query"
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        aft_simple_attention(q, k, v, causal=causal).sum().backward()

    run(64)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 4
