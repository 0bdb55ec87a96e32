import pytest

from forecaster.parts import DampedTrend, Drift
from forecaster.parts.base import filled
from tests.parts import folds
from tests.parts.folds import HORIZON

RATES = {"level": 0.3, "trend": 0.1, "seasonal": 0.05, "damping": 0.9}


def drifting(past, season):
    """Past (P,) -> (T,): the last cycle, higher by the mean rise of a cycle."""
    cycles = past.double().view(-1, season)
    rise = (cycles[-1].mean() - cycles[0].mean()) / (len(cycles) - 1)
    return [float(cycles[-1, t % season] + rise * (t // season + 1)) for t in range(HORIZON)]


def smoothed(past, season, rates):
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
@pytest.mark.parametrize("gaps", [False, True])
def test_parts_equal_the_loops(past, season, gaps):
    data = folds.rest(folds.holed(folds.series()) if gaps else folds.series())
    task = folds.task_of(data)
    drift = folds.forecast(Drift(task, "x", past, season=season), data)
    trend = folds.forecast(DampedTrend(task, "x", past, season=season, **RATES), data)
    own, seen = (each[:, -past:].transpose(1, 2) for each in folds.own_pasts(data))
    own = filled(own, seen, season)
    for window in range(0, len(data), 7):
        for k in range(2):
            wanted = drifting(own[window, k], season)
            assert drift[window, :, k].tolist() == pytest.approx(wanted, abs=1e-5)
            wanted = smoothed(own[window, k], season, RATES)
            assert trend[window, :, k].tolist() == pytest.approx(wanted, abs=1e-5)


def test_what_makes_no_sense_is_refused():
    task, wild = folds.fold(folds.series()).task, {**RATES, "level": 1.5}
    for part, season, rates in ((Drift, 6, {}), (DampedTrend, 9, RATES), (DampedTrend, 3, wild)):
        with pytest.raises(ValueError, match=r"^x: "):
            part(task, "x", 6, season=season, **rates)
