import pytest
import torch

from forecaster.attention import static_attention

from .agreement import inputs


@pytest.mark.parametrize("causal", [False, True])
def test_a_row_without_weight_is_zero(causal: bool) -> None:
    v = inputs(3, dtype=torch.float32)[2]
    lost = torch.full((2, 7, 7), -200.0, requires_grad=True)
    out = static_attention(v, lost, causal=causal)
    assert torch.equal(out, torch.zeros_like(out))
    gradients = torch.autograd.grad(out.sum(), (v, lost))
    assert all(torch.equal(each, torch.zeros_like(each)) for each in gradients)
