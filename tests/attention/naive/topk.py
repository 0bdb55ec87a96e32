"""The slow definition of top-k attention."""

from torch import Tensor

from . import rows, softmax_row, visible


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    topk: int,
    causal: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def row(b: int, h: int, i: int) -> Tensor:
        scores = {
            j: scale * float((q[b, h, i] * k[b, h, j]).sum().detach())
            for j in visible(i, k.shape[2], causal, key_mask, b)
        }
        threshold = min(sorted(scores.values(), reverse=True)[:topk], default=0.0)
        kept = [j for j, score in scores.items() if score >= threshold]
        return softmax_row(q[b, h, i], k[b, h], v[b, h], kept, scale)

    return rows(q, v, row)
