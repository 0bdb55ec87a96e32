"""Several parts as one forecast, with weights found on validation."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from forecaster.datasets.windows import Windows
from forecaster.model import ForecastModel, Task
from forecaster.parts.base import Fold, Part
from forecaster.parts.products import Products, products
from forecaster.parts.ridge import merged
from forecaster.parts.smoothing import Smoothing
from forecaster.record import NETWORK


class Network(Part):
    """The trained model of the configuration as a part."""

    kind = NETWORK

    def __init__(self, model: ForecastModel) -> None:
        super().__init__(model.task, NETWORK, model.task.past)
        self.model = model

    @classmethod
    def fit(cls, fold: Fold) -> Sequence["Network"]:
        raise NotImplementedError("the network is trained by forecaster.train")

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        reach = self.model.task.past
        seen = None if observed is None else observed[:, -reach:]
        inputs = past[:, -reach:], past_known[:, -reach:], future_known, seen
        forecast: Tensor = self.model(*inputs)
        return forecast


class Blend(nn.Module):
    """Parts as one forecast, weighted at each step, with the interface of `ForecastModel`.

    A part without any weight is left out.
    """

    weights: Tensor
    table: Tensor

    def __init__(
        self,
        task: Task,
        parts: Mapping[str, Part],
        weights: Tensor,
        of_series: Tensor | None = None,
    ) -> None:
        """`weights` (n, T) are the weights of the parts, in the same order.

        `of_series` (S, n) are those of each series of a panel, at every step; `weights` are then
        those of a series that is not in training.
        """
        super().__init__()
        if weights.shape != (len(parts), task.horizon) or bool((weights < 0).any()):
            raise ValueError(
                f"expected weights >= 0, ({len(parts)} parts, {task.horizon} steps), got "
                f"{tuple(weights.shape)}"
            )
        if not torch.allclose(weights.sum(dim=0), weights.new_ones(task.horizon), atol=1e-5):
            raise ValueError("the weights of the parts do not sum to one at every step")
        by_series = torch.empty(0, len(parts)) if of_series is None else of_series
        ones = by_series.new_ones(len(by_series))
        if (
            by_series.shape[1:] != weights.shape[:1]
            or bool((by_series < 0).any())
            or (not torch.allclose(by_series.sum(dim=1), ones, atol=1e-5))
        ):
            raise ValueError("the weights of series are not shares of the parts that sum to one")
        self.task, self.of_series = task, of_series
        self.names = tuple(parts)
        self.members = list(parts.values())
        self.parts = nn.ModuleList(self.members)
        self.register_buffer("weights", weights.float(), persistent=False)
        table = torch.cat(
            [by_series, weights.mean(dim=1)[None].to(by_series)]
        )  # the last: not in training
        self.register_buffer("table", table.float(), persistent=False)
        linear = [i for i, part in enumerate(self.members) if part.linear() is not None]
        self.merged = merged([self.members[i] for i in linear], weights[linear])
        """The linear parts merged into one, for complete windows."""
        self.apart = [i for i in range(len(parts)) if self.merged is None or i not in linear]

    @classmethod
    def alone(cls, part: Part) -> "Blend":
        """A blend of one part, which is the whole forecast."""
        return cls(part.task, {part.name: part}, torch.ones(1, part.task.horizon))

    @classmethod
    def weighed(cls, parts: Sequence[Part], weights: "Weights") -> "Blend":
        places = weights.common.any(dim=1).nonzero()[:, 0].tolist()
        by_series = None if weights.of_series is None else weights.of_series[:, places]
        members = {parts[i].name: parts[i] for i in places}
        return cls(parts[0].task, members, weights.common[places], by_series)

    @property
    def shares(self) -> dict[str, float]:
        """The weight of each part, averaged over the steps of the horizon."""
        return dict(zip(self.names, self.weights.mean(dim=1).tolist(), strict=True))

    @property
    def network(self) -> ForecastModel | None:
        """The trained model, if it has a share."""
        return next((part.model for part in self.members if isinstance(part, Network)), None)

    @property
    def takes_beside(self) -> bool:
        """Whether a part reads `Batch.beside`."""
        return any(part.takes_beside for part in self.members)

    @property
    def needs(self) -> int:
        return max(part.needs for part in self.members)

    def within(self, steps: int) -> "Blend | None":
        """The blend of the parts that need at most `steps` steps of history.

        Its weights are scaled to sum to one again; None if at some step no part with a weight is
        left.
        """
        places = [i for i, part in enumerate(self.members) if part.needs <= steps]
        shares = self.weights[places]
        if not places or bool((shares.sum(dim=0) <= 0).any()):
            return None
        parts = {self.names[i]: self.members[i] for i in places}
        shares, by_series = shares / shares.sum(dim=0), None
        if self.of_series is not None:
            by_series = self.of_series[:, places]
            some = by_series.sum(dim=1, keepdim=True)
            common = shares.mean(dim=1).to(by_series).expand(len(by_series), -1)
            by_series = torch.where(some > 0, by_series / some.clamp(min=1e-12), common)
        return Blend(self.task, parts, shares, by_series).to(self.weights.device).eval()

    def shares_of(self, item: Tensor | None) -> Tensor:
        """The weights (B, n, 1) in series `item` (B,), or (n, T) without weights of series.

        An item of S is a series that is not in training.
        """
        if item is None or self.of_series is None:
            return self.weights
        return self.table[item][..., None]

    def forward(
        self,
        past: Tensor,
        past_known: Tensor,
        future_known: Tensor,
        observed: Tensor | None = None,
        item: Tensor | None = None,
        beside: Tensor | None = None,
    ) -> Tensor:
        """As `ForecastModel.forward`; `item` as in `shares_of`, `beside` as in `Batch`."""
        inputs = past, past_known, future_known, observed

        def alone(part: Part) -> Tensor:
            ahead: Tensor = part(*inputs, beside=beside) if part.takes_beside else part(*inputs)
            return ahead

        shares = self.shares_of(item)
        if self.merged is not None and observed is None and shares is self.weights:
            ahead: Tensor = self.merged(*inputs)
            for place in self.apart:
                ahead = ahead + alone(self.members[place]) * self.weights[place][:, None]
            return ahead
        return self.mix([alone(part) for part in self.members], item)

    def mix(self, forecasts: Sequence[Tensor], item: Tensor | None, without: str = "") -> Tensor:
        """The forecast (B, T, K) made of those of the parts, in their order; `item` as in
        `shares_of`.

        That of a model `without` a kind of part is made of the others, whose shares then sum to
        one.
        """
        if len(self.members) == 1:
            return forecasts[0]
        shares = self.shares_of(item)
        if without:
            others = [i for i, part in enumerate(self.members) if part.kind != without]
            forecasts, shares = [forecasts[i] for i in others], shares[..., others, :]
            whole = shares.sum(dim=-2, keepdim=True)
            even = torch.full_like(shares, 1 / len(others))
            shares = torch.where(whole > 0, shares / whole.clamp(min=1e-12), even)
        return mixed(forecasts, shares)


def mixed(forecasts: Sequence[Tensor], weights: Tensor) -> Tensor:
    """The mean of forecasts (B, T, K) with weights (n, T) or (B, n, 1)."""
    shares = weights.unbind(dim=-2)
    ahead = forecasts[0] * shares[0][..., None]
    for forecast, share in zip(forecasts[1:], shares[1:], strict=True):
        ahead = ahead + forecast * share[..., None]
    return ahead


PULL, POWER, FEW, LEAST = 0.3, 4, 3, 0.03
"""How strongly weights are pulled towards votes by the errors, how strongly these fall with the
squared error, how many windows that lie apart are few, and the smallest weight that is kept. On 21
tasks, pulls of 1 and 3 and powers of 2 and 8 were up to 1 % worse (benchmarks/log.md)."""


SHORT = 1_000
"""With n training windows smoothing, which needs none, has 1 + SHORT / n votes, and errors count so
much less: on 60 slow series the blend was 5 % better for it (benchmarks/log.md)."""


class Weights(NamedTuple):
    """The weights (n, T) of parts, their MSE (n,) on the windows that weighed them, and the weights
    (S, n) in each series of a panel, None without."""

    common: Tensor
    mse: Tensor
    of_series: Tensor | None = None


def weigh(
    parts: Sequence[Part | Blend],
    windows: Windows,
    trained: float = inf,
    votes: Sequence[float] = (),
) -> Weights:
    """The weights of parts that `trained` windows fitted, by their errors on `windows`."""
    errors = products(parts, windows)
    common = shares(parts, errors.relative, windows.horizons, trained, votes)
    return Weights(common, errors.mse, _of_series(common, errors, windows.horizons))


def _of_series(common: Tensor, of: Products, apart: float) -> Tensor | None:
    """The weights (S, n) in each series: as in `shares`, by the mean of its own errors and those of
    all, pulled towards the common weights, of parts that have one."""
    if of.of_series is None:
        return None
    toward = common.mean(dim=1).double()
    able = toward.nonzero()[:, 0]
    errors = ((of.of_series + of.relative) / 2)[:, able][:, :, able]
    least = errors.diagonal(dim1=1, dim2=2).amin(dim=1).clamp(min=1e-12)
    pull = PULL * (1 + FEW / apart)
    shares = toward[able].expand(len(errors), -1)
    near = nearest(errors / least[:, None, None], shares, pull, 300)
    near = torch.where(near < LEAST, 0.0, near)
    weights = torch.zeros(len(near), len(common), dtype=torch.float64)
    weights[:, able] = near / near.sum(dim=1, keepdim=True)
    return weights.float()


def shares(
    parts: Sequence[Part | Blend],
    relative: Tensor,
    apart: float,
    trained: float = inf,
    votes: Sequence[float] = (),
) -> Tensor:
    """The weights (n, T) of parts by their `Products.relative` (n, n) on windows of which as many
    as `apart` do not overlap.

    One rule serves every data set (docs/recipe.md). The weights w >= 0 sum to one and minimise
    w' E w / e + PULL |w - u|^2: E holds the mean products of relative errors, e is the smallest
    squared error of a part, e_i that of part i, and u is proportional to (e / e_i)^POWER times the
    vote of the part: one for every family, shared evenly by its parts, unless `votes` is given.
    Weights below LEAST become zero. Without PULL, weights overfit the one regime of validation; if
    only a few windows lie apart, it is stronger and POWER weaker, both by 1 + FEW / apart. If few
    windows `trained` the parts, both are more so, by SHORT / trained, and smoothing, which is
    fitted to each window, has 1 + SHORT / trained votes.
    """
    able = [i for i, part in enumerate(parts) if isinstance(part, Blend) or part.weighed]
    if not votes:
        families = [part.family for part in parts if isinstance(part, Part) and part.weighed]
        more = 1 + SHORT / trained
        votes = [
            (more if family == Smoothing.family else 1) / families.count(family)
            for family in families
        ]
    relative = relative[able][:, able]
    errors = relative.diagonal().clamp(min=1e-12)
    least, doubt = errors.min(), 1 + FEW / apart + SHORT / trained
    even = torch.tensor(votes, dtype=torch.float64) * (least / errors) ** (POWER / doubt)
    near = nearest(relative / least, even / even.sum(), PULL * doubt)
    near = torch.where(near < min(LEAST, float(near.max())), 0.0, near)  # the largest stays
    weights = torch.zeros(len(parts), dtype=torch.float64)
    weights[able] = near / near.sum()
    return weights[:, None].expand(-1, parts[0].task.horizon).float()


def nearest(products: Tensor, shares: Tensor, pull: float, rounds: int = 2_000) -> Tensor:
    """The w >= 0 (..., n) with sum 1 that minimise w' products w + pull |w - shares|^2.

    Projected gradient with momentum (Beck and Teboulle 2009); the problems are small and convex.
    """
    weights = ahead = shares.double().numpy()
    curved = products.numpy() + pull * np.eye(weights.shape[-1])
    toward = pull * weights
    rate = 1 / np.linalg.eigvalsh(curved)[..., -1:]
    speed = 1.0
    for _ in range(rounds):
        moved = _on_simplex(ahead - rate * ((curved @ ahead[..., None])[..., 0] - toward))
        faster = (1 + np.sqrt(1 + 4 * speed * speed)) / 2
        ahead = moved + (speed - 1) / faster * (moved - weights)
        weights, speed = moved, faster
    return torch.from_numpy(weights)


def _on_simplex(points: Any) -> Any:
    """The nearest points (..., n) with values >= 0 that sum to 1 (Duchi et al., ICML 2008)."""
    falling = np.sort(points, axis=-1)[..., ::-1]
    excess = falling.cumsum(axis=-1) - 1
    count = (falling - excess / np.arange(1, points.shape[-1] + 1) > 0).sum(axis=-1, keepdims=True)
    return np.maximum(points - np.take_along_axis(excess, count - 1, axis=-1) / count, 0)
