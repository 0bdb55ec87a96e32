"""Fastformer: additive attention by one global query and one global key per head.

Wu et al., "Fastformer: Additive Attention Can Be All You Need", 2021, equations 2 to 7.

    α_i = (w_q·q_i + b_q) / √E        g = Σ_i softmax_i(α) q_i        global query
    p_i = g ⊙ k_i
    β_i = (w_k·p_i + b_k) / √E        κ = Σ_i softmax_i(β) p_i        global key
    u_i = κ ⊙ v_i                     the module returns W_t u_i + b_t + q_i

for every head, on its slice of q, k, v; but w_q and w_k weight the features of all heads, as in the
authors' code (the paper's notation has one vector per head, which the core also takes). The module
takes v = q by default, as the authors do. All W and w start as N(0, 0.02²), all b as 0.

Time and memory O(L·H·E): p is never formed, because w_k·p_i = (w_k ⊙ g)·k_i. It is never full
attention: no query is compared with a key. The paper has no causal form; ours replaces both sums by
prefix softmax means, g_t over i <= t and κ_t over the p_i = g_i ⊙ k_i with i <= t, so each key
meets the global query as known at its time. That is strictly causal and linear; its last row
differs from the last row without causal.

Padded steps have no weight; a series that is all padding has u = 0, where the authors' has a mean.
"""

