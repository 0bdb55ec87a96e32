import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    DifferentialAttention,
    Place,
    diff,
    differential_attention,
    full_attention,
    lambda_init,
)

from . import naive
from .agreement import assert_agree, inputs
from .memory import peak_mib
from .naive.diff import differential
from .naive.diff import module as naive_module

MASK = torch.tensor([[True, True, False, True, True, False, True], [False] * 7])
TYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def pairs(**sizes: Any) -> list[Tensor]:
    """q1, k1, q2, k2, v and one lam for each head."""
    q1, k1, v = inputs(**{"value_width": 6, **sizes})
    q2, k2, _ = inputs(**{"value_width": 6, **sizes, "seed": 1})
    lam = torch.linspace(-0.3, 0.7, q1.shape[1], dtype=q1.dtype).requires_grad_()
    return [q1, k1, q2, k2, v, lam]


def core(options: dict[str, Any]) -> Any:
    return lambda q1, k1, q2, k2, v, lam: differential_attention(
        q1, k1, q2, k2, v, lam=lam, **options
    )


def slow(options: dict[str, Any]) -> Any:
    return lambda *tensors: differential(*tensors, **options)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@TYPES
def test_equals_its_definition(
    causal: bool, masked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}
    assert_agree(core(options), slow(options), pairs(dtype=dtype), tolerance)


@pytest.mark.parametrize("value_width", [1, 3, 8])
@pytest.mark.parametrize(("queries", "keys"), [(5, 3), (3, 11), (1, 1), (1, 7)])
def test_widths_and_lengths_may_differ(queries: int, keys: int, value_width: int) -> None:
    tensors = pairs(queries=queries, keys=keys, value_width=value_width)
    assert_agree(core({"scale": 0.4}), slow({"scale": 0.4}), tensors, 1e-9)


