from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from forecaster.parts import fit_forms
from forecaster.parts.base import filled
from forecaster.parts.smoothing import LONGEST, Smoothing, extended, reach
from tests.parts import folds
from tests.parts.folds import HORIZON


def method(series, counted, season, rates, horizon):
    """The errors and the forecast of one method, step by step, from its best first state."""
    level, trend, seasonal, damping = rates
    states = 2 + (season if season > 1 else 0)

    def run(values, first):
        now, slope, shape, errors = first[0], first[1], list(first[2:]) or [0.0] * season, []
        for step, value in enumerate(values):
            off = value - now - damping * slope - shape[step % season]
            now, slope = now + damping * slope + level * off, damping * slope + trend * off
            if season > 1:
                shape[step % season] += seasonal * off
            errors.append(off)
        steps = range(len(values), len(values) + horizon)
        rises = np.cumsum([damping ** (1 + step - len(values)) for step in steps])
        ahead = [now + r * slope + shape[s % season] for r, s in zip(rises, steps, strict=True)]
        return np.array(errors), np.array(ahead)

    nothing, zero = np.zeros(states), np.zeros(len(series))
    alone = run(series, nothing)[0]
    by_state = np.stack([run(zero, unit)[0] for unit in np.eye(states)], axis=1)
    roots = np.sqrt(counted)[:, None]
    penalties = np.diag(np.sqrt([1e-4, 0.05, *[1e-3] * (states - 2)]))
    left = np.concatenate([roots * by_state, penalties])
    right = np.concatenate([-roots[:, 0] * alone, nothing])
    return run(series, np.linalg.lstsq(left, right, rcond=None)[0])


def smoothed(values, seen, season, horizon):
    """Values (P,) -> (T,): all methods, with Akaike weights."""
    recent = 0.5 ** (np.arange(len(values))[::-1] / (2 * max(season, 4)))
    counted, middle = recent * seen, values.mean()
    count, fits, forecasts = counted.sum(), [], []
    for cycle in [1] + ([season] if 1 < season <= len(values) // 2 else []):
        for level, seasonal, (trend, damping) in product(
            (0.05, 0.2, 0.5, 0.9),
            (0.0, 0.2) if cycle > 1 else (0.0,),
            ((0.0, 0.0), (0.0, 1.0), (0.15, 0.9), (0.15, 0.98)),
        ):
            rates = level, level * trend, seasonal * (1 - level), damping
            errors, ahead = method(values - middle, recent, cycle, rates, horizon)
            parameters = 2 + (damping > 0) + 2 * (trend > 0)
            parameters += cycle * (cycle > 1) + (seasonal > 0)
            square = (errors**2 * counted).sum() / count
            square += 1e-6 * ((values - middle) ** 2).mean() + 1e-12
            fits.append(-0.5 * count * np.log(square) - parameters)
            forecasts.append(ahead)
    weights = np.exp(np.array(fits) - max(fits))
    return middle + (weights[:, None] * forecasts).sum(axis=0) / weights.sum()


@pytest.mark.parametrize(("past", "season"), [(24, 6), (13, 6), (20, 10), (11, 6), (7, 1), (1, 1)])
@pytest.mark.parametrize("gaps", [False, True])
def test_it_equals_the_loops(past, season, gaps):
    values = folds.holed(folds.series()) if gaps else folds.series()
    data = folds.rest(values)
    part = Smoothing(folds.task_of(data), "x", past, season=season)
    got, (own, there) = folds.forecast(part, data), folds.own_pasts(data)
    for window in range(0, len(data), 31):
        for k in range(2):
            series, seen = own[window, -past:, k].double(), there[window, -past:, k]
            whole = extended(series, seen, season) if gaps else series
            wanted = smoothed(whole.numpy(), seen.numpy(), season, HORIZON)
            np.testing.assert_allclose(got[window, :, k], wanted, atol=2e-4)


def test_before_a_series_its_slope_goes_on():
    line = 3 + 0.5 * torch.arange(20.0)[None]
    seen = torch.arange(20)[None] >= 8
    torch.testing.assert_close(extended(line * seen, seen, 1), line)
    fallen = filled(line * seen, seen, 6) - extended(line * seen, seen, 6)
    torch.testing.assert_close(fallen[0, :9], 0.5 * torch.arange(8.0, -1, -1))  # of two cycles
    few = torch.arange(20)[None] >= 9
    torch.testing.assert_close(extended(line * few, few, 6), filled(line * few, few, 6))
    nothing = torch.zeros(1, 20, dtype=torch.bool)
    assert not extended(line * nothing, nothing, 6).any()


def test_it_reads_eight_cycles_where_they_are_short():
    seasons = {1: 32, 7: 56, 12: 96, 52: 312, 168: 336, 200: 336}
    assert {season: reach(season) for season in seasons} == seasons


def test_it_reads_further_than_the_look_back_and_needs_two_cycles():
    fold = folds.fold(folds.series())
    near = replace(fold, look_back=8)
    (part,) = Smoothing.fit(near)
    assert (part.past, part.season, part.needs) == (24, 6, 12)
    (other,) = Smoothing.fit(replace(near, seasons=(1,), cycle=6))
    assert other.season == 6, "the calendar's cycle, if no season was found"
    others = [each for each in fit_forms(near)[0] if each is not part and each.kind != part.kind]
    assert all(each.needs <= 8 for each in others)


def test_what_makes_no_sense_or_takes_too_much_memory_is_refused():
    task = replace(folds.fold(folds.series()).task, past=10_000)
    for past, season in ((8, 9), (LONGEST + 1, 6)):
        with pytest.raises(ValueError, match=rf"^x: {past} steps do not hold a season of {season}"):
            Smoothing(task, "x", past, season=season)
