"""Windows and weights for the tests of the skeletons."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from forecaster.attention import AttentionChoice, AttentionPlan
from forecaster.model import Task

Model = TypeVar("Model", bound=nn.Module)
FULL = AttentionPlan(AttentionChoice("full"), AttentionChoice("full"))


def draw(task: Task, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Random windows: the past, and what is known of the past and of the future."""
    generator = torch.Generator().manual_seed(1)
    features = task.calendar + task.covariates
    lengths = (task.past, task.columns), (task.past, features), (task.horizon, features)
    past, *known = (torch.randn(batch, *shape, generator=generator) for shape in lengths)
    return 3 * past + 2, known[0], known[1]


def scrambled(model: Model, std: float = 0.5) -> Model:
    """The model, with every weight changed from its initial value."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return model
