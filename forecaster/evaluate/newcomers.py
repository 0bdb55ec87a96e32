"""How new series of a panel are forecast, measured by hiding the first rows of known ones.

Each is left out of what attributes tell (`forecast.newcomers`) and forecast as a new one, from few
rows or none; the model has seen the series, but not the steps that are compared.
"""

from dataclasses import replace

import numpy as np

from forecaster.datasets.windows import evenly
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.history import History, following
from forecaster.forecast.newcomers import Newcomers, fit, places, typical
from forecaster.forecast.predictor import Predictor, band
from forecaster.forecast.question import Question
from forecaster.plan.schema import Schema
from forecaster.plan.splits import Splits
from forecaster.record import NewSeries

SERIES, WINDOWS = 1000, 256
"""About the most series whose attributes count, and the most windows: together some seconds."""
WORTH = tuple(2.0**power for power in range(-3, 7))
"""How many rows attributes may be worth: hardly any from the second row on, to a quarter of the
level after 200 rows."""


def rehearse(judged: Bundle, splits: Splits, served: Schema, device: str) -> Newcomers | None:
    """What stands in for rows of new series, measured with the `judged` model of the splits on the
    steps that calibrate, and by all rows for the schema that is `served`. None for a single series,
    and for data that are not standardised."""
    plan, schema, scales = splits.plan, splits.schema, splits.schema.scaler
    if not schema.items or not (scales.mean.any() or (scales.std != 1).any()):
        return None
    model, series, items = Predictor(judged, device), plan.series, plan.series.layout
    form, past, targets = replace(model.form, trained=()), model.past, schema.target_positions
    windows = splits.validation("cpu") if plan.uncalibrated else splits.calibrating("cpu")
    known, row, _ = (place.numpy() for place in windows.locate(evenly(windows, WINDOWS)))
    chosen = np.union1d(np.arange(0, len(items), -(-len(items) // SERIES)), known)
    fitted, traits = fit(schema, series, windows.first, past, chosen)
    traits, begin = traits[np.searchsorted(chosen, known)], row + windows.past
    after = following(series, form.horizon)
    history = History(form, form.horizon, [], series, known, after, short="drop")
    question = history.question(known, items.bounds[known + 1] - begin)
    actual = series.values[begin[:, None] + np.arange(form.horizon)][..., targets]
    std = schema.target_scaler.std[known, None]
    calendar, further = np.split(model.calendars(question.starts), [past], axis=1)
    phases, ahead = places(schema, calendar), places(schema, further)
    lengths = [0, *(2**power for power in range(past.bit_length()) if 2**power < past)]

    def hidden(most: int) -> Question:
        """The question with at most so many rows of each series, all of them unknown."""
        rows = np.minimum(question.rows, most)
        there = (np.arange(past) >= past - rows[:, None])[..., None]
        values = np.where(there, question.values, np.nan)
        return replace(question, values=values, rows=rows.tolist(), items=[None] * len(rows))

    def away(worth: float, in_cycle: float = 1) -> float:
        """How far typical values are from the actual ones, if attributes are worth that."""
        total = 0.0
        for values in (hidden(rows).values for rows in lengths):
            scaler = fitted.scaler(traits, values, phases, worth)
            usual = fitted.like(traits, scaler.transform(values), phases, in_cycle)
            error = actual - scaler.inverse(typical(usual, ahead))[..., targets]
            total += float(np.nansum(abs(error / std)))
        return total

    worth = min(WORTH, key=away)
    in_cycle = min(WORTH, key=lambda rows: away(worth, rows))
    worths = {"worth": worth, "worth_in_cycle": in_cycle}
    fitted = replace(fitted, measured=fitted.measured.model_copy(update=worths))
    levels, widths, errors = band(model), list[float](), list[float]()
    for rows in lengths:
        whole, scaler = fitted.filled(hidden(rows), np.arange(len(known)), calendar, traits)
        forecast, quantiles = model._ahead(whole, scaler, model._known(whole), levels)
        error = np.ma.masked_invalid(actual - forecast)
        errors.append(float(abs(error / std).mean()))
        if levels:
            room = abs(np.where(error < 0, quantiles[..., 0], quantiles[..., -1]) - forecast)
            beyond = np.ma.compressed(abs(error) / np.where(room > 0, room, np.inf))
            widths.append(float(np.quantile(beyond, levels[1] - levels[0])))
    falling = np.maximum.accumulate([1.0, *reversed(widths or [1.0] * len(lengths))])[::-1]
    measured = NewSeries(
        series=len(chosen), windows=len(known), rows=(*lengths, past), errors=tuple(errors),
        widths=tuple(falling.tolist()), **worths,
    )  # fmt: skip
    return replace(fit(served, series, len(series.times), past, chosen)[0], measured=measured)
