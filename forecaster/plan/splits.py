"""The windows of training, stopping, calibrating and test, made from one scaled table."""

import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from forecaster.base.errors import DataError
from forecaster.config.run_config import RunConfig
from forecaster.datasets.calendar import phase_weights
from forecaster.datasets.card import Borders, End
from forecaster.datasets.known import Effects
from forecaster.datasets.windows import Windows, sample
from forecaster.model import ForecastModel
from forecaster.model.start import Example, is_open, with_start
from forecaster.parts import Fold, Forms, blend_forms, fit_forms, ridge
from forecaster.parts.blend import SHORT
from forecaster.parts.products import by_window, ratio
from forecaster.plan import effects
from forecaster.plan.effects import Shift
from forecaster.plan.plan import Plan, cycle
from forecaster.plan.schema import Schema
from forecaster.plan.transform import scaled_limits

MOST = 100_000
"""The approximate number of a panel's windows that are judged in a split: if there are more, evenly
spaced ones are taken."""
HURRIED = 1000
"""The same of any series with `train.time_limit`: a round number."""
START_WINDOWS = 512
"""The most training windows, evenly spaced, that decide where a network starts."""
ITEMS = 1000
"""The number of a panel's series that are scaled at once."""
WORSE, EARLIER = 1.08, 2
"""The effects of covariates are used if the forecast is at most this much worse for it: it answers
a changed covariate rightly then, and on later rows it was at most 3 % worse up to there, mostly
better. For each window that stops training EARLIER ones are compared: they hold other seasons."""


