"""The slow definition of AFT-conv, in the paper's form: the part of the kernel plus the whole."""

from torch import Tensor

from . import rows, visible


def aft_conv_kernel(raw: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
    deviation = raw - raw.mean(dim=1, keepdim=True)
    variance = deviation.square().mean(dim=1, keepdim=True)
    return gain[:, None] * deviation / (variance + 1e-6).sqrt() + offset[:, None]


def aft_conv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kernel: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    window = kernel.shape[1]
    first = -(window - 1) if causal else -((window - 1) // 2)

    def row(b: int, h: int, t: int) -> Tensor:
        keys = visible(t, k.shape[2], causal, key_mask, b)
        if not keys:
            return v.new_zeros(v.shape[3])
        top = k[b, h, keys].detach().amax(dim=0)
        e = {s: (k[b, h, s] - top).exp() for s in keys}
        above, below = sum(e[s] * v[b, h, s] for s in keys), sum(e.values())
        for tap in range(window):
            s = t + first + tap
            if s in e:
                extra = kernel[h, tap].expm1() * e[s]
                above, below = above + extra * v[b, h, s], below + extra
        return q[b, h, t].sigmoid() * above / below

    return rows(q, v, row)
