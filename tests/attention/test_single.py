from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import Place, SingleHeadAttention
from forecaster.attention.single import definition

from .agreement import assert_is, defined


@pytest.mark.parametrize(("role", "keys"), [("encoder", 7), ("decoder", 7), ("cross", 11)])
def test_the_module_is_its_formula(role: Any, keys: int) -> None:
    torch.manual_seed(0)
    module = SingleHeadAttention(Place(6, 2, 7, keys, role=role)).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)

    def formula(x: Tensor, y: Tensor, **seen: Any) -> Tensor:
        projected = x @ module.query_projection.weight.T + module.query_projection.bias
        centred = projected - projected.mean(2, keepdim=True)
        normal = centred / (centred.square().mean(2, keepdim=True) + 1e-12).sqrt()
        normal = normal * module.query_norm.weight + module.query_norm.bias
        both = module.value_projection.weight @ module.value_gate.sigmoid()
        candidate, gate = (both + module.value_projection.bias).chunk(2)
        q, k = module.query_gate.sigmoid() * normal, module.key_gate.sigmoid() * y
        v = gate.sigmoid() * candidate.tanh() * y
        return defined(definition)(q[:, None], k[:, None], v[:, None], **seen)[:, 0]

    assert_is(module, formula)
