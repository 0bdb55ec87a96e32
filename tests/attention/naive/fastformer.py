"""The slow definition of Fastformer's additive attention."""

from torch import Tensor

from . import rows, visible


def fastformer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    query_bias: Tensor | None = None,
    key_bias: Tensor | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    length, width = q.shape[2:]

    def pool(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The softmax mean, for every step, of the x (B, H, L, E) that it sees."""

        def score(b: int, h: int, j: int) -> Tensor:
            features = x[b, :, j].flatten() if weight.shape[1] > width else x[b, h, j]
            product = (weight[h] * features).sum() + (0.0 if bias is None else bias[h])
            return (product * width**-0.5)[None]

        scores = rows(x, x[..., :1], score)

        def row(b: int, h: int, i: int) -> Tensor:
            steps = visible(i, length, causal, key_mask, b)
            return (scores[b, h, steps].softmax(dim=0) * x[b, h, steps]).sum(dim=0)

        return rows(x, x, row)

    g = pool(q, query_weight, query_bias)
    return pool(g * k, key_weight, key_bias) * v
