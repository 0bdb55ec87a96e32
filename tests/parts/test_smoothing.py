from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from forecaster.parts import fit_forms
from forecaster.parts.base import filled, forecast_of
from forecaster.parts.smoothing import LARGEST, LONGEST, Smoothing, extended, reach
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


def smoothed(values, seen, season, horizon, most=1.0):
    """Values (P,) -> the forecast (T,) of all methods whose damping is at most `most`, with Akaike
    weights, and the log of the sum of these."""
    recent = 0.5 ** (np.arange(len(values))[::-1] / (2 * max(season, 4)))
    counted, middle = recent * seen, values.mean()
    count, fits, forecasts = counted.sum(), [], []
    for cycle in [1] + ([season] if 1 < season <= len(values) // 2 else []):
        for level, seasonal, (trend, damping) in product(
            (0.05, 0.2, 0.5, 0.9),
            (0.0, 0.2) if cycle > 1 else (0.0,),
            ((0.0, 0.0), (0.0, 1.0), (0.15, 0.9), (0.15, 0.98)),
        ):
            if damping > most:
                continue
            rates = level, level * trend, seasonal * (1 - level), damping
            errors, ahead = method(values - middle, recent, cycle, rates, horizon)
            parameters = 2 + (damping > 0) + 2 * (trend > 0)
            parameters += cycle * (cycle > 1) + (seasonal > 0)
            square = (errors**2 * counted).sum() / count
            square += max(1e-6 * ((values - middle) ** 2).mean(), 1e-12)
            fits.append(-0.5 * count * np.log(square) - parameters)
            forecasts.append(ahead)
    weights = np.exp(np.array(fits) - max(fits))
    forecast = middle + (weights[:, None] * forecasts).sum(axis=0) / weights.sum()
    return forecast, max(fits) + np.log(weights.sum())


def with_logarithms(values, seen, season, horizon, base):
    """The same for values whose 0 is `base` above none, by the better one of two densities."""
    plain, evidence = smoothed(values, seen, season, horizon)
    logs = base * np.log(np.maximum(1 + values / base, 0.01))
    ahead, other = smoothed(logs, seen, season, horizon, most=0.99)
    recent = 0.5 ** (np.arange(len(values))[::-1] / (2 * max(season, 4)))
    other -= (recent * seen * logs / base).sum()
    ahead = np.minimum(ahead, logs.max() + base * np.log(2))
    usable = (1 + values / base).min() > 0.01
    share = usable / (1 + np.exp(evidence - other))
    return plain + share * (base * np.exp(ahead / base) - base - plain)


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
            wanted, _ = smoothed(whole.numpy(), seen.numpy(), season, HORIZON)
            np.testing.assert_allclose(got[window, :, k], wanted, atol=2e-4)


@pytest.mark.parametrize("base", [1.5, 4.0, 20.0])
def test_with_logarithms_it_equals_the_loops(base):
    values = folds.series()
    data = replace(folds.rest(values), base=torch.tensor([base, base + 1]))
    part = Smoothing(folds.task_of(data), "x", 24, season=6, logs=True)
    batch = data.batch(torch.arange(0, len(data), 31))
    got = part(*batch.inputs, beside=batch.base)
    for window, past in enumerate(batch.past[:, -24:].double()):
        for k, column in enumerate(folds.TARGETS):
            series = past[:, column].numpy()
            wanted = with_logarithms(series, np.ones(24), 6, HORIZON, base + k)
            np.testing.assert_allclose(got[window, :, k], wanted, atol=2e-3)


def test_a_season_that_grows_with_the_level_needs_logarithms():
    step = torch.arange(400)
    values = torch.exp(0.01 * step + 0.4 * torch.sin(step * torch.pi / 3))
    mean, std = values[:240].mean(), values[:240].std()
    scaled = ((values - mean) / std)[:, None].expand(-1, 3).contiguous()
    plain = folds.fold(scaled)
    fold = replace(plain, train=replace(plain.train, base=(mean / std).expand(2)))
    data = replace(folds.rest(scaled), base=fold.train.base)
    errors = []
    for each in (fold, plain):
        (part,) = Smoothing.fit(each)
        off = forecast_of(part, data.batch(torch.arange(len(data))))
        errors.append(float((off - data.batch(torch.arange(len(data))).target).square().mean()))
    assert errors[0] < 0.3 * errors[1]


@pytest.mark.parametrize("base", [-1.0, 0.0, LARGEST, torch.inf])
def test_what_has_no_logarithms_is_forecast_without(base):
    data = replace(folds.rest(folds.series()), base=torch.tensor([base, base]))
    task = folds.task_of(data)
    batch = data.batch(torch.arange(len(data)))
    with_logs, without = (Smoothing(task, "x", 24, season=6, logs=logs) for logs in (True, False))
    assert torch.equal(forecast_of(with_logs, batch), without(*batch.inputs))


def test_a_history_below_none_has_no_logarithms_and_no_forecast_is_over_twice_its_largest():
    step = torch.arange(24.0)
    task = folds.task_of(folds.rest(folds.series()))
    known, base = torch.zeros(1, 1, 1), torch.full((1, 1, 2), 2.0)
    part, plain = (Smoothing(task, "x", 24, season=6, logs=logs) for logs in (True, False))
    fallen = (-2 - 1e-3 * step)[None, :, None].expand(-1, -1, 3)
    inputs = known, known
    assert torch.equal(part(fallen, *inputs, beside=base), plain(fallen, *inputs))
    rising = (2 * torch.exp(0.3 * (step - 23)) - 2)[None, :, None].expand(-1, -1, 3)
    ahead = part(rising, *inputs, beside=base)
    assert float(plain(rising, *inputs).min()) < float(ahead.max()) <= 2 * 2 - 2 + 1e-5


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
