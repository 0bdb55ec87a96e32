"""Single-headed attention, step by step."""

import torch
from torch import Tensor

from forecaster.attention import SingleHeadAttention

from . import rows, softmax_row, visible


def single(
    module: SingleHeadAttention,
    x: Tensor,
    context: Tensor | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    y = x if context is None else context
    D = x.shape[2]
    projected = x @ module.query_projection.weight.T + module.query_projection.bias
    centred = projected - projected.mean(2, keepdim=True)
    normal = centred / (centred.square().mean(2, keepdim=True) + 1e-12).sqrt()
    normal = normal * module.query_norm.weight + module.query_norm.bias

    def gate(a: Tensor) -> Tensor:
        return 1 / (1 + torch.exp(-a))

    both = module.value_projection.weight @ gate(module.value_gate) + module.value_projection.bias
    g = gate(both[D:]) * torch.tanh(both[:D])
    q, k, v = (gate(module.query_gate) * normal, gate(module.key_gate) * y, g * y)

    def row(b: int, h: int, i: int) -> Tensor:
        keys = visible(i, y.shape[1], causal, key_mask, b)
        return softmax_row(q[b, i], k[b], v[b], keys, D**-0.5)

    return rows(q[:, None], v[:, None], row)[:, 0]
