"""Made-up histories that a model forecasts when it is saved, and must forecast alike afterwards.

A wave without noise tests little: a model that starts at the mean cycle forecasts it as well
without its network. These histories are noisy, with several cycles, levels and scales, shifts, all
sorts of covariates, words, series and attributes, and several times of the calendar; every fourth
has gaps. They follow from the schema and the lengths alone, so a bundle keeps only their numbers
and forecasts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from forecaster.base.errors import BundleError, DataError
from forecaster.datasets.dataset import id_parts
from forecaster.plan.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from forecaster.forecast.predictor import Predictor
    from forecaster.forecast.question import Question

KEPT, FEWEST = 16, 4
"""How many histories a bundle keeps, and the fewest, when a forecast is long and wide."""
NUMBERS = 2**21
"""The most numbers in all forecasts that a bundle keeps together: 8 MiB."""
BATCH = 4
"""How many histories are forecast together; either all of them have gaps or none."""
NOISE, STEADY = 3e-6, 1e-5
"""How far other arithmetic may move a value, and how far that may move a forecast, in standard
deviations. A history whose forecast moves further, because an attention chooses among values that
are nearly equal, is not kept if there are others."""
ALLOWED = {"cpu": 1e-4, "cuda": 1e-3}
"""How far a forecast on each device may be from the kept one: the root mean square over the steps
of a column or quantile, in standard deviations of the series. For a GPU, it is ten times what the
tests of attentions allow there, all in float32."""


@dataclass(frozen=True, eq=False)
class Golden:
    """What a bundle keeps: `which` (N,) histories, and their `forecast` (N, T, targets,
    1 + levels), in standard deviations of each series about its mean, followed by the quantiles at
    the model's levels."""

    which: "NDArray[np.int64]"
    forecast: "NDArray[np.float32]"


def apart(now: np.ndarray, then: np.ndarray) -> np.ndarray:
    """The distance of forecasts (N, T, K, Q) from the kept ones: the largest over columns and
    quantiles, for each history (N,). nan where a forecast is not a number."""
    distance: np.ndarray = np.sqrt(np.square(now - then).mean(axis=1)).max(axis=(1, 2))
    return distance


