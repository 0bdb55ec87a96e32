import pytest
import torch
from torch import nn

from forecaster.base.errors import ConfigError, DataError, DivergedError
from forecaster.config.run_config import TrainConfig
from forecaster.model import QuantileSpread, pinball_loss
from forecaster.train.module import LOSSES, SCHEDULES, ForecastModule, parameter_groups
from tests.train.small import TASK, VALIDATION, cycle, train


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


def test_metrics_of_others_are_those_that_lightning_knows() -> None:
    import torchmetrics
    from lightning.pytorch.core.module import Metric

    assert torchmetrics.Metric is Metric, "else a module of a user could not log a metric"


def test_losses() -> None:
    forecast, target = torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0])
    losses = {name: float(loss(forecast, target)) for name, loss in LOSSES.items()}
    assert losses == {"mse": 4.625, "mae": 1.75, "huber": (0.125 + 2.5) / 2}


LEVELS = (0.1, 0.5, 0.9)


@pytest.mark.parametrize("name", [*LOSSES, "pinball"])
def test_only_observed_targets_count(name: str) -> None:
    batch = VALIDATION.batch(torch.arange(8))
    seen = torch.rand(batch.target.shape, generator=torch.Generator().manual_seed(0)) < 0.6
    module = ForecastModule(cycle(dropout=0.0).eval(), TrainConfig(loss=name))
    if name == "pinball":
        module.model.spread = QuantileSpread(LEVELS, TASK.horizon, 2)
    whole = module.loss(batch)
    torch.testing.assert_close(module.loss(batch._replace(target_observed=seen | True)), whole)
    ahead = module.model.quantiles(*batch.inputs)
    if name == "pinball":
        each = pinball_loss(ahead[seen][:, None, None], batch.target[seen][:, None, None], LEVELS)
    else:
        each = LOSSES[name](ahead[..., 0][seen], batch.target[seen])
    for other in (0.0, 1e6):
        gaps = batch._replace(target=batch.target.where(seen, other), target_observed=seen)
        module.zero_grad()
        loss = module.loss(gaps)
        torch.testing.assert_close(loss, each)
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
    nothing = module.loss(batch._replace(target_observed=seen & False))
    nothing.backward()
    assert float(nothing.detach()) == 0


@pytest.mark.parametrize("head", [True, False])
def test_validation_is_over_observed_targets_of_all_batches(head: bool) -> None:
    model = cycle(dropout=0.0)
    if head:
        model.spread = QuantileSpread(LEVELS, TASK.horizon, 2)
    module = ForecastModule(model, TrainConfig(loss="pinball" if head else "mse"))
    logged: dict[str, float] = {}
    module.log = lambda name, value, **options: logged.update({name: float(value)})  # type: ignore[method-assign]
    batch = VALIDATION.batch(torch.arange(10))
    seen = torch.rand(batch.target.shape, generator=torch.Generator().manual_seed(0)) < 0.6
    seen[:4] = False
    target = batch.target.where(seen, 1e6)
    with torch.no_grad():
        module.on_validation_epoch_start()
        for part in torch.arange(10).split(4):  # nothing in the first
            module.validation_step(
                VALIDATION.batch(part)._replace(target=target[part], target_observed=seen[part]), 0
            )
        module.on_validation_epoch_end()
        ahead = model.quantiles(*batch.inputs)
    error = (ahead[..., model.middle] - batch.target)[seen]
    assert logged["validation_mse"] == pytest.approx(float(error.square().mean()), rel=1e-5)
    stop = error.square().mean()
    if head:
        stop = pinball_loss(ahead[seen][:, None, None], batch.target[seen][:, None, None], LEVELS)
    assert logged["validation_stop"] == pytest.approx(float(stop), rel=1e-5)


def test_a_validation_without_observed_targets_is_refused() -> None:
    module = ForecastModule(cycle(), TrainConfig())
    batch = VALIDATION.batch(torch.arange(4))
    module.on_validation_epoch_start()
    module.validation_step(batch._replace(target_observed=batch.target.isnan()), 0)
    with pytest.raises(DataError, match="hold no observed target value"):
        module.on_validation_epoch_end()


def test_a_quantile_head_is_trained_and_stopped_by_its_loss() -> None:
    model = cycle(dropout=0.0)
    model.spread = QuantileSpread((0.1, 0.5, 0.9), TASK.horizon, 2)
    module = ForecastModule(model, TrainConfig(loss="pinball"))
    logged: dict[str, float] = {}
    module.log = lambda name, value, **options: logged.update({name: float(value)})  # type: ignore[method-assign]
    batches = [VALIDATION.batch(index) for index in torch.arange(len(VALIDATION)).split(16)]
    with torch.no_grad():
        module.on_validation_epoch_start()
        for batch in batches:
            module.validation_step(batch, 0)
        module.on_validation_epoch_end()
    whole = VALIDATION.batch(torch.arange(len(VALIDATION)))
    quantiles = model.quantiles(*whole[:3]).detach()
    loss = pinball_loss(quantiles, whole.target, (0.1, 0.5, 0.9))
    assert logged["validation_stop"] == pytest.approx(float(loss), rel=1e-5)
    assert float(module.training_step(whole, 0).detach()) == pytest.approx(float(loss), rel=1e-5)
    mse = (quantiles[..., 1] - whole.target).square().mean()
    assert logged["validation_mse"] == pytest.approx(float(mse), rel=1e-5)


def test_a_head_that_leaves_the_numbers_is_an_error() -> None:
    model = cycle(dropout=0.0)
    model.spread = QuantileSpread((0.1, 0.5), TASK.horizon, 2)
    with torch.no_grad():
        model.spread.steps.fill_(torch.inf)
    with pytest.raises(DivergedError, match="the validation error is not finite"):
        train(model, loss="pinball")


def test_the_widths_of_a_head_follow_the_noise() -> None:
    model = cycle()
    model.spread = QuantileSpread((0.1, 0.5, 0.9), TASK.horizon, 2)
    before = model.spread.steps.detach().clone()
    fitted = train(model, loss="pinball", epochs=4)
    assert fitted.best_epoch > 0
    assert (model.spread.steps - before).abs().max() > 0.05
    batch = VALIDATION.batch(torch.arange(len(VALIDATION)))
    with torch.no_grad():
        low, _, high = model.quantiles(*batch.inputs).unbind(dim=-1)
    inside = ((low <= batch.target) & (batch.target <= high)).float().mean()
    assert 0.6 < float(inside) < 0.95


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


def test_the_rate_of_a_path_that_is_off_goes_unused() -> None:
    rates = {"linear": 0.1, "encoder": 0.2}
    assert cycle().linear is not None
    on, off = (parameter_groups(cycle(linear=each), rates, 0.3, 0.0) for each in (True, False))
    assert [len(group["params"]) for group in on][1:] == [1, len(on[2]["params"])]
    assert [len(group["params"]) for group in off][1:] == [0, len(on[2]["params"])]
    torch.optim.Adam(off)
    with pytest.raises(ConfigError, match="'train'"):  # not a path of the model
        parameter_groups(cycle(), {"train": 0.1}, 0.3, 0.0)


def test_every_parameter_may_have_a_rate_of_its_own() -> None:
    model = nn.ModuleDict({"a": nn.Linear(1, 1)})
    groups = parameter_groups(model, {"a": 0.1}, 0.3, 0.0)
    torch.optim.Adam(groups)
    assert [len(group["params"]) for group in groups] == [0, 2]