class Splits:
    """The windows of each part of a plan, scaled as its `schema` says.

    `forms` are the closed forms fitted to its training rows, if choosing the effects of covariates
    took that; None: they are not fitted yet.
    """

    def __init__(self, plan: Plan, schema: Schema) -> None:
        self.plan, self.schema = plan, schema
        self.forms: Forms | None = None
        self._tables: dict[str, tuple[torch.Tensor | None, ...]] = {}

    def at(self, borders: Borders) -> "Splits":
        """The same rows, scaled alike, with other borders: a cut-off."""
        _ = self._scaled  # both share it
        other = copy(self)
        other.plan, other.forms = replace(self.plan, borders=borders), None
        return other

    def with_effects(self, known: Effects | None) -> "Splits":
        """The same windows, less these effects of covariates."""
        _ = self._scaled  # both share it
        other = copy(self)
        other.schema = replace(self.schema, known=replace(self.schema.known, effects=known))
        other.forms, other._tables = None, {}
        other.__dict__.pop("_base", None)
        return other

    def choose_look_back(self) -> "Splits":
        """The same windows with the look-back that a ridge prefers on the windows that stop
        training, among that of the plan and those it names; before effects are taken out."""
        plan = self.plan
        if not plan.longer:
            return self
        other, pasts = self.at(plan.borders), (plan.config.window.lengths()[0], *plan.longer)
        other.plan = plan.looking_back(max(pasts))
        other.plan = plan.looking_back(ridge.best(other.fold("cpu"), pasts))
        return other

    def estimate(self) -> Effects | None:
        """The effects of the covariates in the training rows."""
        plan = self.plan
        if not (plan.series.known_columns and plan.config.data.effects):
            return None
        values, covariates, _ = self._scaled
        assert covariates is not None
        items = plan.series.layout
        return effects.fit(
            values[:, list(self.schema.target_positions)],
            covariates,
            items,
            items.rows_before(plan.borders.parts["train"][1]),
            plan.dataset.seasons,
            plan.config.window.lengths()[0],
        )

    def choose_effects(self) -> "Splits":
        """The same windows with the effects of covariates, estimated from the training rows.

        They are taken out of the targets unless that makes the forecast of all parts but the
        network, which is yet to be trained, worse by WORSE: on the windows that stop training, and
        on EARLIER times as many of training, as a summer does not say what cold does. In each
        window errors count relative to those with and without: no extreme week decides alone.
        """
        if (known := self.estimate()) is None:
            return self
        if not known.terms:
            return self.with_effects(known.unused)
        both = [self.with_effects(variant) for variant in (known, known.unused)]
        errors = []
        for splits in both:
            fold = splits.fold("cpu")
            splits.forms = fit_forms(fold)
            fitted, rehearsed, rehearsal = splits.forms
            without = [[part for part in of if not part.whole] for of in (fitted, rehearsed)]
            blend = blend_forms(fold, (without[0], without[1], rehearsal))
            earlier = fold.train.looking_back(fold.task.past)
            stop = by_window([blend], fold.choose)
            errors.append(torch.cat([stop, by_window([blend], earlier, EARLIER * len(stop))]))
        return both[1] if ratio(*errors) > WORSE else both[0]

    def refitted(self) -> "Splits":
        """The windows of the same plan with every row a training row, scaled anew."""
        plan, used = self.plan.refitted, self.schema.known.shifting
        whole = Splits(plan, plan.fit_schema())
        known = whole.estimate()
        return whole.with_effects(known.unused if known and not used else known)

    def windows(self, first: End, last: End, device: str) -> Windows:
        """The windows whose targets lie in steps [first, last) of the grid, scaled.

        All windows on a device share its table. Of a single series they get the rows before `last`
        alone, so that nothing can read the others.
        """
        series, known = self.plan.series, self.schema.known
        past, _, horizon = self.plan.config.window.lengths()
        table = self._on(device)
        if isinstance(last, int) and series.items is None:
            table = tuple(None if column is None else column[:last] for column in table)
        values, calendar, covariates, shift = table
        assert values is not None
        assert calendar is not None
        static = known.encode(series.static) if known.attributes else None
        limits = scaled_limits(self.schema)
        return Windows(
            values=values,
            calendar=calendar,
            past=past,
            horizon=horizon,
            first=first,
            last=last,
            targets=self.schema.target_positions,
            items=series.items,
            covariates=covariates,
            static=None if static is None else torch.from_numpy(static).to(device),
            shift=shift,
            limits=None if limits is None else limits.to(device),
            base=None if self._base is None else self._base.to(device),
        )

    @cached_property
    def _base(self) -> torch.Tensor | None:
        """What scaled zeros of the targets stand for, in standard deviations, (targets,) or
        (S, targets); None unless all training values are positive, and whole."""
        series, schema = self.plan.series, self.schema
        if schema.known.shifting:
            return None
        rows = series.layout.before(self.plan.borders.parts["train"][1])
        values = series.values[rows][:, list(schema.target_positions)]
        scaler = schema.target_scaler
        base = torch.from_numpy((scaler.mean / scaler.std).astype(np.float32))
        positive = not (values <= 0).any() and bool((base > 0).all())
        return base if positive else None

    def _on(self, device: str) -> tuple[torch.Tensor | None, ...]:
        """All values, less the effects of covariates, calendar, covariates and these effects."""
        if device not in self._tables:
            (values, covariates, calendar), shift = self._scaled, None
            if (known := self.schema.known.shifting) and covariates is not None:
                shift = Shift(known).table(covariates, self.plan.series.layout)
                values = values.copy()
                values[:, list(self.schema.target_positions)] -= shift.numpy()
            arrays = (values, calendar, covariates)
            tensors = [None if array is None else torch.from_numpy(array) for array in arrays]
            self._tables[device] = tuple(
                None if tensor is None else tensor.to(device) for tensor in (*tensors, shift)
            )
        return self._tables[device]

    @cached_property
    def _scaled(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """All values and covariates, scaled, and the calendar of the grid."""
        series, schema = self.plan.series, self.schema
        items = series.layout
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
            series, row = self.plan.series, begin + int(place)
            item, step = series.layout.locate(row)
            owner = f", series '{series.items.names[item]}'" if series.items else ""
            raise DataError(
                f"{series.source}{owner}, {series.times[step]}, column '{series.columns[column]}': "
                f"{series.values[row, column]:g} is too far from the training rows to be scaled; "
                "correct it, or leave the cell empty."
            )
        return narrow

    def training(self, device: str) -> Windows:
        return self.windows(*self.plan.borders.parts["train"], device)

    def judging(self, first: End, last: End, device: str) -> Windows:
        """The same windows with all the steps that a part of the model may read."""
        return self.windows(first, last, device).looking_back(self.plan.config.window.steps)

    def validation(self, device: str) -> Windows:
        return self.judging(*self.plan.borders.parts["validation"], device).spaced(most(self.plan))

    def stopping(self, device: str) -> Windows:
        """The validation windows that stop training."""
        return self.windows(*self.plan.stop, device)

    def calibrating(self, device: str) -> Windows:
        """The other validation windows, which calibrate the intervals."""
        return self.judging(*self.plan.halves["calibrate"], device).spaced(most(self.plan))

    def test(self, device: str) -> Windows:
        """The test windows, which only the evaluation reads, after training."""
        return self.judging(*self.plan.borders.parts["test"], device).spaced(most(self.plan))

    def fold(self, device: str) -> Fold:
        """The data for fitting the parts; the windows that stop training also choose parts."""
        plan, schema = self.plan, self.schema
        window, seasons = plan.config.window, plan.dataset.seasons
        return Fold(
            replace(schema.task(*window.lengths()), past=window.steps),
            self.training(device),
            self.judging(*plan.stop, device),
            seasons,
            tuple(phase_weights(schema.freq, season) for season in seasons),
            (schema.holidays is not None) + len(schema.known.columns),
            window.lengths()[0],
            cycle(plan.dataset),
            (plan.config.part or "").partition(":")[2] or None,
        )

    def build_model(self) -> ForecastModel:
        """The untrained network, a function of the configuration and its seed alone."""
        config = self.plan.config
        task = self.schema.task(*config.window.lengths())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return config.build_model(task)


def most(plan: Plan) -> int:
    """The most windows that judge: all of one series, unless time is limited."""
    if plan.config.train.time_limit is not None:
        return HURRIED
    return sys.maxsize if plan.series.items is None else MOST


def make_splits(
    plan: Plan, *, known: Effects | Literal["estimated"] | None = "estimated"
) -> Splits:
    """The windows of a plan, its look-back, where its network starts, and whether it is refitted.

    The effects of covariates `known` ahead are estimated unless they are given. Raises DataError
    for defects of the data that would end a run only after its training, UsageError for names of
    columns that those of quantiles would repeat.
    """
    splits = Splits(plan, plan.fit_schema())
    splits.schema.check_names(plan.config.intervals.levels)
    if plan.series.items is None:
        plan.check(splits.schema.targets)
        _ = splits._scaled
    splits = splits.choose_look_back()
    splits = splits.choose_effects() if known == "estimated" else splits.with_effects(known)
    if is_open(plan.config.model.options):
        splits.plan = replace(splits.plan, config=started(splits))
    if plan.config.train.refit is None:
        short = len(splits.training("cpu")) < SHORT
        config = splits.plan.config.changed(train={"refit": short})
        splits.plan = replace(splits.plan, config=config)
    return splits


def started(splits: Splits) -> RunConfig:
    """The configuration of a plan, with what the data decide about the start of its network."""
    config, training = splits.plan.config, splits.training("cpu")
    task = splits.schema.task(*config.window.lengths())

    def build(options: dict[str, Any]) -> ForecastModel:
        return config.changed(model=options).build_model(task)

    return config.changed(
        model=with_start(config.model.options, build, training.rows, lambda: examples(training))
    )


def examples(training: Windows) -> Iterator[Example]:
    """The windows that decide where a network starts."""
    for batch in sample(training, START_WINDOWS):
        yield batch.inputs, batch.target, batch.target_observed
