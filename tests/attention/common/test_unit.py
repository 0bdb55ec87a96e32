"""The unit around gau and flash."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from forecaster.attention import AttentionChoice, Place, flash, gau
from forecaster.attention.common.rotary import rotate
from forecaster.attention.common.unit import RelativeBias
from forecaster.model.blocks import DecoderLayer, EncoderLayer, FeedForward
from tests.attention.agreement import defined


@pytest.mark.parametrize(("length", "shape"), [(512, (1023,)), (513, (2, 128))])
def test_long_biases_come_from_two_vectors(length: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    bias = RelativeBias(length, 128)
    assert bias.weight.shape == shape
    w = bias().detach()
    assert 0.01 < w.std() < 0.04
    if len(shape) == 2:
        steps = torch.arange(length)
        a, b = (rotate(x.expand(length, -1)) for x in bias.weight.detach())
        wanted = w[steps - steps[:, None] + length - 1]
        torch.testing.assert_close(wanted, a @ b.T, atol=1e-5, rtol=0)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("name", ["gau", "flash"])
def test_the_unit_is_its_formula(name: str, rotary: bool) -> None:
    torch.manual_seed(0)
    own: dict[str, Any] = {} if name == "gau" else {"chunk_size": 8, "linear_scale": 0.5}
    options = {"key_width": 4, "rotary": rotary, **own}
    unit, x = AttentionChoice(name, options).build(Place(6, 2, 23, 23)), torch.randn(3, 23, 6)
    torch.nn.init.normal_(unit.beta)
    layers = unit.gate_projection, unit.value_projection, unit.shared_projection
    u, v, z = (F.silu(layer(x)) for layer in layers)
    steps = torch.arange(23)
    copies = [gamma * z + beta for gamma, beta in zip(unit.gamma, unit.beta, strict=True)]
    copies = [(rotate(each) if rotary else each)[:, None] for each in copies]
    bias = unit.relative_bias()
    if name == "gau":
        out = defined(gau.definition)(*copies, v[:, None], relative_bias=bias, causal=True)
    else:
        bias = bias[steps[:8] - steps[:8, None] + 7]
        tensors = *copies[::2], *copies[1::2], v[:, None]
        out = defined(flash.definition)(*tensors, bias=bias, causal=True, **own)
    want = unit.out_projection(u * out[:, 0])
    torch.testing.assert_close(unit(x, causal=True), want, atol=1e-6, rtol=1e-5)


def test_gamma_starts_where_the_option_says() -> None:
    for start, option in ((1.0, "one"), (0.0, "paper")):
        unit = AttentionChoice("gau", {"gamma_init": option}).build(Place(6, 2, 7, 7))
        assert abs(unit.gamma.mean() - start) < 0.01


OWN = {"gau": {"normalizer": "ns"}, "flash": {"chunk_size": 4, "linear_scale": 0.5}}


@pytest.mark.parametrize("name", OWN)
def test_a_second_unit_stands_for_the_feed_forward(name: str) -> None:
    torch.manual_seed(0)
    plain = AttentionChoice(name, {})
    paired = AttentionChoice(name, {"gau_replaces_ffn": True, "key_width": 4, **OWN[name]})
    place = Place(8, 2, 7, 7)
    assert isinstance(EncoderLayer(plain.build(place), 16, 0.0).feed_forward, FeedForward)
    second = EncoderLayer(paired.build(place), 16, 0.0).feed_forward.attention
    assert {option: getattr(second, option) for option in OWN[name]} == OWN[name]
    assert (second.gamma.shape[1], second.feed_forward()) == (4, None)
    cross = AttentionChoice("full").build(Place(8, 2, 7, 5, role="cross"))
    decoder = DecoderLayer(paired.build(Place(8, 2, 7, 7, role="decoder")), cross, 16, 0.0).eval()
    x, memory = torch.randn(2, 7, 8), torch.randn(2, 5, 8)
    changed = torch.cat([x[:, :4], 5 + x[:, 4:]], dim=1)
    same = (decoder(x, memory) - decoder(changed, memory))[:, :4]
    assert same.abs().max() < 1e-6  # the second unit does not see the future either
