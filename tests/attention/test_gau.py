from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import GatedAttentionUnit, Place, gau, relu_squared_attention
from forecaster.attention.common import gated

from .agreement import inputs


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def module(length: int = 23, **options: Any) -> GatedAttentionUnit:
    torch.manual_seed(0)
    return GatedAttentionUnit(Place(6, 2, length, length), **{"key_width": 4, **options}).eval()


def series(length: int = 23) -> Tensor:
    return torch.randn(3, length, 6, generator=torch.Generator().manual_seed(1))


def test_products_that_overflow_half_precision_do_not_before_they_are_divided() -> None:
    q = torch.full((1, 1, 64, 64), 40.0, dtype=torch.float16)  # q·k = 102400, q·k / n = 1600
    v = torch.full((1, 1, 64, 1), 1e-5, dtype=torch.float16)
    out = relu_squared_attention(q, q, v)
    torch.testing.assert_close(out.float(), torch.full((1, 1, 64, 1), 1638.4), rtol=0.01, atol=0)


def test_float16_saturates() -> None:
    q = torch.full((1, 1, 8, 64), 30.0, dtype=torch.float16)
    assert (relu_squared_attention(q, q, q) == torch.finfo(torch.float16).max).all()


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
    attended = gau.definition(
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
