"""The measured functions: those of the attentions, beside torch's fused kernel."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import ATTENTIONS, CATALOGUE, MultiHeadAttention
from forecaster.attention.base import Call, Core, Draw, Place
from forecaster.base.errors import UsageError

YARDSTICK = "SDPA"
"""The name of torch's fused kernel among the attentions."""

CORES: dict[str, Core] = {name: kind.core for name, kind in ATTENTIONS.items() if kind.core}


def core_of(name: str) -> Core:
    """The core of an attention, for one of another package its `attend` if it declares no core.

    Raises UsageError if it has neither.
    """
    if name in CORES:
        return CORES[name]
    kind = CATALOGUE[name]
    if kind.core is not None:
        return kind.core
    if not issubclass(kind, MultiHeadAttention):
        raise UsageError(
            f"attention '{name}' has no function to measure: derive it from MultiHeadAttention, or "
            "give it a core (docs/adding.md)"
        )
    return Core("every pair of steps", partial(_attend, kind))


def _attend(kind: type[MultiHeadAttention], q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    heads, width = q.shape[1], q.shape[3]
    module = kind(Place(heads * width, heads, q.shape[2], k.shape[2])).to(q.device, q.dtype)

    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return module.attend(q, k, v, causal=causal, key_mask=None)

    return attend, {"q": q, "k": k, "v": v}


def call_fused(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    """The call of torch's fused kernel, in the form of `Core.build` for the attentions."""

    def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return sdpa, {"q": q, "k": k, "v": v}
