import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    AFTFullAttention,
    Place,
    aft_attention,
    aft_full,
    aft_simple_attention,
)

from .agreement import assert_agree, inputs
from .memory import peak_mib
from .naive.aft_full import aft_full as slow_aft_full

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

both = pytest.mark.parametrize("causal", [False, True])
each_form = pytest.mark.parametrize("form", ["dense", "by head", "pair"])
each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)


def biases(
    form: str, queries: int, keys: int, dtype: torch.dtype = torch.float64, size: float = 1.0
) -> tuple[Tensor, ...]:
    """w of the dense forms, u and p of the factorised form."""
    shapes = {
        "dense": [(queries, keys)],
        "by head": [(2, queries, keys)],
        "pair": [(queries, 4), (keys, 4)],
    }
    generator = torch.Generator().manual_seed(4)
    drawn = [torch.rand(s, generator=generator, dtype=torch.float64) for s in shapes[form]]
    return tuple((size * (2 * x - 1)).to(dtype).requires_grad_() for x in drawn)


def attend(q: Tensor, k: Tensor, v: Tensor, *bias: Tensor, **options: Any) -> Tensor:
    first, *rest = bias
    return aft_attention(q, k, v, (first, rest[0]) if rest else first, **options)


def agree(tensors: Any, tolerance: float, **options: Any) -> None:
    assert_agree(
        lambda *tensors: attend(*tensors, **options),
        lambda *tensors: slow_aft_full(*tensors, **options),
        tensors,
        tolerance,
    )


def module(length: int = 11) -> AFTFullAttention:
    torch.manual_seed(0)
    return AFTFullAttention(Place(6, 2, length, length))


