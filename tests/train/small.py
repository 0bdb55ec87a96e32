"""Small series and models for training."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.config.run_config import TrainConfig
from forecaster.datasets.windows import Windows
from forecaster.model import ForecastModel, Informer, Task, TokenInformer
from forecaster.train.checkpoint import Checkpoints
from forecaster.train.fit import Fit, fit

TASK = Task(columns=2, targets=(0, 1), past=24, start=6, horizon=6, calendar=1, season=6)
FULL = AttentionPlan(AttentionChoice("full"), AttentionChoice("full"))
PROB = AttentionPlan(AttentionChoice("prob", {"factor": 1}), AttentionChoice("prob"))


def windows(first: int, last: int) -> Windows:
    """A noisy cycle of six steps and, for training to find, one of eight; 24 rows give 6."""
    steps = torch.arange(400.0)
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    cycles = torch.sin(steps * torch.pi / 3) + torch.sin(steps * torch.pi / 4)
    values = cycles[:, None] * torch.tensor([1.0, 2.0]) + 0.3 * noise
    return Windows(values, torch.zeros(400, 1), 24, 6, first, last, (0, 1))


TRAIN, VALIDATION = windows(0, 150), windows(150, 200)  # 121 and 45 windows


def cycle(plan: AttentionPlan = PROB, **options: Any) -> TokenInformer:
    torch.manual_seed(0)
    return TokenInformer(TASK, plan, **{"parts": 3, "width": 4, "feed_forward": 4, **options})


def informer(plan: AttentionPlan = PROB, dropout: float = 0.1) -> Informer:
    torch.manual_seed(0)
    return Informer(TASK, plan, width=8, heads=2, feed_forward=8, dropout=dropout)


class Constant(ForecastModel):
    """Forecasts one learned number."""

    def __init__(self, start: float) -> None:
        super().__init__(TASK)
        self.number = nn.Parameter(torch.tensor(start))
        self.unused = nn.Parameter(torch.zeros(2))

    def forward(self, past: Tensor, *known: Tensor | None) -> Tensor:
        forecast = self.number + 0 * self.unused.sum()
        return forecast.expand(len(past), TASK.horizon, 2)


def level(value: float, count: int) -> Windows:
    """`count` windows of a constant series of this value."""
    rows = count + TASK.past + TASK.horizon - 1
    values = torch.full((rows, 2), float(value))
    return Windows(values, torch.zeros(rows, 1), TASK.past, TASK.horizon, 0, rows, (0, 1))


def train(
    model: ForecastModel,
    on: Windows = TRAIN,
    validation: Windows | None = VALIDATION,
    *,
    seed: int = 0,
    until: float | None = None,
    device: str = "cpu",
    report: Callable[[dict[str, float], int], None] = lambda figures, epoch: None,
    checkpoints: Checkpoints | None = None,
    **config: Any,
) -> Fit:
    """Train with a configuration, or, without validation, for `until` epochs of it."""
    config = {"epochs": 2, "batch": 16, "lr": 1e-2, "schedule": "constant", **config}
    return fit(
        model, on, validation, TrainConfig(**config),
        device=device, seed=seed, report=report, epochs=until, checkpoints=checkpoints,
    )  # fmt: skip


def same(one: ForecastModel, other: ForecastModel) -> bool:
    """Whether two models have the same weights, bit for bit."""
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)
