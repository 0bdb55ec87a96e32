"""What the definitions share: all scores at once, in plain operations that autograd can go through.

The file of each mechanism holds its `definition`: the formula in a few slow lines. It takes what
the function takes, but `seen` (B or 1, 1, L, S), which keys each query sees, in place of `causal`
and `key_mask`. The function must give the same numbers and gradients.
"""

import torch
from torch import Tensor

from forecaster.base.shapes import Bool, Float


def real_keys(seen: Tensor) -> Tensor:
    """Which keys are real, (B or 1, 1, 1, S): every real key is seen, if only by its own step."""
    return seen.any(2, keepdim=True)


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
