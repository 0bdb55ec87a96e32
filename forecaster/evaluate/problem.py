"""A configuration made concrete by its data: lengths, columns, borders, windows, scalers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from forecaster.base.errors import DataError, UnavailableError, UsageError
from forecaster.base.progress import Say
from forecaster.base.spelling import joined, spelled
from forecaster.config.run_config import DataConfig, Loaded, RunConfig
from forecaster.datasets.calendar import phase_weights
from forecaster.datasets.card import Borders, is_generated, load_card
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.effects import Effects
from forecaster.datasets.items import End
from forecaster.datasets.known import KnownInputs
from forecaster.datasets.limits import Limit, ends, find_limits
from forecaster.datasets.oddities import Oddity, find_oddities
from forecaster.datasets.reading import Reading, Stamps, Text
from forecaster.datasets.scaling import Scaler
from forecaster.datasets.seasons import candidates
from forecaster.datasets.series import Series, quoted
from forecaster.datasets.sizes import few_windows, panel_sizes, sizes
from forecaster.datasets.windows import Windows
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.schema import Schema
from forecaster.model import ForecastModel
from forecaster.model.start import Example, is_open, with_start
from forecaster.parts import Fold, fit_blend, smoothing
from forecaster.parts.products import by_window, ratio

MOST = 100_000
"""The approximate number of a panel's windows that are judged in a split: if there are more, evenly
spaced ones are taken."""
START_WINDOWS = 512
"""The most training windows, evenly spaced, that decide where a network starts."""
ITEMS = 1000
"""The number of a panel's series that are scaled at once."""
WORSE, EARLIER = 1.08, 2
"""The effects of covariates are used if the forecast is at most this much worse for it: it answers
a changed covariate rightly then, and on later rows it was at most 3 % worse up to there, mostly
better. For each window that stops training EARLIER ones are compared: they hold other seasons."""
FRAME = "./frame"
"""The name of data that come from a frame in Python, not from a file."""


