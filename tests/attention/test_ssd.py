from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import (
    Place,
    StateSpaceAttention,
    retention_attention,
    state_space_attention,
)
from forecaster.attention.ssd import definition

from .agreement import assert_is, defined, inputs


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_the_module_is_its_formula(role: Any) -> None:
    torch.manual_seed(0)
    module = StateSpaceAttention(Place(12, 3, 7, 7, role=role), state=5).double()
    torch.nn.init.normal_(module.skip)
    torch.nn.init.normal_(module.norm)

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        real = seen["key_mask"][..., None]
        mixed = module.convolution(module.in_projection(x), **seen)
        drive, b, c = mixed.split([12, 5, 5], 2)
        step = F.softplus(module.decay.projection(x)).mT
        log_decay = -module.decay.log_rate.exp()[:, None] * step
        values = (drive * real).unflatten(2, (3, 4)).transpose(1, 2)
        keys, queries = (each[:, None].expand(-1, 3, -1, -1) for each in (b, c))
        core = defined(definition)
        out = core(queries, keys, step[..., None] * values, log_decay, **seen)
        out = out + module.skip[:, None, None] * values
        gated = out.transpose(1, 2).flatten(2) * F.silu(module.gate_projection(x))
        normal = gated / (gated.square().mean(2, keepdim=True) + 1e-5).sqrt() * module.norm
        merged: Tensor = module.out_projection(normal)
        return merged

    assert_is(module, formula)


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_retention_where_the_decay_is_constant(causal: bool) -> None:
    q, k, v = inputs(queries=70, keys=70)
    decay = torch.tensor([0.9, 0.5]).double()
    seen = {"causal": causal, "key_mask": torch.arange(70).expand(2, 70) < 61}
    out = state_space_attention(q, k, v, decay.log()[:, None].expand(2, 2, 70), **seen)
    want = retention_attention(q, k, v, decay=decay, scale=1.0, **seen)
    torch.testing.assert_close(out, want)
