"""Linear attention with decay and corrections, in chunks: a state S_t (E x Ev) for each head.

    S_t = a_t S_{t-1} + k_t u_tᵀ        out_t = S_tᵀ q_t        u_t = v_t, or, with β,
    u_t = β_t (v_t - a_t S_{t-1}ᵀ k_t)                          (the delta rule)

Within a chunk of C steps that begins with the state S, with g_t the sum of ln a up to t,

    out = (q e^g) S + (q kᵀ ⊙ Γ) u            Γ_tj = e^(g_t - g_j) for j <= t
    u = v, or the solution of (I + β (k kᵀ ⊙ Γ) for j < t) u = β (v - (k e^g) S)     (the WY form)
    S' = e^(g_C) S + (k e^(g_C - g))ᵀ u

so all but the states is a few products of matrices over all chunks at once, and one step per chunk
carries the state on. Time O(L·C·(E + Ev) + L·E·Ev), memory O(L·(C + E + Ev)). Yang et al., "Gated
Delta Networks", ICLR 2025, section 3; Sun et al., "Retentive Network", 2023, section 2.3; Dao and
Gu, "Transformers are SSMs", ICML 2024, section 6.

Exponents, and ln a, are never positive. They are cut off at -80, where weights are negligible and
`exp` would be slow on a CPU.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forecaster.attention.base import Place
from forecaster.attention.common import kernels

_CHUNK = 48  # about as wide as a usual head; 32 and 64 took a tenth longer (measured)
_LAUNCHED = 128  # of a GPU, on which the steps from chunk to chunk wait for launches
_MOST = 64  # chunks at a time, because the states of all are computed from those of all before
_SCORES = 1 << 18  # scores of chunks computed at a time, to stay in a CPU's cache
_STEP = 0.1  # Δ at the start, the largest of the authors'
_LEAST = -80.0  # of an exponent and of ln a


def recurrent(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor | None = None,
    *,
    causal: bool,
    key_mask: Tensor | None,
    scale: float = 1.0,
) -> Tensor:
    """scale · out of the module's docstring, in float32 at least, in the type of v.

    q, k (B, H, L, E), v (B, H, L, Ev), log_decay = ln a <= 0 and beta (B, H, L). A step that
    `key_mask` (B, L) hides writes nothing and decays nothing. Without `causal`, the recurrence also
    runs from the end, and what a step writes itself counts once. Raises ValueError when the shapes
    do not fit, or for L != S.
    """
    kernels.check_self_inputs(q, k, v, causal, key_mask)
    for name, x in (("log_decay", log_decay), ("beta", beta)):
        if x is not None and x.shape != q.shape[:3]:
            raise ValueError(
                f"{name} must be (B, H, L) = {tuple(q.shape[:3])}, got {tuple(x.shape)}"
            )
    kind, dtype = kernels.accumulator(v.dtype), v.dtype
    q, k, v, log_decay = (x.to(kind) for x in (q, k, v, log_decay))
    q = q if scale == 1.0 else scale * q
    beta = None if beta is None else beta.to(kind)
    if key_mask is not None:
        hidden = ~key_mask[:, None]
        k, v = k.masked_fill(hidden[..., None], 0.0), v.masked_fill(hidden[..., None], 0.0)
        log_decay = log_decay.masked_fill(hidden, 0.0)
        beta = None if beta is None else beta.masked_fill(hidden, 0.0)
    log_decay = log_decay.clamp(min=_LEAST)  # sums with larger ones would lose their other digits
    with torch.autocast(q.device.type, enabled=False):
        steps = [x for x in (q, k, v, log_decay, beta) if x is not None]
        if causal:
            return _run(*steps).to(dtype)
        ahead, back = _run(*steps), _run(*(x.flip(2) for x in steps)).flip(2)
        itself = (q * k).sum(3, keepdim=True)
        itself = itself if beta is None else itself * beta[..., None]
        return (ahead + back - itself * v).to(dtype)


def _run(q: Tensor, k: Tensor, v: Tensor, *gates: Tensor) -> Tensor:
    """All steps from an empty state."""
    state = v.new_zeros(*k.shape[:2], k.shape[3], v.shape[3])
    if torch.compiler.is_exporting():
        return _segment(state, q, k, v, *gates)[0]
    run = kernels.outside_graphs(_Segments.apply)  # computes segments again
    out: Tensor = run(state, q, k, v, *gates)
    return out


class _Segments(torch.autograd.Function):
    """`_segment` for as many steps at a time as stay in a CPU's cache.

    It keeps the state before each segment; the backward pass computes each again, the last first.
    """

    @staticmethod
    def forward(ctx: Any, state: Tensor, *x: Tensor) -> Tensor:
        outs, states = [], []
        for cut in _cuts(x[0]):
            states.append(state)
            out, state = _segment(state, *(a[:, :, cut] for a in x))
            outs.append(out)
        ctx.save_for_backward(*x, *states)
        ctx.count = len(x)
        return torch.cat(outs, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, states = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        total = [torch.empty_like(a) for a in x]
        grad_state = torch.zeros_like(states[0])
        for cut, state in reversed(list(zip(_cuts(x[0]), states, strict=True))):
            leaves = [a.detach().requires_grad_() for a in (state, *(a[:, :, cut] for a in x))]
            with torch.enable_grad(), torch.autocast(grad.device.type, enabled=False):
                result = _segment(*leaves)
                grad_state, *into = torch.autograd.grad(
                    result, leaves, (grad[:, :, cut], grad_state)
                )
            for a, part in zip(total, into, strict=True):
                a[:, :, cut] = part
        return None, *total


def _cuts(q: Tensor) -> list[slice]:
    """Whole chunks that together hold about as many scores as a cache, or as a GPU may."""
    B, H, L, _ = q.shape
    size = _chunk(q)
    chunks = max(1, kernels.at_once(q, _SCORES, numbers=16) // (B * H * size**2))
    return kernels.cuts(L, min(chunks, _MOST) * size)


def _chunk(q: Tensor) -> int:
    """The steps of a chunk."""
    return _CHUNK if q.device.type == "cpu" else _LAUNCHED


def _segment(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The outputs of some steps, and the state after them."""
    L = q.shape[2]
    C = min(_chunk(q), L)
    q, k, v = (_chunks(x, C) for x in (q, k, v))
    g = _chunks(log_decay[..., None], C).cumsum(3)
    below = torch.ones(C, C, dtype=q.dtype, device=q.device).tril()
    gamma = _exp((g - g.mT) * below) * below
    since, until = _exp(g), _exp(g[..., -1:, :] - g)
    faded, last = (until * k).mT, g[..., -1:, :]
    if beta is None:
        # row n: the states at the border n from that before the first chunk and what each adds
        sums = F.pad(last.squeeze((3, 4)).cumsum(0), (0, 0, 0, 0, 1, 0)).movedim(0, 2)
        before = torch.ones(2 * sums.shape[2:3], dtype=q.dtype, device=q.device).tril()
        carry = _exp((sums[..., None] - sums[..., None, :]) * before) * before
        added = torch.cat([state[None], faded @ v]).movedim(0, 2)
        borders = (carry @ added.flatten(3)).unflatten(3, state.shape[2:]).movedim(2, 0)
        states, state, writes = borders[:-1], borders[-1], v
    else:
        b = _chunks(beta[..., None], C)
        lower = b * (k @ k.mT) * gamma  # its diagonal is not read
        one = torch.eye(C, dtype=q.dtype, device=q.device).expand_as(lower)
        inverse = torch.linalg.solve_triangular(lower, one, upper=False, unitriangular=True)
        parts = faded, inverse @ (b * v), inverse @ (b * since * k)
        before_each, written = [], []
        for factor, keys, write, read in zip(_exp(last), *parts, strict=True):
            before_each.append(state)
            written.append(write - read @ state)
            state = factor * state + keys @ written[-1]
        states, writes = torch.stack(before_each), torch.stack(written)
    out = (since * q) @ states + (q @ k.mT * gamma) @ writes
    steps: Tensor = out.movedim(0, 2).flatten(2, 3)[:, :, :L]
    return steps, state


