from typing import Any

import pytest
import torch

from forecaster.base.errors import ConfigError, DataError
from forecaster.config.run_config import TrainConfig
from forecaster.train.module import LOSSES, SCHEDULES, ForecastModule, parameter_groups
from tests.train.small import VALIDATION, cycle


def module(**config: Any) -> ForecastModule:
    return ForecastModule(cycle(dropout=0.0).eval(), TrainConfig(**config))


def holes(shape: torch.Size) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.6


def test_schedules() -> None:
    found = {name: [of(epoch, 4) for epoch in range(4)] for name, of in SCHEDULES.items()}
    assert found.pop("cosine") == pytest.approx([1, 0.8535534, 1 / 2, 0.1464466])
    halved = [1, 1 / 2, 1 / 4, 1 / 8]
    assert found == {"constant": [1] * 4, "halve": halved, "type1": [1, *halved[:3]]}


def test_losses() -> None:
    forecast, target = torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0])
    losses = {name: float(loss(forecast, target)) for name, loss in LOSSES.items()}
    assert losses == {"mse": 4.625, "mae": 1.75, "huber": (0.125 + 2.5) / 2}


@pytest.mark.parametrize("name", LOSSES)
def test_only_observed_targets_count(name: str) -> None:
    batch = VALIDATION.batch(torch.arange(8))
    seen = holes(batch.target.shape)
    own = module(loss=name)
    wanted = LOSSES[name](own.model(*batch.inputs)[seen], batch.target[seen])
    for other in (0.0, 1e6):
        gaps = batch._replace(target=batch.target.where(seen, other), target_observed=seen)
        own.zero_grad()
        loss = own.loss(gaps)
        torch.testing.assert_close(loss, wanted)
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in own.parameters())
    nothing = own.loss(batch._replace(target_observed=seen & False))
    nothing.backward()
    assert float(nothing.detach()) == 0


def test_validation_is_over_observed_targets_of_all_batches() -> None:
    own = module()
    logged: dict[str, float] = {}
    own.log = lambda name, value, **options: logged.update({name: float(value)})  # type: ignore[method-assign]
    batch = VALIDATION.batch(torch.arange(10))
    seen = holes(batch.target.shape)
    seen[:4] = False
    target = batch.target.where(seen, 1e6)
    with torch.no_grad():
        own.on_validation_epoch_start()
        for part in torch.arange(10).split(4):  # nothing in the first
            given = {"target": target[part], "target_observed": seen[part]}
            own.validation_step(VALIDATION.batch(part)._replace(**given), 0)
        own.on_validation_epoch_end()
        mse = (own.model(*batch.inputs) - batch.target)[seen].square().mean()
    assert logged == pytest.approx({"validation_mse": float(mse)}, rel=1e-5)


def test_a_validation_without_observed_targets_is_refused() -> None:
    own, batch = module(), VALIDATION.batch(torch.arange(4))
    own.on_validation_epoch_start()
    own.validation_step(batch._replace(target_observed=batch.target.isnan()), 0)
    with pytest.raises(DataError, match=r"train\.validation_windows"):
        own.on_validation_epoch_end()


def test_the_longest_key_that_begins_a_name_gives_its_rate() -> None:
    model = cycle()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, {"encoder": 0.1, "encoder.0.attention": 0.2}, 0.3, 0.01)
    assert sum(len(group["params"]) for group in groups) == len(names)
    for group in groups:
        for name in (names[id(parameter)] for parameter in group["params"]):
            wanted = (0.1, 0.0) if name.startswith("encoder") else (0.3, 0.01)
            if name.startswith("encoder.0.attention"):
                wanted = (0.2, 0.0)
            assert (group["lr"], group["weight_decay"]) == wanted


def test_the_rate_of_a_path_that_is_off_goes_unused() -> None:
    rates = {"linear": 0.1, "encoder": 0.2}
    on, off = (parameter_groups(cycle(linear=each), rates, 0.3, 0.0) for each in (True, False))
    assert [len(group["params"]) for group in on][1:] == [1, len(on[2]["params"])]
    assert [len(group["params"]) for group in off][1:] == [0, len(on[2]["params"])]
    torch.optim.Adam(off)
    for key in ("train", "lineer"):  # not a path of the model
        with pytest.raises(ConfigError, match=rf"lr_of\.{key}: .*embed, encoder, .*linear"):
            parameter_groups(cycle(), {key: 0.1}, 0.3, 0.0)
