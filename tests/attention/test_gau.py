from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import GatedAttentionUnit, Place, gau, relu_squared_attention
from forecaster.attention.common import gated

from .agreement import assert_agree, inputs, value_and_gradients
from .naive.gau import relu_squared

# 9 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(9) % 3 > 0, torch.arange(9) > 6, torch.zeros(9) > 0])
BIASES = {"none": (), "bias": (9, 9), "biases": (2, 9, 9), "line": (21,), "lines": (2, 17)}


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def small_tiles(monkeypatch: pytest.MonkeyPatch, side: int = 4) -> None:
    """Many tiles, and one head at a time, as for long series."""
    monkeypatch.setattr(gau, "_tile", lambda x: side)
    monkeypatch.setattr(gated, "scores_at_once", lambda x: 1)


def module(length: int = 23, **options: Any) -> GatedAttentionUnit:
    torch.manual_seed(0)
    return GatedAttentionUnit(Place(6, 2, length, length), **{"key_width": 4, **options}).eval()


def series(length: int = 23) -> Tensor:
    return torch.randn(3, length, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", BIASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("tiled", "dtype", "tolerance"),
    [
        (False, torch.float64, 1e-9),
        (True, torch.float64, 1e-9),
        (True, torch.float32, 1e-4),
    ],
)
def test_equals_its_definition(
    kind: str,
    causal: bool,
    masked: bool,
    tiled: bool,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tiled:
        small_tiles(monkeypatch)
    tensors = [*inputs(3, queries=9, keys=9, value_width=5, dtype=dtype)]
    name = "relative_bias" if kind.startswith("line") else "bias"
    if kind != "none":
        tensors.append(draw(*BIASES[kind], dtype=dtype))
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK if masked else None}

    def fast(q: Tensor, k: Tensor, v: Tensor, *b: Tensor) -> Tensor:
        return relu_squared_attention(q, k, v, **({name: b[0]} if b else {}), **options)

    def slow(q: Tensor, k: Tensor, v: Tensor, *b: Tensor) -> Tensor:
        return relu_squared(q, k, v, **({name: b[0]} if b else {}), **options)

    assert_agree(fast, slow, tensors, tolerance)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7), (7, 1), (11, 5), (5, 11)])
