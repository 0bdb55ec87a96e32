"""Which column of a table is what: the time, the id, what is predicted."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from forecaster.datasets.reader.clock import is_stamp
from forecaster.datasets.reader.files import Table
from forecaster.datasets.reader.kinds import Kind, kinds
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import missing_columns, quoted
from forecaster.errors import DataError, UsageError

_IDS = ("unique_id", "item_id", "series_id", "id", "series")
_TIMES = ("ds", "date", "datetime", "timestamp", "time")


class Roles:
    """The roles of the columns of a table; `said` are sentences about those that were found.

    `file_id` is the name that stands for the files themselves, None where a column has it.
    """

    def __init__(self, table: Table, file_id: str | None, said: list[str]) -> None:
        self.table = table
        self.where = table.where
        self.file_id = file_id
        self.said = said

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        return kinds(self.table)

    def find(self, said: Reading, told: bool) -> Reading:
        """`said` with the roles that it leaves open; as it is where a model has `told` all.

        Raises DataError for columns that are not there or cannot be found, UsageError for a column
        of two roles.
        """
        table = self.table
        named = [
            *(name for name in (said.time, said.id) if name is not None and name != self.file_id),
            *said.targets, *said.past_covariates, *said.future_covariates, *said.static,
        ]  # fmt: skip
        missing = [name for name in named if name not in table.columns]
        if missing:
            raise DataError(missing_columns(self.where, missing, named, table.columns))
        twice = [name for name in named if named.count(name) > 1]
        if twice:
            raise UsageError(f"column '{twice[0]}' is given two roles; expected one.")
        if said.panel and (said.id or said.static):
            raise UsageError(
                "with data.panel=true each column of a wide file is a series, so that there are "
                "neither --id nor --static"
            )
        if told:
            return said
        time = said.time or self._time(named)
        id_column = said.id
        if id_column is None and not said.panel:
            id_column = self._id([*named, time])
        filled = replace(said, time=time, id=id_column)
        if not said.targets:
            return replace(filled, targets=self._targets(filled))
        left_out = [name for name in table.columns if name not in {*named, time, id_column}]
        if left_out:
            self.said.append(
                f"Left out, having no role: {quoted(left_out)}. --past-covariates reads a column."
            )
        return filled

    def _time(self, named: Sequence[str]) -> str:
        table = self.table
        found = [n for n in table.columns if self.kinds[n] == "stamp" and n not in named]
        usual = [name for name in _TIMES for column in found if column.lower() == name]
        if len(found) > 1 and usual:
            found = [column for column in found if column.lower() == usual[0]]
        if len(found) != 1:
            listed = f"{quoted(found)} all hold stamps" if found else "no column holds stamps"
            raise DataError(
                f"{self.where}: {listed} such as 2016-07-01 00:00:00; name the time column with "
                f"--time. Columns: {quoted(table.columns)}."
            )
        if is_stamp(found[0]):
            raise DataError(
                f"{self.where}: the first line holds a stamp, '{found[0]}', where a name is "
                "expected; give the file a header."
            )
        self.said.append(f"The time is column '{found[0]}'.")
        return found[0]

    def _id(self, named: Sequence[str]) -> str | None:
        table = self.table
        free = [name for name in table.columns if name not in named]
        for usual in _IDS:
            for name in free:
                if name.lower() == usual and self._repeats([name]):
                    self.said.append(f"The rows of a series share column '{name}'.")
                    return name
        words = [name for name in free if self.kinds[name] == "text"]
        time = named[-1]
        if len(table.parts) > 1 or len(words) != 1:
            return None
        if self._repeats([time]) and not self._repeats([time, words[0]]):
            self.said.append(
                f"Stamps repeat, once for each '{words[0]}': the rows of a series share it."
            )
            return words[0]
        return None

    def _repeats(self, columns: Sequence[str]) -> bool:
        """Whether values of these columns together stand in several of the first rows."""
        sample = self.table.sample.select(list(columns))
        return bool(sample.group_by(list(columns)).aggregate([]).num_rows < sample.num_rows)

    def _targets(self, said: Reading) -> tuple[str, ...]:
        table = self.table
        taken = {
            said.time, said.id, *said.past_covariates, *said.future_covariates, *said.static,
        }  # fmt: skip
        free = [name for name in table.columns if name not in taken]
        index = [n for n in free if n in ("", "Unnamed: 0") or n.startswith("__index_level_")]
        numbers = [n for n in free if self.kinds[n] == "number" and n not in index]
        if said.id is not None and "y" in numbers:
            numbers = ["y"]
        left_out = [self._described(n) for n in free if n not in numbers]
        if not numbers:
            raise DataError(
                f"{self.where}: no column of numbers is left to predict. Other columns: "
                f"{', '.join(left_out) or 'none'}. --target names what to predict."
            )
        self.said.append(f"To be predicted: {quoted(numbers)}.")
        self.said += [f"Column {name} has no role and is left out." for name in left_out]
        return tuple(numbers)

    def _described(self, name: str) -> str:
        """A column and what the first rows hold in it."""
        kind = self.kinds[name]
        what = {"number": "numbers", "flag": "true or false", "empty": "no value in the first rows"}
        example = self.table.sample[name].drop_null()[:1].to_pylist()
        return f"'{name}' ({what.get(kind) or f'such as {example[0]!r:.40}'})"
