"""What the gated units share; the units have their own tests."""

import pytest
import torch

from forecaster.attention import AttentionChoice, Place
from forecaster.attention.common.gated import RelativeBias, SecondUnit, rotate, saturate
from forecaster.model.blocks import DecoderLayer, EncoderLayer, FeedForward


def test_rotated_products_depend_on_the_distance_alone() -> None:
    a, b = torch.randn(2, 6, generator=torch.Generator().manual_seed(0)).double()
    steps = torch.arange(9)
    products = rotate(a.expand(9, -1), steps) @ rotate(b.expand(9, -1), steps).T
    for distance in range(-8, 9):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert products.diagonal(1)[0] != products.diagonal(2)[0]


def test_rotation_keeps_lengths_and_leaves_step_zero_alone() -> None:
    x = torch.randn(3, 9, 6, generator=torch.Generator().manual_seed(0)).double()
    turned = rotate(x, torch.arange(9))
    torch.testing.assert_close(turned.norm(dim=2), x.norm(dim=2))
    assert torch.equal(turned[:, 0], x[:, 0])
    # First half with second half; the first pair turns by one radian a step.
    torch.testing.assert_close(
        turned[:, 1, 0],
        x[:, 1, 0] * torch.tensor(1.0).double().cos()
        - x[:, 1, 3] * torch.tensor(1.0).double().sin(),
    )


@pytest.mark.parametrize(("length", "parameters"), [(512, 1023), (513, 16)])
def test_long_biases_come_from_two_vectors(length: int, parameters: int) -> None:
    torch.manual_seed(0)
    bias = RelativeBias(length, 8)
    assert sum(p.numel() for p in bias.parameters()) == parameters
    assert bias().shape == (2 * length - 1,)
    assert 0.01 < bias().std() < 0.03


def test_float16_saturates_where_it_would_overflow() -> None:
    big = torch.tensor([torch.inf, -torch.inf, 1.0], dtype=torch.float16)
    assert saturate(big).tolist() == [65504.0, -65504.0, 1.0]
    assert torch.equal(saturate(big.float()), big.float())


@pytest.mark.parametrize("name", ["gau", "flash"])
def test_a_second_unit_stands_for_the_feed_forward(name: str) -> None:
    torch.manual_seed(0)
    plain, paired = (
        AttentionChoice(name, {"gau_replaces_ffn": replaces}) for replaces in (False, True)
    )
    place = Place(8, 2, 7, 7)
    assert isinstance(EncoderLayer(plain.build(place), 16, 0.0).feed_forward, FeedForward)
    layer = EncoderLayer(paired.build(place), 16, 0.0)
    assert isinstance(layer.feed_forward, SecondUnit)
    assert layer(torch.randn(2, 7, 8)).shape == (2, 7, 8)

    cross = AttentionChoice("full").build(Place(8, 2, 7, 5, role="cross"))
    decoder = DecoderLayer(paired.build(Place(8, 2, 7, 7, role="decoder")), cross, 16, 0.0).eval()
    x, memory = torch.randn(2, 7, 8), torch.randn(2, 5, 8)
    changed = torch.cat([x[:, :4], 5 + x[:, 4:]], dim=1)
    same = (decoder(x, memory) - decoder(changed, memory))[:, :4]
    assert same.abs().max() < 1e-6  # the second unit does not see the future either
