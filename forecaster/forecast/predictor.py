"""From a bundle and a history to a forecast in original units, with timestamps and names."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from forecaster.base import extras
from forecaster.base.errors import DataError, UnavailableError, UsageError, of_status
from forecaster.base.installation import is_bundle, no_bundle
from forecaster.datasets.dataset import Items
from forecaster.datasets.scaling import Scaler
from forecaster.forecast import golden, paths, totals, unusual
from forecaster.forecast.answer import Answer
from forecaster.forecast.history import numbers, read
from forecaster.forecast.newcomers import Newcomers
from forecaster.forecast.notices import Notice, NoticeCode, Period, ShortHistory
from forecaster.forecast.question import Form, Question, Times

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from forecaster.config.flags import Policy
    from forecaster.forecast.bundle import Bundle
    from forecaster.forecast.export.description import Description
    from forecaster.forecast.served import ServedModel
    from forecaster.record.ledger import Ledger

BAND = (0.1, 0.9)
"""The levels of the band that is shown where nobody asks for others."""


class Predictor:
    """A trained model ready to forecast.

    `bundle` is what it was loaded from; `device` holds its weights, once.
    """

    def __init__(self, bundle: "Bundle", device: str = "auto") -> None:
        from forecaster.base import machine

        self._learn(bundle)
        self.bundle, self.device = bundle, machine.device(device)
        self.model = bundle.build().to(self.device)
        self._served: dict[int, ServedModel] = {}
        """The models of the parts that need at most a number of rows, by that number."""

    def _learn(self, facts: "Bundle | Description") -> None:
        """Keep what there is to know of the model beside its numbers."""
        self.facts, self.schema, ranges = facts, facts.schema, facts.about.get("ranges")
        sizes = len(self.schema.columns), len(self.schema.targets)
        self.ranges = None if ranges is None else unusual.Ranges.from_dict(ranges, *sizes)
        self.places = {name: place for place, name in enumerate(self.schema.items)}
        """The numbers of the panel's series in training, by name."""
        self.newcomers: Newcomers | None = None
        """What stands in for rows of series that training did not see; None without a panel."""
        if (measured := facts.record.newcomers) is not None:
            effects = np.array(facts.about.get("newcomers"), dtype=np.float64)
            self.newcomers = Newcomers(self.schema, effects, measured)
        self.past, self.horizon = facts.past, facts.horizon
        self.unclear = unusual.undetermined(self.schema)
        self.levels = () if facts.intervals is None else facts.intervals.levels
        """The levels that the intervals hold; empty without intervals."""

    @classmethod
    def load(cls, source: str | Path, device: str = "auto") -> "Predictor":
        """Load a bundle's folder, an MLflow run id, or a registered name (NAME, NAME@alias,
        NAME/version).

        Raises UnavailableError when it cannot be found, BundleError when it is damaged or does not
        reproduce the forecasts that it was saved with.
        """
        forecaster = cls(load_bundle(source), device)
        golden.check(forecaster)
        return forecaster

    @property
    def digest(self) -> str:
        """What identifies the model."""
        return self.bundle.digest

    @property
    def needs(self) -> int:
        """The rows of history that all parts of the model together read."""
        return self.model.needs

    @cached_property
    def least(self) -> int:
        """The fewest rows from which some parts of the model can forecast every step."""
        needs = sorted({part.needs for part in self.model.members})
        return next(rows for rows in needs if self.model.within(rows) is not None)

    def forecast_quantiles(
        self, question: Question, levels: Sequence[float] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Forecast many histories at once.

        A series that training did not know is scaled by its history and, if that is shorter than
        the look-back, by what `newcomers` stand in for; another one with fewer rows than `needs` is
        forecast by the parts that need no more. Returns the forecast (B, T, targets) and
        the quantiles at `levels`, (B, T, targets, len(levels)), in units, rising with the level;
        levels between those of the calibration are interpolated linearly. Raises DataError for
        sizes that do not fit and for values that are infinite before or after the model, UsageError
        as `check_levels` does.
        """
        return self._forecast(question, levels)[:2]

    def _forecast(
        self, question: Question, levels: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
        """`forecast_quantiles`, `Answer.spread` at our own levels, and `Answer.wider`."""
        self.check_levels(levels)
        schema, past, history = self.schema, self.past, question.values
        rows = question.counts
        if history.shape[1:] != (past, len(schema.columns)):
            raise DataError(
                f"expected histories of {past} steps x {len(schema.columns)} columns, got "
                f"{history.shape[1]} x {history.shape[2]}"
            )
        question, scaler, new = self._scaled(question)
        empty = np.isnan(question.values).all(axis=1)
        if empty.any():
            place, column = np.argwhere(empty)[0]
            name = question.items[int(place)] if question.items else None
            owner = f" of series '{name}'" if name else ""
            raise DataError(
                f"the history{owner} has no value at all in column '{schema.columns[column]}' in "
                f"its newest {past} rows"
            )
        with np.errstate(over="ignore"):
            scaled = scaler.transform(question.values).astype(np.float32)
        _check_finite(np.nan_to_num(scaled, posinf=np.inf, neginf=-np.inf), schema.columns,
                           "history, once scaled,")  # fmt: skip
        forecast, quantiles = self._ahead(question, scaler, self._known(question), levels)
        wider = np.ones(len(rows))
        if self.newcomers is not None and len(new) and levels:
            wider[new] = self.newcomers.widths(rows[new])
            widths = wider[new, None, None, None]
            point = forecast[new][..., None]
            quantiles[new] = point + widths * (quantiles[new] - point)
        _check_finite(forecast, schema.targets, "forecast")
        spread, intervals = None, self.facts.intervals
        if intervals is not None and levels and tuple(levels) == self.levels:
            spread = quantiles[..., intervals.half] - forecast
        return (
            schema.within(forecast[..., None], history)[..., 0],
            schema.within(quantiles, history),
            spread,
            wider,
        )

    def _ahead(
        self, question: Question, scaler: Scaler, known: np.ndarray, levels: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """`forecast_quantiles` of valid histories, with the `scaler` and `known` features of each:
        by the parts that each number of rows allows."""
        history = question.values.astype(np.float64, copy=False)
        mean = std = item = at = None
        if self.schema.items:
            mean, std, item = scaler.mean, scaler.std, self.numbers(question)
        banded = tuple(levels) == self.levels
        if levels and not banded:
            at = np.array(levels, dtype=np.float64)
        groups: dict[ServedModel, list[int]] = {}
        for place, count in enumerate(question.rows or [self.needs] * len(history)):
            groups.setdefault(self._serving(count), []).append(place)
        parts = []
        for model, places in groups.items():
            here = slice(None) if len(groups) == 1 else places
            values, features, *panel = (
                None if array is None else array[here]
                for array in (history, known, mean, std, item)
            )
            complete = not np.isnan(history[here]).any()
            options = {"complete": complete, "banded": banded}
            parts.append(model.answer(values, features, at, *panel, **options))
        if len(parts) > 1:
            order = np.argsort(np.concatenate([*groups.values()]))
            parts = [[np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True)]]
        forecast, *quantiles = parts[0]
        return forecast, quantiles[0] if quantiles else np.empty((*forecast.shape, 0))

    def _serving(self, rows: int) -> "ServedModel":
        """What the parts that can forecast from that many rows of history serve. Raises DataError
        if there are none."""
        reach = max((part.needs for part in self.model.members if part.needs <= rows), default=0)
        if reach not in self._served:
            from forecaster.forecast.served import ServedModel

            parts = self.model if reach == self.needs else self.model.within(rows)
            if parts is None:
                raise DataError(f"expected at least {self.least} rows of history, got {rows}")
            model = ServedModel(parts, self.schema, self.facts.intervals, self.device)
            self._served[reach] = model.eval()
        return self._served[reach]

    def answer(self, question: Question, levels: Sequence[float] | None = None) -> Answer:
        """The forecasts of all steps that a question asks for, with quantiles at `levels`, by
        default those of the question, and what stands out in them. Raises as `forecast_quantiles`
        does."""
        levels = question.levels if levels is None else levels
        forecast, quantiles, *widths = self._forecast(question, levels)
        notices = [*question.notices, *unusual.remarks(self, question, forecast, bool(levels))]
        return Answer.of(question, self.form, (forecast, quantiles), levels, notices, *widths)

    def scaler_of(self, question: Question) -> Scaler:
        """The scaler of each history, with arrays (B, 1, C), or one for all."""
        return self._scaled(question)[1]

    def _scaled(self, question: Question) -> tuple[Question, Scaler, "NDArray[np.int64]"]:
        """The question with what stands in for rows that new series lack, `scaler_of` it, and the
        places of these series."""
        schema, (count, past, columns) = self.schema, question.values.shape
        if not schema.items:
            return question, schema.scaler, np.empty(0, dtype=np.int64)
        items = Items([""] * count, np.arange(count + 1) * past, np.zeros(count, dtype=np.int64))
        fitted = Scaler.fit_items(question.values.reshape(-1, columns), items, past, past)
        mean, std = fitted.mean[:, None], fitted.std[:, None]
        places = self.numbers(question)
        trained = places < len(schema.items)
        mean[trained, 0] = schema.scaler.mean[places[trained]]
        std[trained, 0] = schema.scaler.std[places[trained]]
        new = np.flatnonzero(~trained & (question.counts < past) & (self.newcomers is not None))
        if self.newcomers is not None and len(new):
            calendar = self.calendars([question.starts[place] for place in new])[:, :past]
            question, theirs = self.newcomers.filled(question, new, calendar)
            mean[new], std[new] = theirs.mean, theirs.std
        return question, Scaler(mean, std), new

    def numbers(self, question: Question) -> "NDArray[np.int64]":
        """The number of each history's series in training, for another one that of all series."""
        other = len(self.schema.items)
        names = question.items or [None] * len(question.values)
        numbers = [other if name is None else self.places.get(name, other) for name in names]
        return np.array(numbers, dtype=np.int64)

    def _known(self, question: Question) -> np.ndarray:
        """The known features (B, P + T, F): calendar, covariates, static attributes."""
        known, steps = self.schema.known, self.past + self.horizon
        count, covariates = len(question.starts), question.covariates
        parts = [self.calendars(question.starts)]
        if known.columns:
            shape = (count, steps, len(known.columns))
            if covariates is None or covariates.shape != shape:
                got = "none" if covariates is None else f"{covariates.shape}"
                raise DataError(
                    f"this model needs {', '.join(known.columns)} for each step of the look-back "
                    f"and of the horizon, an array {shape}, got {got}"
                )
            scaled = known.scaled(covariates)
            _check_finite(scaled, known.columns, "table of covariates, once scaled,")
            parts.append(scaled)
        if known.attributes:
            encoded = known.encode(question.static)
            parts.append(np.broadcast_to(encoded[:, None], (count, steps, encoded.shape[1])))
        return np.concatenate(parts, axis=2)

    @cached_property
    def form(self) -> Form:
        schema = self.schema
        attributes = {attribute.name: attribute.words for attribute in schema.known.attributes}
        return Form(
            schema.reading, schema.columns, self.past, self.needs, self.least, self.horizon,
            attributes, self.places if self.newcomers is not None else None,
        )  # fmt: skip

    def check_levels(self, levels: Sequence[float]) -> None:
        """Raise UsageError, with the reason, if quantiles at these levels are not available, or if
        one would have the name of a target."""
        known, intervals = self.levels, self.facts.intervals
        if levels and intervals is None:
            raise UsageError(f"this model has no quantiles: {self.facts.about['intervals']}")
        for level in levels:
            if intervals is not None and not known:
                raise UsageError(
                    f"{intervals.windows} calibrating windows support no quantile, got {level:g}"
                )
            if not known[0] <= level <= known[-1]:
                raise UsageError(
                    f"this model gives quantiles from {known[0]:g} to {known[-1]:g}, got {level:g}"
                )
        self.schema.check_names(levels)

    def predict(
        self,
        history: "pd.DataFrame | str | Path",
        horizon: int | None = None,
        levels: Sequence[float] = (),
        *,
        future: "pd.DataFrame | str | Path | None" = None,
        policy: "Policy | None" = None,
        short_history: ShortHistory | None = None,
        where: str = "the history",
        say: Callable[[str], None] = lambda _: None,
        ledger: "Ledger | None" = None,
        samples: int | None = None,
        total: Period | None = None,
        by: str | None = None,
    ) -> "pd.DataFrame":
        """Forecast a history, or each series of a panel, from the step after its last row.

        history: a frame or a file with the columns of the model, in any order and in the form of
        the training data; at least `needs` rows of each series, of which the newest are used;
        missing values are masked. future: if the model has covariates known ahead, a frame or a
        file of them for the steps of the horizon; without it, they are taken from rows that follow
        the history, one per step, without other values. policy: what to do about gaps, repeated and
        unsorted stamps, by default as in training. short_history: whether to "refuse" a history
        with fewer rows, by default for a single one, or to "drop" the parts of the model that need
        more rows, by default for a panel, whose series of fewer than `least` rows are left out.

        Returns the time column and one column per target (for a wide panel, one per series; for a
        long one, with the id columns before the time), with `horizon` rows for each series, at most
        and by default the trained horizon; each target is followed by its quantiles at `levels`, in
        columns such as "load 0.1". Raises DataError naming what is missing, with `where` as the
        name of the history, and UsageError as `check_levels` does. `say` gets sentences about
        irregular or missing values, and a `Notice` for each code of `notices.REMARKS` that
        applies, and for series that training did not know (`notices.OWN_SCALE`). `ledger` gets the
        forecasts, with all quantiles of the model.

        samples: that many paths instead, one after another, numbered in the column `sample`: what
        may come at all steps, columns and series together. total, by: instead of steps, totals over
        each whole day, week (from Monday) or month, or over the horizon, and over series with the
        same value of a static attribute or id column, or "all"; levels are by default 0.1 and 0.9.
        """
        levels = sorted({*numbers("levels", levels)})
        totals.check_asked(samples, total, by, levels)
        joint = bool(samples or total or by)
        all_levels = sorted({*levels, *self.levels}) if joint or ledger is not None else levels

        def answer(question: Question) -> Answer:
            whole = self.answer(question, self.levels if joint else all_levels)
            whole = joined(self, replace(question, samples=samples or 0), whole)
            if ledger is not None:
                from forecaster.forecast import kept

                shown = whole.at(all_levels, question.steps)
                ledger.add("forecasts", kept.forecasts(self, question, shown))
            remarks = unusual.of_all(self, levels)
            return whole.at(self.levels if joint else levels, question.steps, remarks)

        histories = read(
            self.form, history, horizon, levels,
            future=future, policy=policy, where=where, say=say, short_history=short_history,
        )  # fmt: skip

        def finished(answer: Answer) -> Answer:
            """With the totals that are wanted, over all series."""
            if not (total or by):
                return answer
            return summed(self, answer, total, histories.groups(by), levels)

        if samples:
            values = samples * len(histories.chosen) * self.facts.horizon * len(self.schema.targets)
            paths.check(self.facts.intervals, values)
        return histories.answer(answer, say, finished, by)

    @cached_property
    def example(self) -> "pd.DataFrame":
        """A made-up history that the model accepts: a wave of the main season around the mean."""
        return golden.example(self.schema, self.past, self.horizon)

    def calendars(self, starts: Times) -> np.ndarray:
        """The calendar features (B, P + T, F) from each start on."""
        import pandas as pd

        steps, (unique, inverse) = self.past + self.horizon, np.unique(starts, return_inverse=True)
        first, *others = (
            pd.date_range(start, periods=steps, freq=self.schema.freq)
            for start in pd.DatetimeIndex(unique)
        )
        calendars = self.schema.calendar(pd.DatetimeIndex(first.append(others)))
        return np.asarray(calendars.reshape(len(unique), steps, -1)[inverse])


def keep(bundle: "Bundle", folder: Path) -> "Bundle":
    """Save a finished model with its forecasts of made-up histories, computed on the CPU."""
    forecaster = Predictor(bundle, "cpu")
    count = golden.count(bundle.horizon, len(bundle.schema.targets), len(forecaster.levels))
    candidates = range(count + count // 2)
    examples = golden.forecasts(forecaster, candidates)
    moved = golden.apart(golden.forecasts(forecaster, candidates, golden.NOISE), examples)
    which = golden.steadiest(moved, count)
    return replace(bundle, golden=golden.Golden(which, examples[which])).save(folder)


def load_bundle(
    source: str | Path, fetch: Callable[[str, Path], dict[str, str]] | None = None
) -> "Bundle":
    """The bundle behind a folder, a run id or a registered name.

    `fetch` copies a bundle that is not in a folder to one and returns its origin in the registry,
    by default in a child process that ends. Raises UnavailableError or UsageError if there is none,
    BundleError if it is damaged, and the errors of `fetch`.
    """
    from forecaster.forecast.bundle import load

    folder = Path(source)
    if is_bundle(folder):
        return load(folder)
    if folder.is_dir():
        raise UnavailableError(no_bundle(folder))
    with tempfile.TemporaryDirectory(prefix="forecaster-") as temporary:
        origin = (fetch or _download)(str(source), Path(temporary))
        return replace(load(Path(temporary)), origin=origin)


def joined(model: Predictor, question: Question, answer: Answer) -> Answer:
    """An answer at all levels of a model with the paths and totals that its question wants.

    Raises UsageError for a model that has none, and for too many values of paths; and the errors of
    `totals.of`.
    """
    if question.samples:
        intervals = paths.check(model.facts.intervals, question.samples * answer.forecasts.size)
        rows = paths.rows_of(answer.items, model.places, intervals)
        assert answer.wider is not None
        about = answer.forecasts, answer.quantiles, intervals, rows, answer.wider
        drawn = np.moveaxis(paths.paths(*about, question.samples), 1, -1)
        within = model.schema.within(drawn, question.values)
        answer = replace(answer, paths=np.moveaxis(within, -1, 1))
    if question.total or question.by:
        groups, shown = question.groups(model.form), answer.at(model.levels, question.steps)
        shown = summed(model, shown, question.total, groups, question.levels)
        answer = replace(answer, totals=shown.totals, notices=shown.notices)
    return answer


def summed(
    model: Predictor,
    answer: Answer,
    period: Period | None,
    groups: Sequence[str] | None,
    levels: Sequence[float],
) -> Answer:
    """An answer at all levels of a model with `totals.of`, their quantiles at `levels`, by default
    the ends of the 80 % band, if there is one."""
    intervals = paths.check(model.facts.intervals)
    if not levels and totals.least(intervals) <= BAND[0]:
        levels = band(model)
    rows, ends = paths.rows_of(answer.items, model.places, intervals), model.schema.ends
    sums = totals.of(answer, intervals, rows, ends, period, groups, levels)
    notices = [*answer.notices]
    if sums.cut:
        text = f"the forecast holds only a part of {' and '.join(sums.cut)}: no total"
        notices.append(Notice(NoticeCode.CUT_PERIOD, text))
    return replace(answer, totals=sums, notices=notices)


def band(model: Predictor) -> tuple[float, ...]:
    """The levels at the ends of the 80 % band; none if the model does not have it."""
    with suppress(UsageError):
        model.check_levels(BAND)
        return BAND
    return ()


def own_history(bundle: "Bundle") -> str:
    """The file with the data that a model was trained on. Raises an error if it is not here."""
    from forecaster.datasets.card import load_card
    from forecaster.datasets.fetch import locate

    data = bundle.config.data
    return data.name if data.is_file else str(locate(load_card(data.name), data.path))


def _check_finite(values: np.ndarray, names: tuple[str, ...], what: str) -> None:
    bad = ~np.isfinite(values).all(axis=(0, 1))
    if bad.any():
        column = names[int(bad.argmax())]
        raise DataError(f"the {what} has values that are not finite in column '{column}'")


def _download(name: str, folder: Path) -> dict[str, str]:
    answer: dict[str, str] = json.loads(ask_tracker("download", name, str(folder)))
    return answer


def ask_tracker(*arguments: str) -> str:
    """The output of `python -m forecaster.tracking ARGUMENTS`; its error is raised here.

    It runs in a child process, so that this one never imports mlflow.
    """
    extras.check("mlflow", "a model of MLflow")
    command = [sys.executable, "-m", "forecaster.tracking", *arguments]
    child = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if child.returncode:
        silence = f"{' '.join(command)} ended with status {child.returncode}"
        words = (child.stderr.strip().splitlines() or [silence])[-1]
        raise of_status(child.returncode)(words)
    return child.stdout
