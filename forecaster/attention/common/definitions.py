"""What the definitions share: all scores at once, in plain operations that autograd can go through.

The file of each mechanism holds its `definition`: the formula in a few slow lines, with the
arguments of the function. The function must give the same numbers and gradients.
"""

import torch
from torch import Tensor

from forecaster.base.shapes import Bool, Float


def visible(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B H S _"],
    causal: bool,
    key_mask: Bool[Tensor, "B S"] | None,
) -> Bool[Tensor, "#B 1 L S"]:
    """Which keys each query sees: the real ones, and if `causal` none after it."""
    seen = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    seen = seen.tril() if causal else seen
    return seen if key_mask is None else seen & key_mask[:, None, None]


def positions(L: int, S: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The positions i of queries (L, 1) and j of keys (S,), which broadcast to (L, S)."""
    return torch.arange(L, device=device)[:, None], torch.arange(S, device=device)


def softmax(scores: Tensor, seen: Tensor, dim: int = 3) -> Tensor:
    """The softmax of the scores that are seen, 0 for all others, and in a row that sees none."""
    lowest = torch.finfo(scores.dtype).min  # -inf would make an empty row NaN
    return scores.masked_fill(~seen, lowest).softmax(dim) * seen


def attend(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S Ev"],
    seen: Bool[Tensor, "#B #H L S"],
    scale: float | None = None,
) -> Float[Tensor, "B H L Ev"]:
    """Σ_j softmax_j(scale q_i·k_j) v_j over the keys j that query i sees; scale is 1/√E if None."""
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return softmax(scale * q @ k.mT, seen) @ v


def biased_mean(
    k: Float[Tensor, "B H S #E"],
    v: Float[Tensor, "B H S E"],
    w: Float[Tensor, "#H L S"],
    seen: Bool[Tensor, "#B 1 L S"],
) -> Float[Tensor, "B H L E"]:
    """Σ_s softmax_s(k_s + w_ts) ⊙ v_s for each feature, over the keys s that query t sees."""
    weights = softmax(k[:, :, None] + w[..., None], seen[..., None], dim=3)
    return (weights * v[:, :, None]).sum(3)