@dataclass(frozen=True)
class Problem:
    """A configuration made concrete by its data: every length known, every column chosen."""

    config: RunConfig
    dataset: Dataset
    series: Series
    borders: Borders
    effects: Effects | None = None
    called: str | None = None
    """The registered name of its models, by default made of data, target and horizon."""

    @cached_property
    def _scaled(self) -> Schema:
        """The schema without the effects of covariates."""
        series, items, known = self.series, self.series.items, self.series.known_columns
        (_, last), (past, _, _) = self.borders.parts["train"], self.config.window.lengths()
        rows: Any = slice(0, self.borders.train)
        if self.dataset.as_it_is:
            shape = (len(series.columns),) if items is None else (len(items), len(series.columns))
            scaler = Scaler(np.zeros(shape), np.ones(shape))
        elif items is None:
            scaler = Scaler.fit(series.values[rows], series.columns)
        else:
            scaler = Scaler.fit_items(series.values, items, last, past, series.columns)
            if series.known is not None:
                rows = items.before(last)
        names = () if items is None else tuple(items.names)
        reading, targets = self.dataset.reading, self.dataset.targets
        return Schema(
            columns=series.columns,
            targets=targets,
            reading=replace(
                reading,
                targets=names if reading.panel else targets,
                past_covariates=reading.read_from([c for c in series.columns if c not in targets]),
                future_covariates=reading.read_from(known),
                static=tuple(series.static),
            ),
            scaler=scaler,
            items=names,
            known=KnownInputs.fit(series, rows),
            holidays=self.config.data.holidays,
            limits=self._limits,
        )

    @property
    def _limits(self) -> tuple[Limit, ...]:
        """The limits of the targets, () for a card without any that the configuration names."""
        data, last = self.config.data, self.borders.parts["train"][1]
        if data.min is data.max is None and not data.is_file:
            return ()
        return find_limits(
            self.series, self.dataset.targets, last, data.min, data.max, counts=data.is_file
        )

    @cached_property
    def schema(self) -> Schema:
        """The schema, with the scalers of the training rows."""
        schema = self._scaled
        return replace(schema, known=replace(schema.known, effects=self.effects))

    def with_effects(self) -> "Problem":
        """The same problem with the effects of its covariates, estimated from the training rows.

        They are taken out of the targets unless that makes the forecast of all parts but the
        network, which is yet to be trained, worse by WORSE: on the windows that stop training, and
        on EARLIER times as many of training, as a summer does not say what cold does. In each
        window errors count relative to those with and without: no extreme week decides alone.
        """
        if (effects := self._estimate()) is None:
            return self
        both = [replace(self, effects=variant) for variant in (effects, effects.unused)]
        if not effects.terms:
            return both[1]
        errors = []
        for fold in (problem.fold("cpu") for problem in both):
            blend, earlier = fit_blend(fold), fold.train.looking_back(fold.task.past)
            stop = by_window([blend], fold.choose)
            errors.append(torch.cat([stop, by_window([blend], earlier, EARLIER * len(stop))]))
        return both[1] if ratio(*errors) > WORSE else both[0]

    def _estimate(self) -> Effects | None:
        """The effects of the covariates in the training rows."""
        if not (self.series.known_columns and self.config.data.effects):
            return None
        values, covariates, _ = self._table
        assert covariates is not None
        items = self.series.layout
        return Effects.fit(
            values[:, list(self._scaled.target_positions)],
            covariates,
            items,
            items.rows_before(self.borders.parts["train"][1]),
            self.dataset.seasons,
            self.config.window.lengths()[0],
        )

    @property
    def digest(self) -> str:
        """The digest of the data, whichever columns are used."""
        return self.dataset.digest

    @cached_property
    def oddities(self) -> tuple[Oddity, ...]:
        """Unusual values in the data."""
        return find_oddities(self.series, self.borders)

    def refitted(self) -> "Problem":
        """The same problem with every row a training row, for weights to be deployed."""
        steps = len(self.series.times)
        whole = replace(self, borders=Borders(steps, steps, steps))
        effects = whole._estimate()
        if effects and not (self.effects and self.effects.terms):
            effects = effects.unused
        return replace(whole, effects=effects)

    def check(self) -> None:
        """Raise DataError for defects that would end a run of one series only after its training.

        These are a part without any target value, and a value that cannot be scaled.
        """
        series, targets = self.series, list(self.schema.target_positions)
        ends = (0, self.borders.train, self.borders.validation, self.borders.test)
        for part, first, last in zip(
            ("training", "validation", "test"), ends, ends[1:], strict=False
        ):
            if np.isnan(series.values[first:last, targets]).all():
                raise DataError(
                    f"{series.source}: {quoted(self.schema.targets)} without any value in the "
                    f"{part} steps, {series.times[first]} to {series.times[last - 1]}; remove "
                    "these rows, or supply values."
                )
        self._narrow(self.schema.scaler.transform(series.values))

    def windows(self, first: End, last: End, device: str) -> Windows:
        """The windows whose targets lie in steps [first, last) of the grid, scaled.

        All windows on a device share its table. Of a single series they get the rows before `last`
        alone, so that nothing can read the others.
        """
        series, schema, known = self.series, self.schema, self.schema.known
        past, _, horizon = self.config.window.lengths()
        table = self._on(device)
        if isinstance(last, int) and series.items is None:
            table = tuple(None if each is None else each[:last] for each in table)
        values, calendar, covariates, shift = table
        assert values is not None
        assert calendar is not None
        static = known.encode(series.static) if known.attributes else None
        limits = self._scaled_limits
        return Windows(
            values=values,
            calendar=calendar,
            past=past,
            horizon=horizon,
            first=first,
            last=last,
            targets=schema.target_positions,
            items=series.items,
            covariates=covariates,
            static=None if static is None else torch.from_numpy(static).to(device),
            shift=shift,
            limits=None if limits is None else limits.to(device),
        )

    def _on(self, device: str) -> tuple[torch.Tensor | None, ...]:
        """All values, less the effects of covariates, calendar, covariates and these effects."""
        if device not in self._tables:
            (values, covariates, calendar), shift = self._table, None
            if (effects := self.schema.known.shifting) and covariates is not None:
                shift = effects.shift_table(covariates, self.series.items).astype(np.float32)
                values = values.copy()
                values[:, list(self.schema.target_positions)] -= shift
            self._tables[device] = tuple(
                None if array is None else torch.from_numpy(array).to(device)
                for array in (values, calendar, covariates, shift)
            )
        return self._tables[device]

    @cached_property
    def _tables(self) -> dict[str, tuple[torch.Tensor | None, ...]]:
        return {}

    @property
    def _scaled_limits(self) -> torch.Tensor | None:
        """The limits of the targets, (targets, 2) or (S, targets, 2), scaled."""
        if not self.schema.limits:
            return None
        scaler = self.schema.target_scaler
        scaled = (ends(self.schema.limits) - scaler.mean[..., None]) / scaler.std[..., None]
        return torch.from_numpy(scaled.astype(np.float32))

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """All values and covariates, scaled, and the calendar of the grid."""
        series, schema, items = self.series, self._scaled, self.series.layout
        values = np.empty(series.values.shape, np.float32)
        for first in range(0, len(items), ITEMS):
            last = min(first + ITEMS, len(items))
            rows = slice(items.bounds[first], items.bounds[last])
            which = np.repeat(np.arange(first, last), items.lengths[first:last])
            scaler = schema.scaler if series.items is None else schema.scaler.at(which, 2)
            scaled = scaler.transform(series.values[rows])
            values[rows] = self._narrow(scaled, int(items.bounds[first]))
        covariates = None if series.known is None else schema.known.scaled(series.known)
        return values, covariates, schema.calendar(series.times)

    def _narrow(self, scaled: np.ndarray, begin: int = 0) -> np.ndarray:
        """Convert scaled rows from `begin` on to 32 bits. Raises DataError for infinite values."""
        with np.errstate(over="ignore"):
            narrow = scaled.astype(np.float32, copy=False)
        infinite = np.isinf(narrow)
        if infinite.any():
            place, column = np.argwhere(infinite)[0]
            series, row = self.series, begin + int(place)
            item, step = series.layout.locate(row)
            owner = f", series '{series.items.names[item]}'" if series.items else ""
            raise DataError(
                f"{series.source}{owner}, {series.times[step]}, column '{series.columns[column]}': "
                f"{series.values[row, column]:g} is too far from the training rows to be scaled; "
                "correct it, or leave the cell empty."
            )
        return narrow

    def training(self, device: str) -> Windows:
        return self.windows(*self.borders.parts["train"], device)

    def judging(self, first: End, last: End, device: str) -> Windows:
        """The same windows with all the steps that a part of the model may read."""
        return self.windows(first, last, device).looking_back(self.config.window.steps)

    def validation(self, device: str) -> Windows:
        return self.judging(*self.borders.parts["validation"], device).spaced(MOST)

    @property
    def half(self) -> int:
        """The row that halves validation: rows before it stop training, the others calibrate."""
        return (self.borders.train + self.borders.validation) // 2

    @cached_property
    def _halves(self) -> dict[str, tuple[End, End]]:
        """The steps of validation that stop training, and those that calibrate.

        If series are cut by their own lengths, those whose part cannot hold two windows alternate:
        one stops training, the next calibrates.
        """
        (first, last), half = self.borders.parts["validation"], self.half
        middle: End = half
        if self.borders.each and self.series.items is not None:
            past, _, horizon = self.config.window.lengths()
            begin, end = np.asarray(first), np.asarray(last)
            short = end - begin < 2 * horizon
            turns = short & (self.series.items.windows(past, horizon, first, last)[1] > 0)
            stops = np.where(np.cumsum(turns) % 2 == 1, end, begin)
            middle = tuple(np.where(short, stops, (begin + end) // 2).tolist())
        return {"stop": (first, middle), "calibrate": (middle, last)}

    @property
    def uncalibrated(self) -> str:
        """Why nothing is calibrated and all of validation stops training; "" if calibrated."""
        if not self.config.intervals.calibrate:
            return "intervals.calibrate is false"
        past, _, horizon = self.config.window.lengths()
        if self.borders.each and self.series.items is not None:
            if all(
                self.series.items.windows(past, horizon, *steps)[1].any()
                for steps in self._halves.values()
            ):
                return ""
            return f"only one series has a window of {horizon} steps in its validation part"
        stop, rest = self.half - self.borders.train, self.borders.validation - self.half
        if horizon <= min(stop, rest):
            return ""
        return f"validation has {stop + rest} rows, fewer than two horizons of {horizon}"

    def stopping(self, device: str) -> Windows:
        """The validation windows that stop training."""
        return self.windows(*self._stop, device)

    @property
    def _stop(self) -> tuple[End, End]:
        return self.borders.parts["validation"] if self.uncalibrated else self._halves["stop"]

    def calibrating(self, device: str) -> Windows:
        """The other validation windows, which calibrate the intervals."""
        return self.judging(*self._halves["calibrate"], device).spaced(MOST)

    def test(self, device: str) -> Windows:
        """The test windows, which only the evaluation reads, after training."""
        return self.judging(*self.borders.parts["test"], device).spaced(MOST)

    def fold(self, device: str) -> Fold:
        """The data for fitting the parts; the windows that stop training also choose parts."""
        return Fold(
            replace(self.schema.task(*self.config.window.lengths()), past=self.config.window.steps),
            self.training(device),
            self.judging(*self._stop, device),
            self.dataset.seasons,
            tuple(phase_weights(self.schema.freq, season) for season in self.dataset.seasons),
            (self.schema.holidays is not None) + len(self.schema.known.columns),
            self.config.window.lengths()[0],
            cycle(self.dataset),
        )

    def build_model(self) -> ForecastModel:
        """The untrained model, a function of the configuration and its seed alone."""
        task = self.schema.task(*self.config.window.lengths())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return self.config.build_model(task)

    @property
    def name(self) -> str:
        """The registered name of models for this problem."""
        if self.called:
            return self.called
        data, window = self.config.data, self.config.window
        target = "all" if data.features == "M" else "-".join(self.dataset.targets)
        name = f"forecaster-{data.label}-{data.features}-{target}-{window.horizon}"
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def cycle(dataset: Dataset) -> int:
    """The main season, or if none was found the shortest natural cycle of the step, which smoothing
    may use or leave."""
    (main, *_), natural = dataset.seasons, candidates(dataset.series.freq)
    return main if main > 1 or not natural else natural[0]


def find_data(loaded: Loaded, say: Say) -> tuple[RunConfig, Dataset]:
    """The data of the configuration, or its `otherwise` if the user named no data."""
    config, data = loaded.config, loaded.config.data
    try:
        dataset = open_data(data)
    except UnavailableError as error:
        if data.is_file or not data.otherwise or loaded.named("data.name") or data.path:
            raise
        say(
            f"{error}\nThis run uses {data.otherwise} instead of {data.name}: no data set was "
            f"named, and {loaded.origins['data.otherwise']} allows it."
        )
        data = data.model_copy(update={"name": data.otherwise})
        dataset = open_data(data)
    for sentence in dataset.said:
        say(sentence)
    name, path = dataset.name, data.path and data.path.resolve()
    if data.is_file:
        name = str(Path(data.name).expanduser().absolute())
    settled = data.model_copy(update={"name": name, "path": path})  # valid from any folder
    return config.model_copy(update={"data": settled}), dataset


def take_frame(loaded: Loaded, frame: pd.DataFrame, say: Say) -> tuple[RunConfig, Dataset]:
    """The data in a frame, read as those of a file; the configuration names FRAME."""
    from forecaster.datasets.reader import read_frame

    dataset = read_frame(frame, said_of(loaded.config.data), where="the frame")
    for sentence in dataset.said:
        say(sentence)
    return loaded.config, dataset


def open_data(data: DataConfig, reading: Reading | None = None) -> Dataset:
    """The data that a configuration names, read by the `reading` of a bundle if given."""
    from forecaster.datasets.generated import generate
    from forecaster.datasets.reader import read, read_card

    settings = said_of(data)
    if data.name == FRAME:
        raise UsageError("the model was fitted in Python to a frame, which is in no file")
    if data.is_file:
        return read(data.name, reading or settings)
    if is_generated(data.name):
        return generate(data.name)
    card = load_card(data.name)
    return read_card(card, data.path, settings, data.features)


def said_of(data: DataConfig) -> Reading:
    """The settings of a configuration for reading its file."""
    return Reading(
        time=data.time,
        stamps=None if data.stamps is None else Stamps(data.stamps),
        id=tuple(data.ids),
        targets=tuple(data.targets),
        past_covariates=tuple(data.past_covariates),
        future_covariates=tuple(data.future_covariates),
        static=tuple(data.static),
        categorical=tuple(data.categorical),
        sheet=data.sheet or "",
        holidays=data.holidays or "",
        drop_last=data.drop_last,
        freq=data.freq,
        seasons=tuple(data.seasons),
        panel=data.panel,
        policy=data.policy,
        missing=tuple(map(str, data.missing)),
        fill=data.filled,
        text=Text(
            separator={"tab": "\t"}.get(data.separator or "", data.separator or ""),
            decimal=data.decimal or "",
        ),
    )


def make_problem(
    config: RunConfig,
    dataset: Dataset,
    say: Say = lambda _: None,
    *,
    effects: Effects | Literal["estimated"] | None = "estimated",
) -> Problem:
    """Resolve what depends on the data: look-back, features, columns, borders, starts.

    The `effects` of covariates known ahead are estimated unless they are given.

    `say` gets a sentence if the series of a panel are cut by their own lengths by default.
    """
    data, window, series = config.data, config.window, dataset.series
    features, targets = data.features or dataset.features, dataset.targets
    steps, past, where = len(series.times), window.past, str(dataset.name)
    if isinstance(past, str) and past != "auto":
        past = int(past.split()[0]) * dataset.seasons[0]
    elif past == "auto" and dataset.past is not None:
        past = dataset.past
    if dataset.split is None or past == "auto":
        given = None if past == "auto" else int(past)
        if series.items is None:
            borders, past = sizes(steps, window.horizon, dataset.seasons, given, where)
        else:
            (borders, past), why = panel_sizes(
                series.items, steps, window.horizon, dataset.seasons, given, data.split, where
            )
            if why:
                say(why)
    if dataset.split is not None:
        borders = dataset.split.borders(steps, where)
    assert isinstance(past, int)
    if few := few_windows(series.layout, borders, past, window.horizon):
        say(few)
    reach = window.reach
    if reach == "auto":  # a look-back that is given holds for all parts
        is_auto = window.past == "auto"
        reach = max(past, min(smoothing.reach(cycle(dataset)), steps)) if is_auto else past
    start = window.start or max(1, past // 2)
    if start > past:
        raise UsageError(
            f"window.start={start} known steps begin the decoder's input, but the look-back has "
            f"only {past} steps; choose for example "
            f"{spelled('window.start', max(1, past // 2))}"
        )
    resolved = config.model_copy(
        update={
            "data": data.model_copy(
                update={
                    "features": features,
                    "target": None if features == "M" else joined(targets),
                    "split": "series" if borders.each else data.split,
                }
            ),
            "window": window.model_copy(update={"past": past, "start": start, "reach": reach}),
        }
    )
    chosen = series.select(targets) if features == "S" else series
    problem = Problem(resolved, dataset, chosen, borders)
    problem.schema.check_names(config.intervals.levels)
    if chosen.items is None:
        problem.check()
    if effects == "estimated":
        problem = problem.with_effects()
    else:
        problem = replace(problem, effects=effects)
    return replace(problem, config=started(problem)) if is_open(resolved.model.options) else problem


def started(problem: Problem) -> RunConfig:
    """The configuration of a problem, with what the data decide about the start of its network."""
    config, training = problem.config, problem.training("cpu")
    task = problem.schema.task(*config.window.lengths())

    def build(options: dict[str, Any]) -> ForecastModel:
        return with_options(config, options).build_model(task)

    return with_options(
        config,
        with_start(config.model.options, build, training.rows, lambda: examples(training)),
    )


def with_options(config: RunConfig, options: dict[str, Any]) -> RunConfig:
    """The configuration with these options of its network."""
    model = config.model.model_copy(update=options)
    return config.model_copy(update={"model": model})


def examples(training: Windows) -> Iterator[Example]:
    """The windows that decide where a network starts."""
    count = min(len(training), START_WINDOWS)
    places = torch.linspace(0, len(training) - 1, count, dtype=torch.float64).round().long()
    for index in places.split(training.evaluation_batch):
        batch = training.batch(index)
        yield batch.inputs, batch.target, batch.target_observed


def reopen(bundle: Bundle, *, anew: bool = False) -> Problem:
    """The problem that a bundle was trained on, to judge the bundle or, if `anew`, to train again.

    Raises UsageError for judging a bundle that has seen the test rows, DataError for other data.
    """
    if bundle.about["refit"] and not anew:
        raise UsageError(
            "this bundle was refitted on all rows, including the test split, so its weights cannot "
            "be judged; the figures measured before the refit are in its metrics.json"
        )
    dataset = open_data(bundle.config.data, bundle.schema.reading)
    effects = bundle.schema.known.effects
    problem = make_problem(bundle.config, dataset, effects="estimated" if anew else effects)
    if problem.digest != bundle.about["data_digest"]:
        raise DataError(
            f"the bundle was trained on {bundle.about['data_digest']}, but {problem.series.source} "
            f"has digest {problem.digest}: the figures would not be comparable"
        )
    return problem
