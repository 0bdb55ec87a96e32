"""The evaluation of a run: metrics, floors, intervals, examples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from forecaster.base import machine
from forecaster.base.errors import DataError, UsageError
from forecaster.datasets.windows import Batch, Windows
from forecaster.evaluate.backtest import Evaluation
from forecaster.evaluate.figures import Errors
from forecaster.evaluate.headline import headline
from forecaster.evaluate.intervals import (
    SHARES,
    Calibration,
    Coverage,
    in_units,
    percent,
    seen_by,
    sides,
    together,
)
from forecaster.evaluate.joint import covered, with_errors
from forecaster.evaluate.metrics import Score, forecast_with, naive_mae, score, scores
from forecaster.evaluate.rehearsal import rehearse
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.quantiles import Quantiles
from forecaster.parts import Blend, Network, Part, fit_forms
from forecaster.parts.base import forecast_of
from forecaster.plan.data import open_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits
from forecaster.record import Contest, Drawn, Example, Steps
from forecaster.record.challenge import stretches

TARGETS = 4
"""The most targets of an example."""


Calibrated: TypeAlias = tuple[Intervals | None, str, list[Calibration] | None]
"""Intervals; what they are, or why there are none, in a sentence; and the calibrations that made
them, to which the errors of the test windows are added: [] where only these are to count, None
where nothing is to be calibrated."""


def validate(
    splits: Splits, model: Blend, device: str
) -> tuple[Score, Intervals | None, str, list[Calibration] | None]:
    """The score on every window of validation, and what `find_intervals` returns.

    For a single series whose windows all count, the calibrating ones are the last of validation, so
    each window is forecast once.
    """
    whole = splits.validation(device)
    if not splits.plan.uncalibrated and whole.items is None and whole.every == 1:
        levels = tuple(splits.plan.config.intervals.levels)
        calibration = Calibration(model, splits.calibrating(device), levels)
        return calibration.score(whole), *find_intervals(splits, model, device, calibration)
    return score(forecast_with(model), whole), *find_intervals(splits, model, device)


def contested(splits: Splits, found: Score, model: Blend, device: str) -> Contest:
    """The errors that compare a model with the champion, by stretch.

    The windows are the calibrating ones, which chose nothing in the model; if nothing is
    calibrated, all of validation. `found` is the score on all of validation.
    """
    windows = splits.validation(device) if splits.plan.uncalibrated else splits.calibrating(device)
    apart = windows.items is not None or windows.every > 1
    if apart and not splits.plan.uncalibrated:
        found = score(forecast_with(model), windows)
    by_window, steps = found.by_window[-len(windows) :], found.steps
    errors = tuple(stretches(by_window, windows.horizon, steps))
    return Contest(errors=errors, windows=f"{len(windows)} of steps {windows.span}")


def find_intervals(
    splits: Splits, model: Blend, device: str, done: Calibration | None = None
) -> Calibrated:
    """The intervals of a trained model; `done` is the calibration on the calibrating windows, if
    there was one."""
    levels = tuple(splits.plan.config.intervals.levels)
    why_not = splits.plan.uncalibrated
    if not why_not:
        if done is None:
            done = Calibration(model, splits.calibrating(device), levels).complete()
        windows, intervals = done.windows, with_errors(done.intervals(), [done])
        few = f"{len(windows)} of validation {'are' if len(windows) > 1 else 'is'} too few"
        if not intervals.reach(sides(SHARES[0])) and (anew := rehearse(splits, model, device)):
            return anew[0], anew[1] + few, []
        if not intervals.levels:
            return None, f"none: of windows that calibrate, {few}", None
        lost = ", ".join(f"{level:g}" for level in levels if level not in intervals.levels)
        some = f"{intervals.windows} of the" if intervals.windows < len(windows) else "the"
        some += f" {len(windows)}"
        text = f"calibrated on {some} validation windows of rows {windows.span}" + (
            f", too few for the levels {lost}" if lost else ""
        )
        return intervals, text, [done]
    anew = rehearse(splits, model, device) if splits.plan.config.intervals.calibrate else None
    return (anew[0], anew[1] + why_not, []) if anew else (None, f"none: {why_not}", None)


def judge(
    splits: Splits,
    model: Blend,
    device: str,
    intervals: Intervals | None = None,
    parts: Sequence[Part] | None = None,
    done: Sequence[Calibration] | None = None,
) -> Evaluation:
    """Score the model, its intervals and its parts, each alone, on every test window.

    If the calibrations that were `done` are given, the errors of the test windows then calibrate
    the intervals `again`, with theirs or, if there are none, alone.

    `parts` are all parts that were tried, with or without a share in the model, and the network; by
    default the closed forms, fitted anew, and the other parts of the model.
    """
    model = model.to(device).eval()
    if parts is None:
        parts = parts_of(splits, model, device)
    parts = [part.to(device).eval() for part in parts]
    names, scaler = splits.schema.targets, splits.schema.target_scaler
    test, coverage, again = splits.test(device), None, None
    if intervals is not None:
        if done is not None:
            again = Calibration(model, test, tuple(splits.plan.config.intervals.levels))
        coverage = Coverage(model, intervals, scaler, again=again)
    network = next((part.name for part in parts if isinstance(part, Network)), "")
    kinds = list(dict.fromkeys(part.kind for part in model.members))
    without = kinds if len(kinds) > 1 else []

    def forecasts(batch: Batch) -> list[Tensor]:
        """Those of the model, of each part alone, and of the model without each kind."""
        alone = {part.name: forecast_of(part, batch) for part in parts}
        members = [alone[name] for name in model.names]
        ahead = model.mix(members, batch.item)
        if coverage is not None:
            coverage.take(batch, ahead)
        return [ahead, *alone.values(), *(model.mix(members, batch.item, k) for k in without)]

    named = {part.name: part for part in parts}
    whole, *others = scores(forecasts, test)
    alone = dict(zip(named, others, strict=False))
    floors = {name: part.chosen for name, part in named.items() if name != network}
    evaluation = Evaluation(
        model=whole,
        every=test.every,
        floors={name: alone[name] for name in floors},
        chosen=floors,
        targets=names,
        scaler=scaler,
        naive=naive_mae(splits.training(device), splits.plan.dataset.seasons[0]),
        items=None if test.items is None else test.items.names,
        weights=model.shares,
        network=alone.get(network),
        without=dict(zip(without, others[len(named) :], strict=True)),
    )
    anew = None
    if again is not None and intervals is not None:
        anew = together([*(done or ()), again], pooled=not done)
        fits = {*intervals.levels} <= {*anew.levels}
        before = None if done else intervals
        anew = with_errors(anew, [*(done or ()), again], before) if fits else None
    quantiles = None if coverage is None else coverage.record(names, again=anew is not None)
    if again is not None and intervals is not None and quantiles is not None:
        quantiles = quantiles.model_copy(update={"totals": covered(intervals, again)})
    judged = replace(evaluation, intervals=quantiles, recalibrated=anew)
    return replace(judged, headline=headline(splits, judged, named, test))


def parts_of(splits: Splits, model: Blend, device: str) -> list[Part]:
    """The closed forms, fitted anew unless the model has them, and the other parts of the model."""
    members = dict(zip(model.names, model.members, strict=True))
    parts = [members.get(part.name, part) for part in fit_forms(splits.fold(device))[0]]
    return parts + [part for part in members.values() if part not in parts]


def errors_of(splits: Splits, train: Windows, found: Score) -> Errors:
    naive = naive_mae(train, splits.plan.dataset.seasons[0])
    return Errors(found, np.atleast_2d(splits.schema.target_scaler.std), naive)


def reopen(bundle: Bundle, *, anew: bool = False) -> Splits:
    """The splits that a bundle was trained on, to judge the bundle or, if `anew`, to train again.

    Raises UsageError for judging a bundle that has seen the test rows, DataError for other data.
    """
    if bundle.about["refit"] and not anew:
        raise UsageError(
            "this bundle was refitted on all rows, including the test split, so its weights cannot "
            "be judged; the figures measured before the refit are in its metrics.json"
        )
    dataset = open_data(bundle.config.data, bundle.schema.reading)
    effects = bundle.schema.known.effects
    plan = make_plan(bundle.config, dataset)
    splits = make_splits(plan, known="estimated" if anew else effects)
    if dataset.digest != bundle.about["data_digest"]:
        raise DataError(
            f"the bundle was trained on {bundle.about['data_digest']}, but {plan.series.source} "
            f"has digest {dataset.digest}: the figures would not be comparable"
        )
    return splits


def rejudge(bundle: Bundle, device: str) -> Evaluation:
    """Repeat the evaluation of a bundle on its own data, with the intervals that were judged."""
    splits, model = reopen(bundle), bundle.build().to(device).eval()
    if bundle.intervals is None:
        return judge(splits, model, device)
    _, intervals, _, done = validate(splits, model, device)
    return judge(splits, model, device, intervals, done=done)


def picked(errors: np.ndarray) -> dict[str, int]:
    """The windows with the least, the median and the largest error; `errors` (n,) are of all, nan
    without observations."""
    order = np.argsort(errors, kind="stable")[: np.count_nonzero(~np.isnan(errors))]
    places = {"best": 0, "median": len(order) // 2, "worst": -1}
    return {name: int(order[place]) for name, place in places.items()}


def example(
    splits: Splits,
    model: Blend,
    intervals: Intervals | None,
    found: Score,
    number: int,
    device: str,
) -> Example:
    """A test window with up to TARGETS targets, the main one first; `found` is the score on all.

    The band is that of the first share, or the widest that there is.
    """
    test, targets = splits.test(device), splits.schema.targets
    forecast, band, share = in_band(splits, model, intervals, test.batch(torch.tensor([number])))
    first = splits.plan.dataset.main_target
    order = sorted(range(len(targets)), key=lambda place: targets[place] != first)[:TARGETS]
    item, row, step = test.origin(number)
    items, values = splits.plan.series.items, splits.plan.series.values
    there = row if items is None else row - int(items.bounds[item])
    before = min(test.past, there, max(test.horizon, 2 * splits.plan.dataset.seasons[0]))
    title = f"{splits.plan.config.data.label}, test window {number + 1} of {len(test)}"
    if items is not None:
        title += f", series {items.names[item]}"
    if len(order) < len(targets):
        title += f" (first {len(order)} of {len(targets)} columns)"
    drawn = {}
    for place in order:
        column = values[row - before : row + test.horizon, splits.schema.target_positions[place]]
        ends = {} if band is None else dict(zip(("low", "high"), band[:, place].T, strict=True))
        columns = {
            "history": column[:before],
            "forecast": forecast[:, place],
            "truth": column[before:],
            **ends,
        }
        drawn[targets[place]] = Drawn(**{name: rounded(steps) for name, steps in columns.items()})
    begin = splits.plan.series.times[step - before].isoformat()
    mse = float(found.by_window[number])
    return Example(title=title, mse=mse, begin=begin, share=share, targets=drawn)


def rounded(values: np.ndarray) -> Steps:
    """Values (n,) with six digits, None for those that are not finite."""
    return tuple(float(f"{value:.6g}") if np.isfinite(value) else None for value in values)


def in_band(
    splits: Splits, model: Blend, intervals: Intervals | None, batch: Batch
) -> tuple[np.ndarray, np.ndarray | None, str]:
    """The forecast (T, K) of the first window of a batch, the ends of its band (T, K, 2), in units,
    and the share of the band in percent."""
    with torch.inference_mode(), machine.exact():
        ahead = forecast_with(model)(batch)
        if batch.shift is not None:
            ahead = ahead + batch.shift[:, -ahead.shape[1] :]
    scaled = ahead.double()
    scaler, within = splits.schema.target_scaler, splits.schema.within
    forecast = within(in_units(scaled.cpu().numpy()[..., None], scaler, batch.item)[0])[..., 0]
    share = intervals.widest(SHARES[0]) if intervals else None
    if intervals is None or share is None:
        return forecast, None, ""
    quantiles, levels = Quantiles(intervals).to(scaled.device), scaled.new_tensor(sides(share))
    past, known, seen, item = seen_by(batch, model.task)
    ends = quantiles(scaled, past, known, seen, levels, item).cpu().numpy()
    return forecast, within(in_units(ends, scaler, batch.item)[0]), percent(share)
