"""Boosted trees from the recent values and what is known of a step to the value at that step."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from forecaster.datasets.windows import sample
from forecaster.model import Task
from forecaster.model.normalise import last
from forecaster.parts.base import Fold, Part, filled

TREES, DEPTH, RATE = 100, 6, 0.1  # the defaults of the library, with a depth that tensors can hold
ROWS, STEPS = 100_000, 12
"""The most rows that trees are fitted to, and the most steps of a window among them: those of
one window are alike, so more windows say more."""
FEWEST, WORK = 4_000, 2**20
"""The fewest values to learn from at each step ahead, and the most values to forecast on the
windows that choose; where there are more, trees take longer than all else. With fewer values trees
were 2 to 5 % worse on short series (benchmarks/log.md)."""
FLAT, NEAR = 0.1, 1e-3
"""Where this share of the values of a window repeats its lowest one, as near as that, as in
intermittent demand, the median is far below the mean: sums would be a quarter too small."""
CYCLES, LATEST = 4, 4
"""How many of the last cycles, and of the last values, a tree may look at: the others enter as
means; round numbers that work."""


class Boosted(Part):
    """Gradient boosted trees (Friedman, 2001), one model for all series, columns and steps ahead.

    A tree sees the step ahead, the values at the same phase of the last cycles and of the last
    longer seasons, means of cycles, the newest values and changes, what is known of the step, and
    of inputs that move what `_around` adds. Values are differences from the mean of the last
    cycle in units of the typical seasonal change of the window, and so is what the trees learn: the
    difference from the value one cycle before, with the absolute loss, which a few wild values do
    not decide, or the squared one where values are FLAT. Scikit-learn fits them by histograms; here
    they are complete binary trees in tensors, which need no pickle.
    """

    kind = "boosted"
    features: Tensor
    thresholds: Tensor
    leaves: Tensor

    def __init__(
        self,
        task: Task,
        name: str,
        past: int,
        chosen: str = "",
        *,
        season: int,
        longer: Sequence[int] = (),
        moving: int = 0,
        whole: bool = False,
    ) -> None:
        super().__init__(task, name, past, chosen)
        if not all(1 <= length <= past for length in (season, *longer)):
            raise ValueError(f"{name}: {past} steps do not hold seasons of {(season, *longer)}")
        self.season, self.longer, self.moving = season, tuple(longer), moving
        self.whole = self.takes_beside = whole
        self.register_buffer("features", torch.zeros(TREES, 2**DEPTH - 1, dtype=torch.int64))
        self.register_buffer("thresholds", torch.zeros(TREES, 2**DEPTH - 1))
        self.register_buffer("leaves", torch.zeros(TREES, 2**DEPTH))

    @property
    def settings(self) -> dict[str, Any]:
        seasons = {"season": self.season, "longer": list(self.longer), "moving": self.moving}
        return {**super().settings, **seasons, "whole": self.whole}

    @classmethod
    def build(cls, task: Task, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """As `Part.build`; also raises ValueError for trees that look at what is not there."""
        part = super().build(task, settings, tensors)
        known = torch.zeros(1, task.past, task.calendar + task.covariates)
        ahead = known[:, :1].expand(-1, task.horizon, -1)
        seen, *_ = part._seen(torch.zeros(1, task.past, task.columns), known, ahead, None, None)
        width = seen.shape[-1]
        if not 0 <= int(part.features.min()) <= int(part.features.max()) < width:
            raise ValueError(f"{part.name}: trees look at other than {width} features")
        return part

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """Trees for all columns; none where they have too little to learn, or too much to do.

        Where effects of covariates are taken out, others learn from values with them (`whole`):
        they err elsewhere, and the blend of five markets was 2 % better (benchmarks/log.md).
        """
        targets = len(fold.task.targets)
        work = len(fold.choose) * fold.task.horizon * targets
        if len(fold.train) * targets < FEWEST or work > WORK:
            return []
        season = fold.cycle if fold.cycle <= fold.look_back else 1
        longer = [length for length in fold.seasons if season < length <= fold.look_back]
        names = {"boosted": False} | ({} if fold.train.shift is None else {"boosted, whole": True})
        parts = (
            cls(
                fold.task, name, fold.look_back, f"{TREES} trees",
                season=season, longer=longer, moving=fold.moving, whole=whole,
            )
            for name, whole in names.items()
        )  # fmt: skip
        return [part.refit(fold) for part in parts]

    def refit(self, fold: Fold) -> Self:
        from sklearn.ensemble import HistGradientBoostingRegressor

        whole = self.whole and fold.train.shift is not None
        part = type(self)(self.task, **(self.settings | {"whole": whole}))
        rows, truth, flat = part._rows(fold)
        if not len(truth):
            return part.to(fold.train.values.device)
        few, many = np.quantile(truth, (0.005, 0.995))  # else a few values would decide whole trees
        trees = HistGradientBoostingRegressor(
            max_iter=TREES, learning_rate=RATE, max_depth=DEPTH, l2_regularization=1.0,
            min_samples_leaf=min(200, max(20, len(truth) // 200)),  # half a percent, 20 as usual
            early_stopping=False, random_state=0,
            loss="squared_error" if flat >= FLAT else "absolute_error",
        ).fit(rows, truth.clip(few, many))  # fmt: skip
        for place, (tree,) in enumerate(trees._predictors):
            part._plant(place, tree.nodes)
        part.leaves[0] += float(np.ravel(trees._baseline_prediction)[0])
        return part.to(fold.train.values.device)

    def _rows(self, fold: Fold) -> tuple[np.ndarray, np.ndarray, float]:
        """What trees see (N, F), what they should say (N,), and the mean share of the values of a
        window that repeat its lowest one."""
        windows, horizon = fold.train.looking_back(self.task.past), self.task.horizon
        steps, draw = min(horizon, STEPS), torch.Generator().manual_seed(0)
        most = max(1, ROWS // (steps * len(self.task.targets)))
        rows, truth, flat = [], [], []
        for batch in sample(windows, most):
            shift = batch.shift if self.whole else None
            seen, base, centre, size = self._seen(*batch.inputs, shift)
            target = batch.target if shift is None else batch.target + shift[:, -horizon:]
            target = (target.transpose(1, 2) - centre) / size - base
            known = torch.ones_like(target, dtype=torch.bool)
            if batch.target_observed is not None:
                known = batch.target_observed.transpose(1, 2)
            order = torch.rand(len(target), 1, horizon, generator=draw).argsort(dim=2)
            picked = (order < steps).to(known.device) & known
            rows.append(seen[picked].cpu().numpy())
            truth.append(target[picked].cpu().numpy())
            values = self.own(batch.past, None)[0]
            if batch.shift is not None:  # with effects taken out, no value repeats another
                values = values + batch.shift[:, :-horizon].transpose(1, 2)
            lowest = values < values.amin(dim=-1, keepdim=True) + NEAR
            flat.append((lowest.sum(dim=-1) - 1).double().mean() / self.past)
        return np.concatenate(rows), np.concatenate(truth), float(torch.stack(flat).mean())

    def _plant(self, place: int, nodes: np.ndarray) -> None:
        """Copy a tree of scikit-learn; below a leaf that is not the deepest, all goes left."""
        features, thresholds, leaves = (
            table[place].numpy() for table in (self.features, self.thresholds, self.leaves)
        )
        thresholds[:] = np.inf
        below = [(0, 0, 0)]  # node, place in its level, level
        while below:
            node, at, level = below.pop()
            if nodes["is_leaf"][node]:
                leaves[at << (DEPTH - level)] = nodes["value"][node]
                continue
            features[2**level - 1 + at] = nodes["feature_idx"][node]
            exact = nodes["num_threshold"][node]
            near = np.float32(exact)  # rounded down, which tells the same values apart
            down = np.nextafter(near, np.float32(-np.inf))
            thresholds[2**level - 1 + at] = down if near > exact else near
            below.append((nodes["left"][node], 2 * at, level + 1))
            below.append((nodes["right"][node], 2 * at + 1, level + 1))

    def forward(
        self,
        past: Tensor,
        past_known: Tensor,
        future_known: Tensor,
        observed: Tensor | None = None,
        beside: Tensor | None = None,
    ) -> Tensor:
        """If the trees are `whole`, `beside` is `Batch.shift`, (B, P + T, K)."""
        seen, base, centre, size = self._seen(past, past_known, future_known, observed, beside)
        rows = seen.flatten(0, 2)
        if torch.compiler.is_exporting():
            grown = self._grown(rows)
        else:  # on a processor so few rows that they stay in its cache; on a GPU 400 MB of indices
            at_once = 4096 if rows.device.type == "cpu" else 2**19
            grown = torch.cat([self._grown(part) for part in rows.split(at_once)])
        ahead = (base + grown.view_as(base)) * size + centre
        ahead = ahead.transpose(1, 2)
        return ahead if beside is None else ahead - beside[:, -self.task.horizon :]

    def _grown(self, rows: Tensor) -> Tensor:
        trees, inner = self.thresholds.shape
        first = torch.arange(trees, device=rows.device) * inner
        features, thresholds = self.features.flatten(), self.thresholds.flatten()
        count = rows.shape[0]  # not len(), which an export would take as fixed
        at = rows.new_zeros(count, trees, dtype=torch.int64)
        for level in range(DEPTH):
            node = first + (2**level - 1) + at
            right = rows.gather(1, features[node]) > thresholds[node]
            at = 2 * at + right
        leaves = torch.arange(trees, device=rows.device) * (inner + 1) + at
        return self.leaves.flatten()[leaves].sum(dim=1)

    def _seen(
        self,
        past: Tensor,
        past_known: Tensor,
        future_known: Tensor,
        observed: Tensor | None,
        shift: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What trees see (B, K, T, F); the value a cycle before (B, K, T), as a difference from the
        centre (B, K, 1) in units of the size (B, K, 1)."""
        values, there = self.own(past, observed)
        if shift is not None:
            past_shift = shift[:, -self.task.horizon - self.past : -self.task.horizon]
            values = values + past_shift.transpose(1, 2)
            values = values if there is None else values.masked_fill(~there, 0.0)
        values = filled(values, there, self.season)
        steps, horizon, cycle = self.past, self.task.horizon, self.season
        apart = cycle if cycle < steps else min(1, steps - 1)
        change = values[..., apart:] - values[..., : steps - apart]
        size = change.square().mean(dim=-1, keepdim=True).sqrt() + 1e-3
        centre = values[..., -cycle:].mean(dim=-1, keepdim=True)
        values = (values - centre) / size
        ahead = torch.arange(horizon, device=values.device)
        cycles = range(1, min(CYCLES, steps // cycle) + 1)
        by_step = [values[..., steps - cycle * k + ahead % cycle] for k in cycles]
        by_step += [values[..., steps - length + ahead % length] for length in self.longer]
        whole = [values[..., steps - cycle * k :][..., :cycle].mean(-1) for k in cycles[1:]]
        whole += [values[..., -k] for k in range(1, min(LATEST, steps) + 1)]
        whole += [values[..., -1] - values[..., -1 - apart], values.mean(dim=-1)]
        whole += [size[..., 0].log(), centre[..., 0]]
        if values.shape[1] > 1:
            whole.append(torch.arange(values.shape[1], device=values.device).expand(whole[0].shape))
        for column in (c for c in range(self.task.columns) if c not in self.task.targets):
            seen = None if observed is None else observed[..., column]
            whole.append(last(past[..., column], seen).expand(whole[0].shape))
        known = [future_known, *self._around(past_known, future_known)]
        shape = (*by_step[0].shape, -1)
        parts = [torch.stack(by_step, dim=-1), torch.stack(whole, dim=-1)[:, :, None].expand(shape)]
        known.insert(2, (ahead[:, None] + 1.0).expand(*known[0].shape[:-1], 1))
        parts += [known[:, None].expand(shape) for known in known]
        return torch.cat(parts, dim=-1), by_step[0], centre, size

    def _around(self, past_known: Tensor, future_known: Tensor) -> list[Tensor]:
        """What moves, (B, T, moving) each: its changes to a cycle and longer seasons before, the
        steps beside it, and the cycle of the horizon that the step is in: mean, largest, difference
        from the mean, change of the mean to the cycle before. Without them trees were 1 % worse in
        five markets (benchmarks/log.md)."""
        if not self.moving:
            return []
        moved = slice(self.task.calendar, self.task.calendar + self.moving)
        inputs = torch.cat([past_known[..., moved], future_known[..., moved]], dim=1)
        end = inputs.shape[1]
        now = end - self.task.horizon
        ahead = torch.arange(self.task.horizon, device=inputs.device)
        steps, here = now + ahead, inputs[:, now:]
        seasons = [self.season, *self.longer]
        added = [here - inputs[:, now - season + ahead % season] for season in seasons]
        added += [inputs[:, steps - 1], inputs[:, (steps + 1).clamp(max=end - 1)]]
        if self.season > 1:
            cycle = torch.arange(self.season, device=inputs.device)
            first = (now + ahead // self.season * self.season).clamp(max=end - self.season)
            during = inputs[:, first[:, None] + cycle]
            mean = during.mean(dim=2)
            last = (first - self.season).clamp(min=0)
            before = inputs[:, last[:, None] + cycle].mean(dim=2)
            added += [mean, during.amax(dim=2), here - mean, mean - before]
        return added
