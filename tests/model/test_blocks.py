from typing import Any

import pytest
import torch

from forecaster.attention import AttentionChoice, Place
from forecaster.model.blocks import DecoderLayer, Distil


def place(role: str, keys: int = 5) -> Place:
    return Place(width=6, heads=2, query_length=5, key_length=keys, role=role)


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


@pytest.mark.parametrize(("length", "half"), [(1, 1), (2, 1), (3, 2), (8, 4), (21, 11)])
def test_distilling_halves_rounding_up(length: int, half: int) -> None:
    """test_informer.py compares the values with loops."""
    assert Distil(4)(torch.randn(2, length, 4)).shape[1] == Distil.length(length) == half


def test_dropout_acts_on_every_branch_in_training_only() -> None:
    cross = AttentionChoice("full").build(place("cross", keys=3))
    layer = DecoderLayer(AttentionChoice("full").build(place("decoder")), cross, 7, 0.5)
    x, memory = torch.randn(1, 5, 6), torch.randn(1, 3, 6)
    layer.eval()
    assert torch.equal(layer(x, memory), layer(x, memory))
    layer.train()
    assert not torch.equal(layer(x, memory), layer(x, memory))
