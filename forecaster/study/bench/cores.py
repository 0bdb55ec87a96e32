"""The measured functions: those of the attentions, beside torch's fused kernel."""

import torch.nn.functional as F
from torch import Tensor

from forecaster.attention import ATTENTIONS
from forecaster.attention.base import Call, Core, Draw

YARDSTICK = "SDPA"
"""The name of torch's fused kernel among the attentions."""

CORES: dict[str, Core] = {name: kind.core for name, kind in ATTENTIONS.items() if kind.core}


def call_fused(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    """The call of torch's fused kernel, in the form of `Core.build` for the attentions."""

    def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return sdpa, {"q": q, "k": k, "v": v}
