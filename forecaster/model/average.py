"""A forecast as a weighted mean of observed values."""

import torch
from torch import Tensor, nn

from forecaster.base.shapes import Bool, Float


class CycleAverage(nn.Module):
    """Cross-attention from future tokens to past tokens of the same phase, averaging raw values.

    weights[h, q, i] = softmax_i(query[h, q] . key[h, i, phase(q)] / sqrt(E) + bias[h, q, i]) over
    the cycles i; heads are mixed by learned scalars that start at 1/H. Queries are learned, and
    with `stateful` they also depend on the state of their token. Queries, biases and the map of the
    state start at zero, so before training the forecast is the mean of the past cycles. The weight
    of a missing value goes to the others; if all are missing, the average is 0. Queries are stored
    as (future cycles, parts): G and R below. Ours.
    """

    def __init__(
        self,
        cycles: int,
        parts: int,
        future_cycles: int,
        width: int,
        heads: int,
        stateful: bool = False,
    ) -> None:
        super().__init__()
        shape = (heads, future_cycles, parts)
        self.query = nn.Parameter(torch.zeros(*shape, width // heads))
        self.bias = nn.Parameter(torch.zeros(*shape, cycles))
        self.key = nn.Linear(width, width, bias=False)
        self.mixture = nn.Parameter(torch.full((heads,), 1 / heads))
        self.project = nn.Linear(width, width, bias=False) if stateful else None
        if self.project is not None:
            nn.init.zeros_(self.project.weight)

    def forward(
        self,
        encoded: Float[Tensor, "b tokens d"],
        values: Float[Tensor, "b tokens steps"],
        state: Float[Tensor, "b queries d"] | None = None,
        observed: Bool[Tensor, "b tokens steps"] | None = None,
    ) -> Float[Tensor, "b queries steps"]:
        heads, cycles, parts, width = self.query.shape
        key = self.key(encoded).reshape(encoded.shape[0], -1, parts, heads, width)
        query = self.query * width**-0.5
        if self.project is None or state is None:
            scores = torch.einsum("hgre,bcrhe->hrgbc", query, key)
        else:
            added = self.project(state).reshape(state.shape[0], cycles, parts, heads, width)
            query = query + added.permute(0, 3, 1, 2, 4) * width**-0.5
            scores = torch.einsum("bhgre,bcrhe->hrgbc", query, key)
        # in the memory layout of the products
        weights = torch.softmax(scores + self.bias.permute(0, 2, 1, 3)[..., None, :], dim=-1)
        past = values.reshape(values.shape[0], -1, parts, values.shape[-1])
        if observed is None:
            mixed = torch.einsum("h,hrgbc->rgbc", self.mixture, weights)
            return torch.einsum("rgbc,bcrs->bgrs", mixed, past).flatten(1, 2)
        real = observed.reshape(past.shape).to(past.dtype)
        sums = torch.einsum("hrgbc,bcrs->bhgrs", weights, past * real)
        shares = torch.einsum("hrgbc,bcrs->bhgrs", weights, real).clamp(min=1e-12)
        return torch.einsum("h,bhgrs->bgrs", self.mixture, sums / shares).flatten(1, 2)