from collections.abc import Callable
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forecaster.attention.base import About, Call, Core, Draw, Place, Seen, SelfAttention
from forecaster.attention.common.definitions import softmax
from forecaster.attention.common.kernels import accumulator, check_inputs, check_probability
from forecaster.attention.common.multihead import merge_heads, split_heads
from forecaster.attention.common.prefix import prefix_softmax_mean
from forecaster.base.shapes import Bool, Float


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    *,
    seen: Tensor,
    query_bias: Tensor | None = None,
    key_bias: Tensor | None = None,
) -> Tensor:
    """u_i = κ_i ⊙ v_i, with a row of softmax weights for every step, causal or not."""
    E = q.shape[3]

    def pool(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """For each step, Σ_i softmax_i((w·x_i + b) / √E) x_i over the steps i that it sees."""
        per_head = weight.shape[1] == E  # the weight is for the features of its own head
        features = x if per_head else merge_heads(x)[:, None]
        scores = (features * weight[:, None]).sum(3)[:, :, None]
        scores = scores if bias is None else scores + bias[:, None, None]
        return softmax(E**-0.5 * scores, seen) @ x

    g = pool(q, query_weight, query_bias)
    return pool(g * k, key_weight, key_bias) * v


def additive_attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    query_weight: Float[Tensor, "H W"],
    key_weight: Float[Tensor, "H W"],
    *,
    query_bias: Float[Tensor, " H"] | None = None,
    key_bias: Float[Tensor, " H"] | None = None,
    causal: bool = False,
    key_mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B H L E"]:
    """u of the module's formula: before the last transform and the residual.

    The weights are (H, H·E), over the features of all heads, or (H, E), over those of one head.
    `key_mask` True is a real step; others enter no mean, and a step that sees none gives 0. Raises
    ValueError when the shapes do not fit.
    """
    check_inputs(q, k, v, causal, key_mask)
    H, E = q.shape[1], q.shape[3]
    if not q.shape == k.shape == v.shape:
        raise ValueError(
            "fastformer relates a series to itself: q, k and v must have the same shape, got "
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        )
    kind, given = accumulator(v.dtype), v.dtype
    with torch.autocast(v.device.type, enabled=False):
        q, k, v = (x.to(kind).transpose(1, 2).flatten(2) for x in (q, k, v))
        if key_mask is not None:
            q, k = (x.masked_fill(~key_mask[:, :, None], 0.0) for x in (q, k))
        w_q, b_q = scorer("query", query_weight, query_bias, H, E, kind)
        w_k, b_k = scorer("key", key_weight, key_bias, H, E, kind)
        if causal:
            g = _prefix_pool(q, w_q, b_q, key_mask)
            kappa = _prefix_pool(g * k, w_k, b_k, key_mask)
        else:
            g = _pool(q, w_q, b_q, key_mask)
            kappa = g * _pool(k, w_k * g, b_k, key_mask)
        return split_heads(kappa * v, H).to(given)


def _call(q: Tensor, k: Tensor, v: Tensor, draw: Draw) -> Call:
    heads, width = q.shape[1], q.shape[1] * q.shape[3]
    weights = {name: draw(heads, width) / width**0.5 for name in ("query_weight", "key_weight")}
    return additive_attention, {"q": q, "k": k, "v": v, **weights}


class FastformerAttention(SelfAttention):
    """`additive_attention` between projections, with the projected query added to its output.

    With `share_value`, v = q and there is no W_v. `dropout` of W_t u + b_t acts in training only.
    """

    about = About(
        "Wu et al., Fastformer", 2021, "L·D", causal="strict, ours",
        weights="content",
        no_export="on a CPU, its causal form chooses its next operation by values",
    )  # fmt: skip
    core = Core("summaries of many steps", _call)

    def __init__(self, place: Place, *, share_value: bool = True, dropout: float = 0.0) -> None:
        super().__init__(place)
        width = place.width
        self.query_projection = nn.Linear(width, width)
        self.key_projection = nn.Linear(width, width)
        self.value_projection = None if share_value else nn.Linear(width, width)
        self.query_score = nn.Linear(width, place.heads)
        self.key_score = nn.Linear(width, place.heads)
        self.out_projection = nn.Linear(width, width)
        self.dropout = check_probability(dropout=dropout)
        for module in self.children():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        projected: Tensor = self.query_projection(query)
        q, k = (split_heads(x, self.place.heads) for x in (projected, self.key_projection(query)))
        v = q
        if self.value_projection is not None:
            v = split_heads(self.value_projection(query), self.place.heads)
        a, b = self.query_score, self.key_score
        u = additive_attention(
            q, k, v, a.weight, b.weight, query_bias=a.bias, key_bias=b.bias, **seen
        )
        out = self.out_projection(merge_heads(u, self.place.mix))
        return F.dropout(out, self.dropout, self.training) + projected


def scorer(
    name: str, weight: Tensor, bias: Tensor | None, H: int, E: int, kind: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """The weight for all features (H, H·E) and the bias (H,), both divided by √E."""
    if weight.shape not in ((H, H * E), (H, E)):
        raise ValueError(
            f"{name}_weight must be (H, H·E) = {(H, H * E)} or (H, E) = {(H, E)}, got "
            f"{tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != (H,):
        raise ValueError(f"{name}_bias must be (H,) = {(H,)}, got {tuple(bias.shape)}")
    if weight.shape != (H, H * E):
        weight = torch.block_diag(*weight[:, None])
    return weight.to(kind) * E**-0.5, None if bias is None else bias.to(kind) * E**-0.5


def _prefix_pool(x: Tensor, weight: Tensor, bias: Tensor | None, key_mask: Tensor | None) -> Tensor:
    """x (B, L, D) averaged up to each step, every head with its own scores: (B, L, D)."""
    H = weight.shape[0]
    score = F.linear(x, weight, bias).mT[..., None]
    mean = prefix_softmax_mean(score, split_heads(x, H), key_mask)
    return merge_heads(mean)


class _Pool(torch.autograd.Function):
    """x (B, L, D) averaged over time, every head with its own scores x·w + b: (B, 1, D).

    `weight` is (H, D), or (B, H, D) with a weight for each series. It is a single function, because
    autograd would write and add several tensors of the size of x.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, key_mask: Tensor | None
    ) -> Tensor:
        score = x @ weight.mT
        if bias is not None:
            score += bias
        if key_mask is not None:
            score.masked_fill_(~key_mask[:, :, None], torch.finfo(score.dtype).min)
        p = score.softmax(1)
        if key_mask is not None:
            p *= key_mask[:, :, None]
        ctx.save_for_backward(x, weight, bias, p)
        return (p.mT @ x).mul_(_own(weight)).sum(1, keepdim=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, p = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            grad_mean = grad * _own(weight)
            grad_p = x @ grad_mean.mT
            grad_score = p * (grad_p - (p * grad_p).sum(1, keepdim=True))
            grad_x = torch.cat([p, grad_score], 2) @ torch.cat(
                [grad_mean, weight.expand_as(grad_mean)], 1
            )
            grad_weight = grad_score.mT @ x
        if weight.ndim == 2:
            grad_weight = grad_weight.sum(0)
        grad_bias = None if bias is None else grad_score.sum((0, 1))
        return grad_x, grad_weight, grad_bias, None


_pool: Callable[..., Tensor] = _Pool.apply


def _own(weight: Tensor) -> Tensor:
    """(H, D): 1 where the feature belongs to the head."""
    H, D = weight.shape[-2:]
    return torch.eye(H, dtype=weight.dtype, device=weight.device).repeat_interleave(D // H, 1)