@both
@each_form
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("at_once", [1 << 20, 40], ids=["whole", "in parts"])
@each_type
def test_equals_its_definition(
    monkeypatch: pytest.MonkeyPatch,
    causal: bool,
    form: str,
    masked: bool,
    at_once: int,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    monkeypatch.setattr(aft_full, "_BIASES", at_once)
    tensors = [*inputs(3, queries=13, keys=13, dtype=dtype), *biases(form, 13, 13, dtype)]
    agree(tensors, tolerance, causal=causal, key_mask=MASK if masked else None)


@each_form
@pytest.mark.parametrize(("queries", "keys"), [(7, 13), (13, 7), (1, 5), (5, 1), (1, 1)])
def test_lengths_may_differ(form: str, queries: int, keys: int) -> None:
    tensors = [*inputs(queries=queries, keys=keys), *biases(form, queries, keys)]
    agree(tensors, 1e-9)
    agree(tensors, 1e-9, key_mask=torch.arange(keys) < torch.tensor([keys - 1, keys])[:, None])


@both
@each_type
def test_keys_of_any_size(causal: bool, dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = inputs(queries=37, keys=37, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    uniform = 100 * torch.rand(k.shape, generator=generator, dtype=torch.float64) - 50
    ramp = torch.linspace(-50, 50, 37)[:, None].to(dtype) + k.detach()
    bias = biases("dense", 37, 37, dtype, size=10.0)
    for keys in (uniform.to(dtype), ramp, -ramp, 20 * ramp, -20 * ramp):
        agree((q, keys, v, *bias), tolerance, causal=causal)


@both
@each_form
@each_type
def test_biases_of_any_size(causal: bool, form: str, dtype: torch.dtype, tolerance: float) -> None:
    tensors = inputs(queries=9, keys=9, dtype=dtype)
    agree([*tensors, *biases(form, 9, 9, dtype, size=80.0)], tolerance, causal=causal)


def test_only_rows_that_need_it_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges, average = [], aft_full._average

    def spy(rows: Any, mean: Tensor, total: Tensor) -> bool:
        ranges.append((rows.start, rows.stop))
        return average(rows, mean, total)

    monkeypatch.setattr(aft_full, "_average", spy)
    q, k, v = inputs(1, queries=16, keys=16)
    bias = torch.zeros(16, 16).double()
    aft_attention(q, k, v, bias, causal=True)
    assert ranges == [(0, 16)]
    ranges.clear()
    k = k.detach()
    k[:, :, 0] = -60.0  # only the first row would underflow relative to the others
    aft_attention(q, k, v, bias, causal=True)
    assert set(ranges) == {(0, 16), (8, 16), (0, 8), (4, 8), (0, 4), (2, 4), (0, 2), (1, 2), (0, 1)}


@both
@each_form
def test_gradients_by_finite_differences(causal: bool, form: str) -> None:
    mask = torch.tensor([[False, True, True]])
    assert torch.autograd.gradcheck(
        lambda *tensors: attend(*tensors, causal=causal, key_mask=mask),
        (*inputs(1, queries=3, keys=3, width=2), *biases(form, 3, 3)),
    )


@both
def test_a_bias_that_is_not_learned_gets_no_gradient(causal: bool) -> None:
    tensors, bias = inputs(), biases("dense", 7, 7)[0]
    learned = torch.autograd.grad(attend(*tensors, bias, causal=causal).sum(), tensors)
    fixed = torch.autograd.grad(attend(*tensors, bias.detach(), causal=causal).sum(), tensors)
    for got, want in zip(fixed, learned, strict=True):
        assert torch.equal(got, want)


@both
def test_no_biases_make_aft_simple(causal: bool) -> None:
    tensors = inputs(queries=40, keys=40)
    out = aft_attention(*tensors, torch.zeros(40, 40).double(), causal=causal)
    torch.testing.assert_close(out, aft_simple_attention(*tensors, causal=causal))


def test_biases_of_the_future_have_no_effect() -> None:
    tensors, bias = inputs(), biases("dense", 7, 7)[0].detach()
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    plain = aft_attention(*tensors, bias, causal=True)
    for value in (1000.0, torch.inf):
        changed = aft_attention(*tensors, bias.masked_fill(future, value), causal=True)
        torch.testing.assert_close(changed, plain)


@both
def test_hidden_keys_may_hold_anything(causal: bool) -> None:
    q, k, v = (x.detach() for x in inputs(1))
    options: dict[str, Any] = {"causal": causal, "key_mask": torch.arange(7)[None] != 3}
    bias = biases("dense", 7, 7)[0]
    before = aft_attention(q, k, v, bias, **options)
    k[:, :, 3], v[:, :, 3] = torch.inf, torch.nan
    assert torch.equal(aft_attention(q, k, v, bias, **options), before)


@both
def test_layout_changes_nothing(causal: bool) -> None:
    tensors, bias = inputs(), biases("dense", 7, 7)[0]
    strided = [x.detach().transpose(2, 3).contiguous().transpose(2, 3) for x in tensors]
    again = aft_attention(*strided, bias.T.contiguous().T, causal=causal)
    torch.testing.assert_close(again, aft_attention(*tensors, bias, causal=causal))


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(causal: bool, dtype: torch.dtype) -> None:
    tensors = [30 * x.detach() for x in inputs(queries=20, keys=20, dtype=dtype)]
    bias = biases("dense", 20, 20, dtype)[0]
    out = aft_attention(*tensors, bias, causal=causal)
    exact = aft_attention(*(x.float() for x in tensors), bias.float(), causal=causal)
    assert out.dtype is dtype
    assert torch.equal(out, exact.to(dtype))


def test_autocast_changes_nothing() -> None:
    tensors, pair = inputs(dtype=torch.float32), biases("pair", 7, 7, torch.float32)
    plain = attend(*tensors, *pair, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(attend(*tensors, *pair, causal=True), plain)


@pytest.mark.parametrize(
    "shapes", [[(7, 5)], [(3, 7, 7)], [(7,)], [(7, 4), (5, 4)], [(7, 4), (7, 3)], [(2, 7, 7)] * 2]
)
def test_says_which_biases_do_not_fit(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"position_bias must be \(L, S\) = \(7, 7\), .* got \("):
        aft_full.check_bias(tuple(torch.zeros(shape) for shape in shapes), 2, 7, 7)


def test_the_module_has_biases_for_its_place() -> None:
    attention = AFTFullAttention(Place(6, 2, 11, 8))
    assert attention.query_positions.shape == (11, 128)
    assert attention.key_positions.shape == (8, 128)
    assert attention(torch.randn(1, 11, 6), torch.randn(1, 8, 6)).shape == (1, 11, 6)
    for queries, keys in ((12, 8), (11, 9)):
        message = f"at most 11 queries and 8 keys, got {queries} queries and {keys} keys"
        with pytest.raises(ValueError, match=message):
            attention(torch.randn(1, queries, 6), torch.randn(1, keys, 6))
    with pytest.raises(ValueError, match=r"attention 'aft-full' .* set model\.mix=false"):
        AFTFullAttention(Place(6, 2, 7, 7, mix=True))


def test_a_shorter_series_uses_the_first_biases() -> None:
    long, short = module(11), module(7)
    state = long.state_dict()
    for name in ("query_positions", "key_positions"):
        state[name] = state[name][:7]
    short.load_state_dict(state)
    x = torch.randn(2, 7, 6)
    assert torch.equal(long(x, causal=True), short(x, causal=True))


def test_the_module_is_its_definition_between_projections() -> None:
    attention, x = module(7), torch.randn(2, 7, 6)
    with torch.no_grad():
        attention.query_positions.mul_(10)
        attention.key_positions.mul_(10)
    projections = (
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    q, k, v = (projection(x)[:, None] for projection in projections)  # one head of all features
    y = slow_aft_full(q, k, v, attention.query_positions, attention.key_positions)
    torch.testing.assert_close(attention(x), attention.out_projection(y[:, 0]))


def test_learns_all_it_owns() -> None:
    attention = module()
    attention(torch.randn(2, 11, 6)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in attention.parameters())


def test_says_what_it_amounts_to() -> None:
    assert module().amounts_to().text == "aft-full: 11 x 11 position biases of rank 11"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(
    monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    monkeypatch.setattr(aft_full, "_BIASES", 1 << 18)

    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        pair = biases("pair", length, length, torch.float32)
        aft_attention(q, k, v, (pair[0], pair[1]), causal=causal).sum().backward()

    run(64)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 2
