import pytest
import torch
from torch import Tensor

from forecaster.parts import DampedTrend, Drift
from forecaster.parts.base import filled
from tests.parts import folds
from tests.parts.folds import HORIZON, PAST, SEASON

RATES = {"level": 0.3, "trend": 0.1, "seasonal": 0.05, "damping": 0.9}


def drifting(past: Tensor, season: int) -> list[float]:
    """Past (P,) -> (T,): the last cycle, higher by the mean rise of a cycle."""
    cycles = past.double().view(-1, season)
    rise = (cycles[-1].mean() - cycles[0].mean()) / (len(cycles) - 1)
    return [float(cycles[-1, t % season] + rise * (t // season + 1)) for t in range(HORIZON)]


def smoothed(past: Tensor, season: int, rates: dict[str, float]) -> list[float]:
    """The recursions of Holt and Winters as in textbooks."""
    values = [float(value) for value in past.double()]
    level, slope = sum(values[:season]) / season, 0.0
    shape = [value - level if season > 1 else 0.0 for value in values[:season]]
    for t in range(season, len(values)):
        before, damped = level, rates["damping"] * slope
        level = rates["level"] * (values[t] - shape[t % season])
        level += (1 - rates["level"]) * (before + damped)
        slope = rates["trend"] * (level - before) + (1 - rates["trend"]) * damped
        if season > 1:
            own = rates["seasonal"] * (values[t] - level)
            shape[t % season] = own + (1 - rates["seasonal"]) * shape[t % season]
    reach = [sum(rates["damping"] ** i for i in range(1, t + 2)) for t in range(HORIZON)]
    return [level + reach[t] * slope + shape[(len(values) + t) % season] for t in range(HORIZON)]


@pytest.mark.parametrize(("past", "season"), [(24, 6), (12, 6), (20, 10), (20, 1), (2, 1)])
def test_parts_equal_the_loops(past: int, season: int) -> None:
    data = folds.rest(folds.series())
    task = folds.task_of(data)
    drift = folds.forecast(Drift(task, "x", past, season=season), data)
    trend = folds.forecast(DampedTrend(task, "x", past, season=season, **RATES), data)
    own, _ = folds.own_pasts(data)
    for window in range(0, len(data), 7):
        for k in range(2):
            newest = own[window, -past:, k]
            assert drift[window, :, k].tolist() == pytest.approx(drifting(newest, season), abs=1e-5)
            wanted = smoothed(newest, season, RATES)
            assert trend[window, :, k].tolist() == pytest.approx(wanted, abs=1e-5)


def test_a_line_with_a_cycle_goes_on() -> None:
    """Drift and an undamped trend continue such a line exactly."""
    steps = torch.arange(400.0)
    line = (0.01 * steps)[:, None].repeat(1, 3)
    cycle = torch.sin(steps * torch.pi / 3)[:, None]
    stairs = 0.1 * (steps // SEASON)[:, None]
    data = folds.rest(line)
    truth = data.batch(torch.arange(len(data))).target
    task = folds.task_of(data)
    got = folds.forecast(Drift(task, "x", PAST, season=1), data)
    torch.testing.assert_close(got, truth, atol=1e-5, rtol=0)
    first = folds.windows(cycle + stairs + torch.zeros(400, 3), 324, 324 + HORIZON)
    got = folds.forecast(Drift(task, "x", PAST, season=SEASON), first)
    truth = first.batch(torch.tensor([0])).target[0]
    torch.testing.assert_close(got[0], truth, atol=1e-4, rtol=0)


def test_gaps_are_filled_by_the_season() -> None:
    data, task = folds.rest(folds.holed(folds.series())), folds.task_of(folds.rest(folds.series()))
    batch = data.batch(torch.arange(len(data)))
    assert batch.observed is not None
    whole = filled(batch.past.transpose(1, 2), batch.observed.transpose(1, 2), SEASON)
    for part in (
        Drift(task, "x", PAST, season=SEASON), DampedTrend(task, "x", PAST, season=SEASON, **RATES)
    ):  # fmt: skip
        wanted = part(whole.transpose(1, 2), *batch.inputs[1:3])
        torch.testing.assert_close(part(*batch.inputs), wanted)


def test_what_makes_no_sense_is_refused() -> None:
    task = folds.fold(folds.series()).task
    with pytest.raises(ValueError, match=r"^x: "):
        Drift(task, "x", 6, season=6)
    for past, season, rates in ((8, 9, RATES), (12, 6, {**RATES, "level": 1.5})):
        with pytest.raises(ValueError, match=r"^x: "):
            DampedTrend(task, "x", past, season=season, **rates)