def count(horizon: int, targets: int, levels: int) -> int:
    """How many histories a bundle keeps."""
    return min(KEPT, max(FEWEST, NUMBERS // (horizon * targets * (1 + levels))))


def steadiest(moved: np.ndarray, size: int) -> np.ndarray:
    """Choose `size` histories, in their order, by how far their forecasts `moved` (N,) under
    NOISE: the first that are steady, and if there are too few, those that moved least."""
    return np.sort(np.where(moved > STEADY, moved, 0).argsort(kind="stable")[:size])


def has_gaps(number: int) -> bool:
    return number % 4 == 3


def batches(which: Sequence[int]) -> Iterator[list[int]]:
    """The positions in `which` of the histories that are forecast together."""
    for gaps in (False, True):
        places = [place for place, number in enumerate(which) if has_gaps(number) == gaps]
        yield from (places[at : at + BATCH] for at in range(0, len(places), BATCH))


def question(schema: Schema, past: int, horizon: int, which: Sequence[int]) -> "Question":
    """The question about the histories with these numbers."""
    import pandas as pd

    from forecaster.forecast.question import Question

    examples = [_Made(schema, past, past + horizon, number) for number in which]
    names = [attribute.name for attribute in schema.known.attributes]
    return Question(
        np.stack([series.values for series in examples]),
        pd.DatetimeIndex([series.start for series in examples]),
        np.stack([series.covariates for series in examples]) if schema.known.columns else None,
        {name: [series.static[name] for series in examples] for name in names},
        [series.item for series in examples] if schema.items else (),
    )


def example(schema: Schema, past: int, horizon: int) -> "pd.DataFrame":
    """A history that the model accepts: a wave of the main season around the mean."""
    import pandas as pd

    ahead = horizon if schema.known.columns else 0
    times = pd.date_range("2026-01-01", periods=past + ahead, freq=schema.freq)
    wave = np.sin(np.arange(past + ahead) * (2 * np.pi / schema.reading.seasons[0]))[:, None]
    mean, std = np.atleast_2d(schema.scaler.mean), np.atleast_2d(schema.scaler.std)
    if schema.wide:
        mean, std = (np.append(moments[:, 0], moments[0, 1:]) for moments in (mean, std))
        names = schema.items + schema.columns[1:]
    else:
        mean, std, names = mean[0], std[0], schema.columns
    frame = pd.DataFrame((mean + std * wave).round(4), columns=list(names))
    frame[past:] = np.nan
    if schema.known.scaler is not None:
        known = schema.known.scaler.mean + schema.known.scaler.std * wave
        frame[list(schema.known.columns)] = known.round(4)
        frame = frame.assign(**dict.fromkeys(schema.known.flags, (wave > 0.9).astype(int)[:, 0]))
    for name, words in schema.reading.categories.items():
        parts = list(schema.reading.read_as([name]))
        there = frame[parts[0]].notna()
        frame.insert(list(frame).index(parts[0]), name, there.map({True: words[0]}))
        frame = frame.drop(columns=parts)
    for attribute in schema.known.attributes:
        frame[attribute.name] = attribute.words[0] if attribute.words else attribute.mean
    frame.insert(0, schema.time, times)
    for place, column in enumerate(schema.id):
        frame.insert(place, column, id_parts(schema.items[0], len(schema.id))[place])
    return frame


def forecasts(model: "Predictor", which: Sequence[int], noise: float = 0.0) -> np.ndarray:
    """The forecasts of the histories, followed by their quantiles at the model's levels,
    (N, T, targets, 1 + levels), in standard deviations of each series about its mean.

    `noise`: how far each value is moved first, in the same unit.
    """
    schema, form, levels = model.schema, model.form, model.levels
    shape = len(which), form.horizon, len(schema.targets), 1 + len(levels)
    answers, random = np.empty(shape, np.float32), np.random.default_rng(0)
    for places in batches(which):
        numbers = [which[place] for place in places]
        histories = question(schema, form.past, form.horizon, numbers)
        scaler = model.scaler_of(histories)
        if noise:
            steps = noise * scaler.std * random.normal(size=histories.values.shape)
            histories = replace(histories, values=histories.values + steps)
        forecast, quantiles = model.forecast_quantiles(histories, levels)
        target_scaler = scaler.select(schema.target_positions)
        ahead = np.concatenate([forecast[..., None], quantiles], axis=-1)
        answers[places] = (ahead - target_scaler.mean[..., None]) / target_scaler.std[..., None]
    return answers


def check(model: "Predictor") -> None:
    """Raise BundleError unless the forecasts of the made-up histories equal those saved in the
    bundle, within the tolerance of the device. A bundle saved without any passes."""
    saved, allowed = model.bundle.golden, ALLOWED[model.device]
    if saved is None:
        return
    try:
        away = float(apart(forecasts(model, saved.which.tolist()), saved.forecast).max())
        reason = f"they differ by up to {away:.2g} standard deviations"
    except DataError as error:
        away, reason = np.inf, str(error)
    if not away <= allowed:
        raise BundleError(
            f"the model does not reproduce the forecasts it was saved with: {reason}, expected "
            f"at most {allowed:g}. Fetch the bundle again or train anew"
        )


class _Made:
    """A made-up history: `values` (P, C) and `covariates` (P + T, K) in units, and attributes."""

    def __init__(self, schema: Schema, past: int, steps: int, number: int) -> None:
        self.schema, self.number = schema, number
        self.random = np.random.default_rng([17, number])
        reading = schema.reading
        self.words = {n: self._words(reading.read_as([n]), steps) for n in reading.categories}
        place = None
        if schema.items and number % 5 != 4:  # the others are unknown series
            place = number * 7919 % len(schema.items)
        self.item = None if place is None else schema.items[place]
        scaled = self._waves(steps, len(schema.columns))
        mean, std = np.atleast_2d(schema.scaler.mean), np.atleast_2d(schema.scaler.std)
        values = mean[place or 0] + std[place or 0] * scaled
        self.values = self._with_words(schema.columns, values)[:past]
        if has_gaps(number):
            self.values[self._gaps(past)] = np.nan
        known = schema.known
        if known.scaler is not None:
            levels = known.scaler.inverse(self._waves(steps, len(known.columns)))
            self.covariates = self._with_words(known.columns, levels)
        self.static = {
            attribute.name: self.random.choice(attribute.words).item()
            if attribute.words
            else attribute.mean + attribute.std * self.random.normal()
            for attribute in known.attributes
        }

    @property
    def start(self) -> "pd.Timestamp":
        """The start: each history has another day of several years, and place in the season."""
        import pandas as pd

        season = min(self.schema.reading.seasons[0], 10_000)
        day = pd.Timestamp("2019-01-01") + pd.Timedelta(days=self.number * 67)
        steps = pd.date_range(day, periods=self.number * 5 % season + 1, freq=self.schema.freq)
        return steps[-1]

    def _waves(self, steps: int, columns: int) -> np.ndarray:
        """Values (steps, columns) about 0, with a different level and scale in each column."""
        random, time = self.random, np.arange(steps)[:, None]
        waves = random.uniform(0.1, 0.8, columns) * random.normal(size=(steps, columns))
        for season in self.schema.reading.seasons[:2]:
            for harmonic in (1, 2):
                phase = random.uniform(0, 2 * np.pi, columns)
                turns = 2 * np.pi * harmonic / season * time
                waves += random.uniform(0.2, 1.2, columns) / harmonic * np.sin(turns + phase)
        walk = random.normal(size=(steps, columns)).cumsum(axis=0) / steps**0.5
        shifted = time >= random.integers(steps // 4, steps, columns)
        waves += walk + random.normal(0, 1.5, columns) * shifted
        scale = np.exp(random.uniform(-1.2, 0.8, columns))
        return np.asarray(random.normal(0, 0.8, columns) + scale * waves)

    def _words(self, parts: Sequence[str], steps: int) -> dict[str, np.ndarray]:
        """The columns of 0 and 1 of a covariate of words; each word stays for some steps."""
        stretch = int(self.random.integers(2, 7))
        places = self.random.integers(len(parts), size=steps // stretch + 1).repeat(stretch)[:steps]
        return {part: (places == place).astype(float) for place, part in enumerate(parts)}

    def _with_words(self, columns: Sequence[str], values: np.ndarray) -> np.ndarray:
        for parts in self.words.values():
            for name in set(parts).intersection(columns):
                values[:, columns.index(name)] = parts[name]
        return values

    def _gaps(self, past: int) -> np.ndarray:
        """A mask (P, C) of missing values: single ones and a stretch."""
        shape = (past, len(self.schema.columns))
        gaps = self.random.random(shape) < 0.2
        first = int(self.random.integers(past))
        gaps[first : first + past // 8] |= self.random.random(shape[1]) < 0.5
        gaps[self.random.integers(past)] = False  # each column has a value
        return gaps