@pytest.mark.parametrize("scores", [1, 30, 13 * 13, 13 * 13 * 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_blocks_do_not_matter(
    scores: int, causal: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "_SCORES", scores)
    monkeypatch.setattr(diff, "_MOST_SCORES", scores)
    monkeypatch.setattr(diff, "_CAUSAL_ROWS", 5)
    mask = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])
    options: dict[str, Any] = {"causal": causal, "key_mask": mask if masked else None}
    tensors = pairs(batch=3, heads=3, queries=13, keys=13)
    assert_agree(core(options), slow(options), tensors, 1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lam", [0.25, torch.tensor([0.25, -0.5])])
def test_two_calls_of_the_fused_kernel_give_the_same(
    lam: Any, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "_BY_BLOCKS", set())
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK}
    assert_agree(
        lambda *x: differential_attention(*x, lam=lam, **options),
        lambda *x: differential(*x, torch.as_tensor(lam).expand(2), **options),
        pairs()[:5],
        1e-9,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_plain_number_keeps_the_digits_that_the_type_holds(dtype: torch.dtype) -> None:
    q1, k1, q2, k2, v, _ = pairs(dtype=dtype)
    found, wanted = (
        differential_attention(q1, k1, q2, k2, v, lam=lam)
        for lam in (0.1, torch.tensor(0.1, dtype=dtype))
    )
    assert torch.equal(found, wanted)


def test_autocast_lowers_the_projections_only() -> None:
    torch.manual_seed(0)
    attention, x = DifferentialAttention(place()), torch.randn(2, 7, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(x, causal=True)
    torch.testing.assert_close(out.float(), attention(x, causal=True), atol=0.05, rtol=0.05)


def test_gradients_by_finite_differences() -> None:
    tensors = pairs(heads=1, queries=4, keys=4, width=2, value_width=2)
    options: dict[str, Any] = {"causal": True, "key_mask": MASK[:, :4]}
    assert torch.autograd.gradcheck(core(options), tensors)


@pytest.mark.parametrize("length", [7, 23])
def test_the_backward_pass_may_run_twice(length: int) -> None:
    tensors = pairs(queries=length, keys=length)
    loss = core({"causal": True})(*tensors).square().sum()
    once = torch.autograd.grad(loss, tensors, retain_graph=True)
    for x, y in zip(once, torch.autograd.grad(loss, tensors), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("causal", [False, True])
def test_is_full_attention_when_lambda_is_zero(causal: bool) -> None:
    q1, k1, q2, k2, v, _ = pairs()
    out = differential_attention(q1, k1, q2, k2, v, lam=0.0, causal=causal)
    want = full_attention(q1, k1, v, causal=causal)
    torch.testing.assert_close(out, want, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("lam", [0.25, torch.tensor(0.25)])
def test_lambda_may_be_one_number(lam: Any) -> None:
    q1, k1, q2, k2, v, _ = pairs()
    each = torch.full((2,), 0.25, dtype=torch.float64)
    assert torch.equal(
        differential_attention(q1, k1, q2, k2, v, lam=lam),
        differential_attention(q1, k1, q2, k2, v, lam=each),
    )


def test_weights_of_a_row_sum_to_one_less_lambda() -> None:
    q1, k1, q2, k2, v, _ = pairs()
    out = differential_attention(q1, k1, q2, k2, torch.ones_like(v), lam=0.3)
    torch.testing.assert_close(out, torch.full_like(out, 0.7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_near_the_truth(dtype: torch.dtype, causal: bool) -> None:
    tensors = [30 * x.detach() for x in pairs(dtype=dtype)]
    tensors[-1] = tensors[-1] / 30
    out = core({"causal": causal, "key_mask": MASK})(*tensors)
    assert out.dtype is dtype
    want = core({"causal": causal, "key_mask": MASK})(*(x.double() for x in tensors))
    torch.testing.assert_close(out.double(), want, atol=0.5, rtol=0.02)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        *tensors, _ = pairs(batch=1, heads=1, queries=length, keys=length, dtype=torch.float32)
        differential_attention(*tensors, lam=0.3, causal=causal).sum().backward()

    run(64)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 8


def place(**changes: Any) -> Place:
    return Place(**{"width": 12, "heads": 3, "query_length": 7, "key_length": 7, **changes})


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("causal", [False, True])
@TYPES
def test_the_module_equals_its_definition(
    depth: int, causal: bool, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    exact = DifferentialAttention(place(depth=depth)).double()
    torch.nn.init.normal_(exact.norm.weight)
    rounded = DifferentialAttention(place(depth=depth)).to(dtype)
    rounded.load_state_dict(exact.state_dict())
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_agree(
        lambda x: rounded(x, causal=causal, key_mask=MASK),
        lambda x: naive_module(exact, x, causal=causal, key_mask=MASK),
        [x.to(dtype)],
        tolerance,
    )


def test_the_module_looks_at_another_series() -> None:
    torch.manual_seed(0)
    attention = DifferentialAttention(place(key_length=11, role="cross")).double()
    x, y = torch.randn(2, 7, 12).double(), torch.randn(2, 11, 12).double()
    assert_agree(attention, lambda x, y: naive_module(attention, x, y), [x, y], 1e-9)


def test_the_lambdas_learn() -> None:
    attention = DifferentialAttention(place())
    attention(torch.randn(2, 7, 12)).square().sum().backward()
    for parameter in attention.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


def test_lambda_rises_with_depth() -> None:
    assert lambda_init(0) == pytest.approx(0.2)
    assert lambda_init(1) == pytest.approx(0.35550907)
    assert lambda_init(100) == pytest.approx(0.8)


def test_refuses_what_does_not_fit() -> None:
    q1, k1, q2, k2, v, _ = pairs()
    with pytest.raises(ValueError, match="both pairs must have the same shapes"):
        differential_attention(q1, k1, q2[..., :2], k2[..., :2], v, lam=0.1)
    with pytest.raises(ValueError, match=r"lam must be one number or \(2,\).* got \(3,\)"):
        differential_attention(q1, k1, q2, k2, v, lam=torch.zeros(3))
    with pytest.raises(ValueError, match="width=10 and heads=2, which gives heads of width 5"):
        DifferentialAttention(place(width=10, heads=2))


def test_says_what_it_amounts_to() -> None:
    said = DifferentialAttention(place()).amounts_to().text
    assert said == "diff: each head is one softmax map less lambda times another, from 0.20"


def test_naive_full_is_naive_differential_without_the_second_map() -> None:
    q1, k1, q2, k2, v, lam = pairs()
    assert torch.equal(differential(q1, k1, q2, k2, v, 0 * lam), naive.full(q1, k1, v))
