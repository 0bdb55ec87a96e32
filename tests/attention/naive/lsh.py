import torch
from torch import Tensor

from . import rows


def buckets(x: Tensor, rotations: Tensor, factors: tuple[int, ...]) -> list[int]:
    """The bucket of one step x (E,) in every round; rotations (E, n_hashes, R)."""
    found = []
    for r in range(rotations.shape[1]):
        column, bucket, factor = 0, 0, 1
        for size in factors:
            half = [float(x @ rotations[:, r, column + c]) for c in range(size // 2)]
            both = half + [-z for z in half]
            bucket += factor * both.index(max(both))
            column, factor = column + size // 2, factor * size
        found.append(bucket)
    return found


def lsh(
    qk: Tensor,
    v: Tensor,
    rotations: Tensor,
    bucket_size: int,
    n_buckets: int | tuple[int, int] | None = None,
    causal: bool = False,
    scale: float = 1.0,
    deduplicate: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    """`rotations` (H, E, n_hashes, R)."""
    B, H, L, _ = qk.shape
    n_hashes = rotations.shape[2]
    n_buckets = 2 * rotations.shape[3] if n_buckets is None else n_buckets
    factors = n_buckets if isinstance(n_buckets, tuple) else (n_buckets,)

    def is_real(b: int, i: int) -> bool:
        return key_mask is None or bool(key_mask[b, i])

    @torch.no_grad()
    def chunks(b: int, h: int) -> list[list[int]]:
        """The steps of each chunk, over all rounds."""
        hashed = [buckets(qk[b, h, i], rotations[h], factors) for i in range(L)]
        found = []
        for r in range(n_hashes):
            order = sorted(range(L), key=lambda i: (not is_real(b, i), hashed[i][r], i))
            found += [order[c : c + bucket_size] for c in range(0, L, bucket_size)]
        return found

    k = qk / qk.norm(dim=3, keepdim=True).clamp(min=1e-12)
    every = {(b, h): chunks(b, h) for b in range(B) for h in range(H)}

    def row(b: int, h: int, i: int) -> Tensor:
        if not is_real(b, i):
            return 0 * v[b, h, i]
        in_rounds = []
        for c, chunk in enumerate(every[b, h]):
            if i in chunk:
                both = chunk + every[b, h][c - 1]
                in_rounds.append([j for j in both if is_real(b, j) and not (causal and j > i)])
        if deduplicate:
            in_rounds = [sorted({j for keys in in_rounds for j in keys})]

        z, o = [], []
        for keys in in_rounds:
            is_self = torch.tensor([j == i for j in keys])
            scores = (scale * (k[b, h, keys] @ qk[b, h, i])).masked_fill(is_self, -1e5)
            z.append(scores.logsumexp(0))
            o.append((scores - z[-1]).exp() @ v[b, h, keys])
        merged = torch.stack(z).softmax(0)
        return torch.stack([w * x for w, x in zip(merged, o, strict=True)]).sum(0)

    return rows(qk, v, row)
