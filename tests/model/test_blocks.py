from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forecaster.attention import AttentionChoice, Place
from forecaster.model.blocks import DecoderLayer, Distil, EncoderLayer

from . import naive


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 21, 96])
@pytest.mark.usefixtures("float64")
def test_distilling_halves_rounding_up(length: int) -> None:
    torch.manual_seed(0)
    module, x = Distil(4), torch.randn(2, length, 4)
    nn.init.normal_(module.norm.running_mean)
    nn.init.uniform_(module.norm.running_var, 0.5, 2)
    nn.init.normal_(module.norm.weight)
    nn.init.normal_(module.norm.bias)
    got = module.eval()(x)
    assert got.shape[1] == Distil.length(length) == -(-length // 2)
    w = {f"d.{key}": value for key, value in naive.weights(module).items()}
    for b in range(2):
        torch.testing.assert_close(got[b], naive.distil(w, "d", x[b]))


def place(role: str, keys: int = 5) -> Place:
    return Place(width=6, heads=2, query_length=5, key_length=keys, role=role)


def scrambled(layer: nn.Module) -> nn.Module:
    """With norms that are not the identity, so that their place matters."""
    torch.manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.eval()


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.usefixtures("float64")
def test_encoder_layer_norms_before_or_after(norm: str, activation: str) -> None:
    layer = EncoderLayer(AttentionChoice("full").build(place("encoder")), 7, 0.3, activation, norm)
    x = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(1))
    w = naive.weights(scrambled(layer))

    def attend(y: Tensor) -> Tensor:
        return naive.attention(w, "attention", y, y, 2, causal=False)

    def think(y: Tensor) -> Tensor:
        return naive.feed_forward(w, "feed_forward", y, activation)

    def first(y: Tensor) -> Tensor:
        return naive.layer_norm(w, "norm_attention", y)

    def second(y: Tensor) -> Tensor:
        return naive.layer_norm(w, "norm_feed_forward", y)

    if norm == "pre":
        wanted = x[0] + attend(first(x[0]))
        wanted = wanted + think(second(wanted))
    else:
        wanted = first(x[0] + attend(x[0]))
        wanted = second(wanted + think(wanted))
    torch.testing.assert_close(layer(x)[0], wanted)


def test_dropout_acts_on_every_branch_in_training_only() -> None:
    cross = AttentionChoice("full").build(place("cross", keys=3))
    layer = DecoderLayer(AttentionChoice("full").build(place("decoder")), cross, 7, 0.5)
    x, memory = torch.randn(1, 5, 6), torch.randn(1, 3, 6)
    layer.eval()
    assert torch.equal(layer(x, memory), layer(x, memory))
    layer.train()
    assert not torch.equal(layer(x, memory), layer(x, memory))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("own", "other"), [("full", "full"), ("prob", "prob"), ("gau", "full")])
def test_the_last_rows_alone_are_those_of_the_whole(own: str, other: str, norm: Any) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"factor": 1} if "prob" in (own, other) else {}
    attention, cross = (
        AttentionChoice(name, options).build(Place(6, 2, 20, keys, role=role))
        for name, keys, role in ((own, 20, "decoder"), (other, 9, "cross"))
    )
    layer = DecoderLayer(attention, cross, 7, 0.1, norm=norm).double().eval()
    x, memory = (torch.randn(2, n, 6, dtype=torch.float64, requires_grad=True) for n in (20, 9))
    leaves = [x, memory, *layer.parameters()]
    whole, last = layer(x, memory)[:, -5:], layer(x, memory, last=5)
    torch.testing.assert_close(last, whole)
    given = torch.randn_like(whole)
    for part, wanted in zip(
        *(torch.autograd.grad(y, leaves, given, allow_unused=True) for y in (last, whole)),
        strict=True,
    ):
        torch.testing.assert_close(part, wanted)
