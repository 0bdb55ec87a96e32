"""What a model answers, as JSON, as CSV, and as a table."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import DataError
from forecaster.base.names import quoted
from forecaster.datasets.calendar import future_times
from forecaster.datasets.dataset import id_parts
from forecaster.datasets.reader.irregular import is_closed
from forecaster.forecast.notices import OWN_SCALE, REMARKS, Notice, NoticeCode
from forecaster.forecast.question import Form, Question, SeriesBatch, Times, later
from forecaster.forecast.totals import Totals

SAMPLE = "sample"


@dataclass(frozen=True, eq=False)
class Answer(SeriesBatch):
    """The forecasts (B, T, K) of B series and their quantiles (B, T, K, Q) at `levels`, in units.

    For whoever writes them: the form of their histories, the time of each first step `starts` (B,),
    the names of the series `items` (B,), and which are `flat`, as in the question; and `notices`.
    `spread` (B, T, K) are the half widths of bands that the errors of `Intervals` multiply, known
    where the levels are those of the model; those of new series are `wider` (B,) than usual.
    `paths` (B, N, T, K) and `totals` are what was asked for.
    """

    form: Form
    starts: Times
    items: Sequence[str | None]
    forecasts: np.ndarray
    quantiles: np.ndarray
    levels: Sequence[float] = ()
    flat: Sequence[bool] = ()
    notices: Sequence[Notice] = ()
    spread: np.ndarray | None = None
    wider: np.ndarray | None = None
    paths: np.ndarray | None = None
    totals: Totals | None = None

    @classmethod
    def of(
        cls,
        question: Question,
        form: Form,
        numbers: tuple[np.ndarray, np.ndarray],
        levels: Sequence[float],
        notices: Sequence[Notice],
        spread: np.ndarray | None = None,
        wider: np.ndarray | None = None,
    ) -> "Answer":
        """The answer to a question with these forecasts and quantiles."""
        items = question.items or [None] * len(question)
        start = question.first_steps(form)
        return cls(form, start, items, *numbers, levels, question.flat, notices, spread, wider)

    def at(
        self, levels: Sequence[float], steps: int | None, notices: Iterable[Notice] = ()
    ) -> "Answer":
        """The first steps, with quantiles at these levels, interpolated if they are others, and
        with further notices."""
        forecasts, quantiles = self.forecasts[:, :steps], self.quantiles[:, :steps]
        if not {*levels} <= {*self.levels}:
            from forecaster.forecast.quantiles import between

            quantiles = between(quantiles, self.levels, levels, forecasts)
        elif (*levels,) != (*self.levels,):
            quantiles = quantiles[..., [self.levels.index(level) for level in levels]]
        return replace(
            self, forecasts=forecasts, quantiles=quantiles, levels=levels,
            notices=[*notices, *self.notices],
            spread=None if self.spread is None else self.spread[:, :steps],
            paths=None if self.paths is None else self.paths[:, :, :steps],
        )  # fmt: skip

    @classmethod
    def from_json(cls, answer: Mapping[str, Any], question: Question, form: Form) -> "Answer":
        """The answer of /predict to a question. What was done with the rows that were sent is of no
        interest: it was done before."""
        levels = question.levels
        numbers = [
            [series["mean"], *(series["quantiles"][str(level)] for level in levels)]
            for series in answer["predictions"]
        ]
        values = np.moveaxis(np.array(numbers, dtype=np.float64), 1, -1)
        notices = [
            Notice(NoticeCode(notice["code"]), notice["text"], notice["input"])
            for notice in answer["notices"]
            if notice["code"] in {*REMARKS, OWN_SCALE.code, NoticeCode.CUT_PERIOD}
        ]
        drawn = [series["samples"] for series in answer["predictions"] if series.get("samples")]
        return replace(
            cls.of(question, form, (values[..., 0], values[..., 1:]), levels, notices),
            paths=np.array(drawn, dtype=np.float64) if drawn else None,
        )

    def to_json(self, apart: bool = True) -> dict[str, Any]:
        """The answer of /predict; `apart` as in `Question.from_json`."""
        zone = "+00:00" if self.form.reading.timezone == "UTC" else ""
        predictions = []
        for place, (name, start) in enumerate(zip(self.items, self.starts, strict=True)):
            at = (place, ..., 0) if self.flat and self.flat[place] else (place,)
            prediction = {
                "item_id": name,
                "start": start.isoformat() + zone,
                "freq": self.form.freq,
                "columns": self.form.targets,
                "mean": self.forecasts[at].tolist(),
            }
            if self.levels:
                quantiles = [ends[at].tolist() for ends in np.moveaxis(self.quantiles, -1, 0)]
                prediction["quantiles"] = dict(zip(map(str, self.levels), quantiles, strict=True))
            if self.paths is not None:
                prediction["samples"] = self.paths[at].tolist()
            predictions.append(prediction)
        warnings, notices = list[str](), list[dict[str, Any]]()
        for notice in sorted(self.notices, key=_rank):
            number, text = notice.place if apart else None, str(notice)
            warnings.append(text if number is None else f"inputs[{number}]: {text}")
            notices.append({"code": notice.code, "input": number, "text": text})
        totals = {} if self.totals is None else {"totals": self.totals.to_json(zone)}
        return {"predictions": predictions, **totals, "warnings": warnings, "notices": notices}

    def to_csv(self) -> str:
        """The answer of /predict as CSV: a row for each step of each series, in columns such as
        "load 0.1"."""
        reading, text = self.form.reading, StringIO()
        zone = "UTC" if reading.timezone == "UTC" else None
        named = len(self) > 1 or self.items[0] is not None
        table, whole = csv.writer(text, lineterminator="\n"), self._values
        table.writerow([*["item_id"] * named, reading.time, *self._columns(self.form.targets)])
        for place, (name, start) in enumerate(zip(self.items, self.starts, strict=True)):
            item, values = str(place) if name is None else name, whole[place]
            times = pd.date_range(start, periods=len(values), freq=self.form.freq, tz=zone)
            for time, row in zip(times, values.reshape(len(values), -1).tolist(), strict=True):
                table.writerow([*[item] * named, time.isoformat(), *row])
        return text.getvalue()

    def to_frame(self, where: str) -> pd.DataFrame:
        """A row for each step of each series, in the form of the data: ids, time, targets, each
        followed by its quantiles; those of a wide panel in columns. Raises DataError if these do
        not begin at the same time; `where` is the name of the history."""
        reading, steps = self.form.reading, self.forecasts.shape[1]
        last = later(self.starts, -1, self.form.freq)
        times = [future_times(time, steps, self.form.freq) for time in last]
        names: Sequence[Any] = self.form.targets
        values = self._values
        if reading.panel:
            names, grid = self.items, times[0]
            if any(not stamps.equals(grid) for stamps in times[1:]):
                raise DataError(
                    f"{where}: the columns end at different times, so their forecasts do not "
                    "fit into one table; leave out the rows after the end of the shortest column, "
                    "or use the long form"
                )
            values = values[:, :, 0].transpose(1, 0, 2)
        else:
            grid = pd.DatetimeIndex(np.concatenate(times))
        if reading.timezone == "UTC":
            grid = grid.tz_localize("UTC")
        table = pd.DataFrame(values.reshape(len(grid), -1), columns=self._columns(names))
        table.insert(0, str(reading.time), grid)
        parts = [id_parts(str(name), len(reading.id)) for name in self.items]
        for place, column in enumerate(reading.id):
            table.insert(place, column, np.repeat([part[place] for part in parts], steps))
        return table

    def to_paths(self, where: str) -> pd.DataFrame:
        """`to_frame` for all paths, one after another, with their numbers in the column `sample`.
        Raises DataError if the data have a column of that name."""
        assert self.paths is not None
        empty = np.empty((*self.forecasts.shape, 0))
        one = replace(self, levels=(), quantiles=empty).to_frame(where)
        if SAMPLE in one:
            raise DataError(f"the data have a column '{SAMPLE}', which numbers paths: rename it")
        count = self.paths.shape[1]
        order = (1, 2, 0, 3) if self.form.reading.panel else (1, 0, 2, 3)
        values = self.paths.transpose(order)
        table = one.loc[np.tile(np.arange(len(one)), count)].reset_index(drop=True)
        place = len(self.form.reading.id) + 1
        table.isetitem([*range(place, table.shape[1])], values.reshape(len(table), -1))
        table.insert(place, SAMPLE, np.repeat(np.arange(1, count + 1), len(one)))
        return table

    @property
    def _values(self) -> np.ndarray:
        """The forecasts, followed by their quantiles, (B, T, K, 1 + Q)."""
        return np.concatenate([self.forecasts[..., None], self.quantiles], axis=-1)

    def _columns(self, names: Sequence[Any]) -> list[str]:
        suffixes = ["", *(f" {level}" for level in self.levels)]
        return [name + suffix for name in names for suffix in suffixes]


def _rank(notice: Notice) -> tuple[bool, int]:
    """First what was done with each series, then what concerns all, then the forecast of each."""
    return notice.code in REMARKS, -1 if notice.place is None else notice.place


def opened(table: pd.DataFrame, form: Form) -> pd.DataFrame:
    """The rows of a table of answers that lie in the open hours of the data."""
    reading = form.reading
    if not (reading.closed or reading.holidays):
        return table
    times = pd.DatetimeIndex(table[str(reading.time)])
    closed = is_closed(times.tz_localize(None), reading)
    return table[~closed].reset_index(drop=True)


def by_code(notices: Sequence[Notice], items: Sequence[str | None]) -> Iterator[Notice]:
    """One sentence for each code, with the names of the series that it is about."""
    for code in dict.fromkeys(notice.code for notice in notices):
        alike = [notice for notice in notices if notice.code is code]
        named = [notice for notice in alike if notice.place is not None and items[notice.place]]
        names = [*dict.fromkeys(str(items[notice.place or 0]) for notice in named)]
        if not names:
            yield from dict.fromkeys(alike)
            continue
        text = f"series '{names[0]}': {alike[0]}"
        if names[1:]:
            same = len({*map(str, alike)}) == 1
            text += f"; {'likewise' if same else 'similarly'} {quoted(names[1:])}"
        yield Notice(code, text)
