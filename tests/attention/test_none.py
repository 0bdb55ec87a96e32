import torch

from forecaster.attention import NoAttention, Place


def test_returns_zeros_and_owns_nothing() -> None:
    module = NoAttention(Place(6, 2, 5, 3))
    out = module(torch.randn(2, 5, 6), torch.randn(2, 3, 6))
    assert torch.equal(out, torch.zeros(2, 5, 6))
    assert not module.state_dict()
