import pytest
import torch
from torch import nn

from forecaster.errors import ConfigError
from forecaster.train.module import LOSSES, SCHEDULES, parameter_groups

from .small import cycle


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", [1, 1, 1, 1]),
        ("halve", [1, 1 / 2, 1 / 4, 1 / 8]),
        ("type1", [1, 1, 1 / 2, 1 / 4]),
        ("cosine", [1, 0.8535534, 1 / 2, 0.1464466]),
    ],
)
def test_schedules(schedule: str, factors: list[float]) -> None:
    assert [SCHEDULES[schedule](epoch, 4) for epoch in range(4)] == pytest.approx(factors)


def test_losses() -> None:
    forecast, target = torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0])
    losses = {name: float(loss(forecast, target)) for name, loss in LOSSES.items()}
    assert losses == {"mse": 4.625, "mae": 1.75, "huber": (0.125 + 2.5) / 2}


def test_the_longest_key_that_begins_a_name_gives_its_rate() -> None:
    model = cycle()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, {"encoder": 0.1, "encoder.0.attention": 0.2}, 0.3, 0.01)
    assert sum(len(group["params"]) for group in groups) == len(names)
    for group in groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            if name.startswith("encoder.0.attention"):
                wanted = (0.2, 0.0)
            else:
                wanted = (0.1, 0.0) if name.startswith("encoder") else (0.3, 0.01)
            assert (group["lr"], group["weight_decay"]) == wanted


def test_a_key_without_parameters_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"'lineer'.*positions, embed, encoder, .*linear, window"):
        parameter_groups(cycle(), {"lineer": 0.1}, 0.3, 0.0)


def test_every_parameter_may_have_a_rate_of_its_own() -> None:
    model = nn.ModuleDict({"a": nn.Linear(1, 1)})
    groups = parameter_groups(model, {"a": 0.1}, 0.3, 0.0)
    torch.optim.Adam(groups)
    assert [len(group["params"]) for group in groups] == [0, 2]