def test_any_lengths(heads: int, queries: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [*inputs(2, heads, queries, keys), draw(2 * max(queries, keys) - 1)]

    def fast(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return relu_squared_attention(q, k, v, relative_bias=w, normalizer="ns")

    def slow(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return relu_squared(q, k, v, relative_bias=w, normalizer="ns")

    assert_agree(fast, slow, tensors, 1e-9)
    small_tiles(monkeypatch)
    assert_agree(fast, slow, tensors, 1e-9)


@pytest.mark.parametrize("side", [3, 4, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_tile_borders(side: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [*inputs(1, queries=8, keys=8), draw(15)]

    def core(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return relu_squared_attention(q, k, v, relative_bias=w, causal=causal)

    small_tiles(monkeypatch, side)
    assert_agree(core, lambda *x: relu_squared(*x[:3], None, x[3], causal), tensors, 1e-9)


@pytest.mark.parametrize("length", [383, 384, 385, 769])
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_come_in_tiles(
    length: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [*inputs(1, 1, length, length), draw(2 * length - 1)]

    def core(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return relu_squared_attention(q, k, v, relative_bias=w, causal=causal)

    tiled = value_and_gradients(core, tensors)
    monkeypatch.setattr(gau, "_tile", lambda x: length)
    for x, y in zip(tiled, value_and_gradients(core, tensors), strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("masked", [False, True])
def test_normalizer_ns(masked: bool) -> None:
    mask = MASK if masked else None

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return relu_squared_attention(q, k, v, normalizer="ns", key_mask=mask)

    def slow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return relu_squared(q, k, v, normalizer="ns", key_mask=mask)

    assert_agree(core, slow, inputs(3, queries=9, keys=9), 1e-9)


@pytest.mark.parametrize("shape", [(4, 4), (2, 7)])
@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(shape: tuple[int, ...], causal: bool) -> None:
    name = "bias" if shape == (4, 4) else "relative_bias"
    b = draw(*shape).requires_grad_()

    def core(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return relu_squared_attention(q, k, v, causal=causal, **{name: b})

    assert torch.autograd.gradcheck(core, (*inputs(1, 2, 4, 4, 1), b))


def test_the_relative_bias_is_the_bias_of_the_distance() -> None:
    q, k, v = inputs(queries=9, keys=9)
    w, steps = draw(2 * 12 - 1), torch.arange(9)
    dense = w[steps - steps[:, None] + 11]
    torch.testing.assert_close(
        relu_squared_attention(q, k, v, relative_bias=w),
        relu_squared_attention(q, k, v, bias=dense),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_the_truth(dtype: torch.dtype) -> None:
    q, k, v = (3 * x for x in inputs(queries=60, keys=60, width=64, dtype=dtype))
    out = relu_squared_attention(q, k, v)
    want = relu_squared_attention(*(x.detach().double() for x in (q, k, v)))
    assert out.dtype is dtype
    torch.testing.assert_close(out.double(), want, atol=0.02 * want.abs().max().item(), rtol=0.02)


def test_products_that_overflow_half_precision_do_not_before_they_are_divided() -> None:
    q = torch.full((1, 1, 64, 64), 40.0, dtype=torch.float16)  # q·k = 102400, q·k / n = 1600
    v = torch.full((1, 1, 64, 1), 1e-5, dtype=torch.float16)
    out = relu_squared_attention(q, q, v)
    torch.testing.assert_close(out.float(), torch.full((1, 1, 64, 1), 1638.4), rtol=0.01, atol=0)


def test_float16_saturates() -> None:
    q = torch.full((1, 1, 8, 64), 30.0, dtype=torch.float16)
    assert (relu_squared_attention(q, q, q) == torch.finfo(torch.float16).max).all()


def test_autocast_keeps_the_scores_exact() -> None:
    q, k, v = (x.float() for x in inputs(queries=40, keys=40))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = relu_squared_attention(q, k, v)
        out.sum().backward()
    assert torch.equal(out, relu_squared_attention(q, k, v))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": torch.zeros(7, 8)}, r"\(7, 7\) or \(H, L, S\) = \(2, 7, 7\), got \(7, 8\)"),
        ({"bias": torch.zeros(3, 7, 7)}, r"got \(3, 7, 7\)"),
        ({"relative_bias": torch.zeros(11)}, r"H = 2 and M >= 7, got \(11,\)"),
        ({"relative_bias": torch.zeros(14)}, r"got \(14,\)"),
        ({"relative_bias": torch.zeros(3, 13)}, r"got \(3, 13\)"),
        ({"bias": torch.zeros(7, 7), "relative_bias": torch.zeros(13)}, "not both"),
    ],
)
def test_refuses_biases_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relu_squared_attention(*inputs(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_width": 3}, "key_width must be even, for its two halves, got 3"),
        ({"expansion": 0}, "expansion must be at least 1, got expansion=0"),
    ],
)
def test_refuses_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(**options)


def test_refuses_to_mix_heads_it_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"set model\.mix=false"):
        GatedAttentionUnit(Place(6, 2, 7, 7, mix=True))


def test_refuses_more_steps_than_its_bias_was_built_for() -> None:
    with pytest.raises(ValueError, match="at most 23 steps, got 24"):
        module()(series(24))
    assert module()(series(5)).shape == (3, 5, 6)


@pytest.mark.parametrize("rotary", [False, True])
def test_the_unit_is_its_formula(rotary: bool) -> None:
    unit, x = module(rotary=rotary), series()
    silu = torch.nn.functional.silu
    u, v, z = (
        silu(projection(x))
        for projection in (unit.gate_projection, unit.value_projection, unit.shared_projection)
    )
    with torch.no_grad():
        unit.beta.copy_(draw(2, 4))
    q, k = (gamma * z + beta for gamma, beta in zip(unit.gamma, unit.beta, strict=True))
    if rotary:
        steps = torch.arange(23)[:, None]

        def turn(x: Tensor) -> Tensor:
            angles = steps / torch.tensor([1.0, 100.0])
            pairs = torch.complex(x[..., :2], x[..., 2:]) * torch.exp(1j * angles)
            return torch.cat([pairs.real, pairs.imag], dim=-1)

        q, k = turn(q), turn(k)
    attended = relu_squared(
        q[:, None], k[:, None], v[:, None], relative_bias=unit.relative_bias(), causal=True
    )
    want = unit.out_projection(u * attended[:, 0])
    torch.testing.assert_close(unit(x, causal=True), want, atol=1e-6, rtol=1e-5)


def test_the_unit_is_alive_at_the_start() -> None:
    torch.manual_seed(0)
    unit, kept = GatedAttentionUnit(Place(64, 1, 1024, 1024)), []
    unit.out_projection.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    x = torch.randn(1, 1024, 64)
    (unit(x) - 1).square().mean().backward()
    assert kept[0].abs().mean() > 1e-4
    assert unit.gamma.grad is not None
    assert unit.gamma.grad.abs().mean() > 1e-9


def test_gamma_starts_where_the_option_says() -> None:
    for start, option in ((1.0, "one"), (0.0, "paper")):
        unit = module(key_width=128, gamma_init=option)
        assert abs(unit.gamma.mean() - start) < 0.01
        assert 0.01 < unit.gamma.std() < 0.03
        assert (unit.beta == 0).all()


def test_the_bias_of_long_series_follows_from_two_vectors() -> None:
    torch.manual_seed(0)
    short, long = gated.RelativeBias(512, 128), gated.RelativeBias(513, 128)
    assert short.weight.shape == (1023,)
    assert short() is short.weight
    assert long.weight.shape == (2, 128)
    w, (a, b) = long().detach(), long.weight.detach()
    assert w.shape == (1025,)
    positions = torch.arange(513)
    dense = (
        gated.rotate(a.expand(513, -1), positions) @ gated.rotate(b.expand(513, -1), positions).T
    )
    torch.testing.assert_close(w[positions - positions[:, None] + 512], dense, atol=1e-5, rtol=0)
    assert 0.01 < w.std() < 0.04


def test_long_series_use_a_bias_that_learns() -> None:
    unit = module(513)
    unit(series(513)).square().sum().backward()
    gradient = unit.relative_bias.weight.grad
    assert gradient is not None
    assert gradient.shape == (2, 4)
    assert (gradient != 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_second_unit_can_replace_the_feed_forward(causal: bool) -> None:
    assert module().feed_forward() is None
    place = Place(6, 2, 23, 23, role="decoder" if causal else "encoder")
    torch.manual_seed(0)
    unit = GatedAttentionUnit(place, normalizer="ns", key_width=4, gau_replaces_ffn=True)
    second = unit.feed_forward()
    assert isinstance(second, gated.SecondUnit)
    assert isinstance(second.attention, GatedAttentionUnit)
    assert second.attention.normalizer == "ns"
    assert second.attention.feed_forward() is None
    assert not torch.equal(second.attention.gamma, unit.gamma)
    x = series()
    changed = torch.cat([x[:, :9], 5 + x[:, 9:]], dim=1)
    same = torch.equal(second(x)[:, :9], second(changed)[:, :9])
    assert same is causal


def test_says_what_it_amounts_to() -> None:
    assert module().amounts_to().text == "gau: squared ReLU over all 23 keys"
