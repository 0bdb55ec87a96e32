"""What a configuration and its data decide: lengths, columns, borders."""

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import quoted
from forecaster.base.progress import Say
from forecaster.base.spelling import joined, spelled
from forecaster.config.run_config import RunConfig
from forecaster.datasets.card import Borders, End
from forecaster.datasets.dataset import Dataset, Series
from forecaster.datasets.known import KnownInputs
from forecaster.datasets.limits import Limit, find_limits
from forecaster.datasets.oddities import Oddity, find_oddities
from forecaster.datasets.scaling import Scaler
from forecaster.datasets.seasons import candidates
from forecaster.datasets.sizes import few_windows, panel_sizes, sizes
from forecaster.parts import ridge, smoothing
from forecaster.plan.schema import Schema


@dataclass(frozen=True)
class Plan:
    """A configuration whose lengths are all known, the columns of its data, and the borders of
    training, validation and test.

    `called` is the registered name of its models, by default made of data, target and horizon.
    `longer` are look-backs that the data may prefer to that of the configuration.
    """

    config: RunConfig
    dataset: Dataset
    series: Series
    borders: Borders
    called: str | None = None
    longer: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The registered name of its models."""
        if self.called:
            return self.called
        data, window = self.config.data, self.config.window
        target = "all" if data.features == "M" else "-".join(self.dataset.targets)
        name = f"forecaster-{data.label}-{data.features}-{target}-{window.horizon}"
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)

    @cached_property
    def oddities(self) -> tuple[Oddity, ...]:
        """Unusual values in the data."""
        return find_oddities(self.series, self.borders)

    def looking_back(self, past: int) -> "Plan":
        """The same plan with another look-back, and nothing to prefer to it."""
        before, start, _ = self.config.window.lengths()
        start = max(1, past // 2) if start == max(1, before // 2) else start
        config = self.config.changed(window={"past": past, "start": start})
        return replace(self, config=config, longer=())

    @property
    def refitted(self) -> "Plan":
        """The same plan with every row a training row, for weights to be deployed."""
        steps = len(self.series.times)
        return replace(self, borders=Borders(steps, steps, steps))

    def fit_schema(self) -> Schema:
        """What its models read and write, with the scalers of the training rows, without effects.

        Raises DataError for columns that cannot be scaled, and for values beyond given limits.
        """
        series, items, known = self.series, self.series.items, self.series.known_columns
        (_, last), (past, _, _) = self.borders.parts["train"], self.config.window.lengths()
        rows: slice | np.ndarray = slice(0, self.borders.train)
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

    def check(self, targets: tuple[str, ...]) -> None:
        """Raise DataError if a part has no target value at all."""
        series, places = self.series, [self.series.columns.index(name) for name in targets]
        ends = (0, self.borders.train, self.borders.validation, self.borders.test)
        for part, first, last in zip(
            ("training", "validation", "test"), ends, ends[1:], strict=False
        ):
            if np.isnan(series.values[first:last, places]).all():
                raise DataError(
                    f"{series.source}: {quoted(targets)} without any value in the {part} steps, "
                    f"{series.times[first]} to {series.times[last - 1]}; remove these rows, or "
                    "supply values."
                )

    @property
    def half(self) -> int:
        """The row that halves validation: rows before it stop training, the others calibrate."""
        return (self.borders.train + self.borders.validation) // 2

    @cached_property
    def halves(self) -> dict[str, tuple[End, End]]:
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
    def stop(self) -> tuple[End, End]:
        """The steps of validation that stop training: all where none calibrate."""
        return self.borders.parts["validation"] if self.uncalibrated else self.halves["stop"]

    @property
    def uncalibrated(self) -> str:
        """Why nothing is calibrated and all of validation stops training; "" if calibrated."""
        if not self.config.intervals.calibrate:
            return "intervals.calibrate is false"
        past, _, horizon = self.config.window.lengths()
        if self.borders.each and self.series.items is not None:
            if all(
                self.series.items.windows(past, horizon, *steps)[1].any()
                for steps in self.halves.values()
            ):
                return ""
            return f"only one series has a window of {horizon} steps in its validation part"
        stop, rest = self.half - self.borders.train, self.borders.validation - self.half
        if horizon <= min(stop, rest):
            return ""
        return f"validation has {stop + rest} rows, fewer than two horizons of {horizon}"


def cycle(dataset: Dataset) -> int:
    """The main season, or if none was found the shortest natural cycle of the step, which smoothing
    may use or leave."""
    (main, *_), natural = dataset.seasons, candidates(dataset.series.freq)
    return main if main > 1 or not natural else natural[0]


def make_plan(config: RunConfig, dataset: Dataset, say: Say = lambda _: None) -> Plan:
    """Resolve what depends on the data: look-back, features, columns, borders.

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
    resolved = config.changed(
        data={
            "features": features,
            "target": None if features == "M" else joined(targets),
            "split": "series" if borders.each else data.split,
        },
        window={"past": past, "start": start, "reach": reach},
    )
    chosen = series.select(targets) if features == "S" else series
    others: tuple[int, ...] = ()
    if window.past == "auto" and dataset.past is None and series.items is None:
        others = ridge.longer(borders.train, past, dataset.seasons[0])
    return Plan(resolved, dataset, chosen, borders, longer=others)
