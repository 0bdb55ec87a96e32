from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import GatedDeltaAttention, Place, gated_delta_attention
from forecaster.attention.delta import definition

from .agreement import assert_is, defined, inputs

NONE = torch.zeros(2, 2, 7).double()


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_the_module_is_its_formula(role: Any) -> None:
    torch.manual_seed(0)
    module = GatedDeltaAttention(Place(12, 3, 7, 7, role=role)).double()
    torch.nn.init.normal_(module.norm)

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        mixed = module.convolution(module.in_projection(x), **seen)
        q, k, v = mixed.unflatten(2, (3, 3, 4)).permute(2, 0, 3, 1, 4)
        q, k = (each / each.norm(dim=3, keepdim=True) for each in (q, k))
        rate = module.decay.log_rate.exp()[:, None]
        log_decay = -rate * F.softplus(module.decay.projection(x)).mT
        beta = module.beta_projection(x).mT.sigmoid()
        real = seen["key_mask"][:, None, :, None]
        out = defined(definition)(q, k * real, v * real, log_decay, beta, **seen)
        normal = out / (out.square().mean(3, keepdim=True) + 1e-5).sqrt() * module.norm
        gated = normal.transpose(1, 2).flatten(2) * F.silu(module.gate_projection(x))
        merged: Tensor = module.out_projection(gated)
        return merged

    assert_is(module, formula)


def test_nothing_is_written_at_rate_0() -> None:
    q, k, v = inputs()
    assert not gated_delta_attention(q, k, v, NONE, NONE, causal=True).any()


def test_it_is_linear_attention_for_orthonormal_keys() -> None:
    """At gate 1 and rate 1, nothing is held yet under a new key."""
    q, _, v = inputs(width=7)
    k = torch.linalg.qr(torch.randn(2, 2, 7, 7).double()).Q
    for causal in (False, True):
        out = gated_delta_attention(q, k, v, NONE, NONE + 1, causal=causal)
        weights = (q @ k.mT).tril() if causal else q @ k.mT
        torch.testing.assert_close(out, weights @ v)


def test_what_is_written_last_under_a_key_is_read() -> None:
    """The plain delta rule, at gate 1 and rate 1, replaces a value; a sum would add both up."""
    _, _, v = inputs()
    k = F.normalize(torch.ones(2, 2, 7, 3).double(), dim=3)
    out = gated_delta_attention(k, k, v, NONE, NONE + 1, causal=True)
    torch.testing.assert_close(out, v)