def _chunks(x: Tensor, size: int) -> Tensor:
    """(B, H, L, E) -> (N, B, H, size, E), with zeros after the end; each chunk lies together."""
    chunks: Tensor = F.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))
    return chunks.movedim(2, 0).contiguous()


def _exp(x: Tensor) -> Tensor:
    return x.clamp(min=_LEAST).exp()


class ShortConvolution(nn.Module):
    """A convolution over `taps` steps for each feature, then SiLU: (B, L, D) -> (B, L, D).

    If causal, it reads a step and those before it; else it is centred. Hidden steps enter as zeros.
    """

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, taps, groups=width)

    def forward(self, x: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
        if key_mask is not None:
            x = x.masked_fill(~key_mask[..., None], 0.0)
        taps = self.conv.kernel_size[0]
        before = taps - 1 if causal else taps // 2
        return F.silu(self.conv(F.pad(x.mT, (before, taps - 1 - before)))).mT


class Decay(nn.Module):
    """ln a_t = -A Δ_t and Δ_t = softplus(W x_t + b) for each head, as in Mamba-2: (B, H, L) each.

    At the start Δ is 0.1, and by A, head h of H loses 1/e in L^((h + 1) / H) steps, so that one
    head at least holds the whole series. The authors draw A from [1, 16] and Δ from [0.001, 0.1],
    for hundreds of heads; of a few, all may forget within ten steps, and then learn nothing else.
    """

    def __init__(self, place: Place) -> None:
        super().__init__()
        H = place.heads
        self.projection = nn.Linear(place.width, H)
        nn.init.zeros_(self.projection.weight)
        nn.init.constant_(self.projection.bias, math.log(math.expm1(_STEP)))
        reaches = place.key_length ** (torch.arange(1, H + 1) / H)
        self.log_rate = nn.Parameter((1 / (_STEP * reaches)).log())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        step = F.softplus(self.projection(x).mT.to(kernels.accumulator(x.dtype)))
        return -self.log_rate.exp()[:, None].to(step.dtype) * step, step
