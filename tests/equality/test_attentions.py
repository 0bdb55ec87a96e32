"""Outputs and gradients of every attention are those of release 0.2.0."""

from functools import partial
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from forecaster.attention import ATTENTIONS, AttentionChoice, Place, Role
from tests.equality.cases import RECORDS

FILE = RECORDS / "attentions.safetensors"
BATCH, HEADS, WIDTH, QUERIES, KEYS = 2, 3, 12, 23, 17
OPTIONS: dict[str, dict[str, Any]] = {
    "prob": {"factor": 2}, "lsh": {"bucket_size": 5}, "topk": {"topk": 3},
}  # fmt: skip
ROLES: tuple[Role, ...] = ("encoder", "decoder", "cross")
CLOSE = 1e-5
"""How far a number may be, relative to the largest of its tensor."""


def results(name):
    """The output in each place, the gradients of its inputs, and two sums over that of each
    parameter; the decoder is causal, and the decoder and the cross attention have a key mask."""
    found = {}
    for role in ROLES:
        keys = KEYS if role == "cross" else QUERIES
        torch.manual_seed(0)
        try:
            place = Place(WIDTH, HEADS, QUERIES, keys, role=role)
            module = AttentionChoice(name, OPTIONS.get(name, {})).build(place).eval()
        except ValueError:
            assert role == "cross", "it has no cross form"
            continue
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(1))
        sizes = [QUERIES, KEYS] if role == "cross" else [QUERIES]
        inputs = [draw(BATCH, size, WIDTH).requires_grad_() for size in sizes]
        mask = None if role == "encoder" else torch.arange(keys) < torch.tensor([[keys], [11]])
        out = module(*inputs, causal=place.causal, key_mask=mask)
        loss = (out * draw(*out.shape)).sum() + 0 * inputs[0].sum()  # not all look at their input
        wanted = {
            **dict(zip(("query", "context"), inputs, strict=False)),
            **dict(module.named_parameters()),
        }
        gradients = torch.autograd.grad(
            loss, [*wanted.values()], allow_unused=True, materialize_grads=True
        )
        found[f"{name}/{role}/output"] = out.detach()
        for key, gradient in zip(wanted, gradients, strict=True):
            if key not in ("query", "context"):
                gradient = torch.stack([gradient.norm(), (gradient * draw(*gradient.shape)).sum()])
            found[f"{name}/{role}/{key}"] = gradient
    return found


@pytest.mark.parametrize("name", ATTENTIONS)
def test_it_gives_the_same(name):
    expected = {key: x for key, x in load_file(FILE).items() if key.startswith(f"{name}/")}
    found = results(name)
    assert found.keys() == expected.keys() != set()
    for key, tensor in expected.items():
        assert found[key].shape == tensor.shape, key
        away = float((found[key] - tensor).abs().max() / tensor.abs().max().clamp(min=0.1))
        assert away <= CLOSE, f"{key} is {away:.1e} away"
