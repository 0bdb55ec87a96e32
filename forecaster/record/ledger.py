"""A ledger: what models forecast and what came, as Parquet files in a folder.

`forecasts/` and `actuals/` hold files that one writer wrote whole at one time, so several processes
and machines may write into one folder. pandas and DuckDB read them (`SELECT * FROM
read_parquet('ledger/forecasts/*.parquet', union_by_name=true)`). A file states the VERSION of its
columns; those of another version are named and left out.

A forecast has a row for each step and target: `model`, the digest of its model; `series`, "" for a
single one; `target`; `made`, the time in UTC at which it was made; `origin`, the time of the last
row of the history; `step` from 1 and its `time`; `forecast`, and its quantiles as `q0.1`; `naive`,
the value a season before in the history; `last`, the newest value of the history, and `known`, its
time; and `scale`, the standard deviation of the series. An actual value has `series`, `target`,
`time`, `value`, and the time `seen` in UTC.
"""

import itertools
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from math import inf
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

import pandas as pd

if TYPE_CHECKING:
    import pyarrow as pa

from forecaster.base import atomic
from forecaster.base.errors import DataError, StorageError

Kind = Literal["forecasts", "actuals"]
VERSION = "2"
MOST_WAITING = 1_000_000
"""The most rows that wait to be written, lest a slow disk fill the memory; others are lost."""
MERGED, MOST_MERGED = 64, 250_000
"""So many files of one writer become one, unless that has more rows: 4,000 flushes are then read in
0.5 s instead of 15 s."""


class Ledger:
    """Writes rows to a folder. `lost` counts those that could not be written.

    Files older than `days`, and beyond `most_bytes` the oldest ones, are deleted, whoever wrote
    them: only a writer that is given an age or a size deletes. Of many small files it makes larger
    ones. `add` costs no input or output; `flush` writes what was added, from any thread.
    """

    def __init__(self, folder: Path, *, days: float = inf, most_bytes: float = inf) -> None:
        self.folder, self.days, self.most_bytes = folder, days, most_bytes
        self.lost = 0
        self._waiting: dict[Kind, list[pd.DataFrame]] = {}
        self._rows, self._lock = 0, Lock()
        self._numbers = itertools.count()
        self._files: dict[tuple[Kind, int], list[Path]] = {}
        """Those that this writer has not merged yet, by how often they were merged before."""

    def add(self, kind: Kind, rows: pd.DataFrame) -> None:
        """Keep rows for the next `flush`, or count them as lost if there is no room for them."""
        with self._lock:
            if self._rows + len(rows) > MOST_WAITING:
                self.lost += len(rows)
                return
            self._waiting.setdefault(kind, []).append(rows)
            self._rows += len(rows)

    def flush(self) -> int:
        """Write what was added, and delete what is old; return the rows that were written.

        A full disk, or a folder that cannot be written, costs these rows and raises nothing.
        """
        import pyarrow as pa

        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._rows = 0
        written = 0
        for kind, parts in waiting.items():
            rows = pd.concat(parts, ignore_index=True)
            try:
                self._keep(kind, pa.Table.from_pandas(rows, preserve_index=False))
                written += len(rows)
            except (StorageError, OSError):
                self.lost += len(rows)
        if written:
            self._forget()
        return written

    def _keep(self, kind: Kind, table: "pa.Table", merged: int = 0) -> None:
        import pyarrow.parquet as pq

        data = BytesIO()
        pq.write_table(table.replace_schema_metadata({b"ledger": VERSION}), data)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        name = f"{stamp}-{socket.gethostname()}-{os.getpid()}-{next(self._numbers)}.parquet"
        (self.folder / kind).mkdir(parents=True, exist_ok=True)
        atomic.write(self.folder / kind / name, data.getvalue())
        self._merge(kind, merged, self.folder / kind / name)

    def _merge(self, kind: Kind, merged: int, file: Path) -> None:
        """Make one file of many, once there are enough. Until the old ones are deleted, a reader
        sees rows twice, which counts nothing twice."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._lock:
            files = self._files.setdefault((kind, merged), [])
            files.append(file)
            if len(files) < MERGED:
                return
            self._files[kind, merged] = []
        with suppress(pa.ArrowException, OSError, StorageError):  # they stay as they are
            if sum(pq.read_metadata(path).num_rows for path in files) > MOST_MERGED:
                return
            tables = [pq.read_table(path) for path in files]
            self._keep(kind, pa.concat_tables(tables, promote_options="default"), merged + 1)
            for path in files:
                path.unlink(missing_ok=True)

    def _forget(self) -> None:
        """Delete the oldest files; another process may be doing the same."""
        files = []
        for file in self.folder.glob("*/*.parquet"):
            with suppress(OSError):
                state = file.stat()
                files.append((state.st_mtime, state.st_size, file))
        oldest = datetime.now(UTC).timestamp() - self.days * 86_400
        whole = sum(size for _, size, _ in files)
        for time, size, file in sorted(files):
            if time >= oldest and whole <= self.most_bytes:
                return
            with suppress(OSError):
                file.unlink(missing_ok=True)
            whole -= size


def read(
    folder: Path,
    kind: Kind,
    say: Callable[[str], None] = lambda _: None,
    *,
    model: str | None = None,
) -> pd.DataFrame:
    """All rows of a kind, in the order in which they were written; none without files.

    Those of one `model`, if given. `say` gets a sentence about files of another version, which are
    left out. Raises DataError for a folder that is not there, and for a file that is no Parquet
    file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not folder.is_dir():
        raise DataError(f"{folder} is not there: `forecaster predict --ledger {folder}` begins one")
    parts, others, filters = list[pd.DataFrame](), 0, [("model", "=", model)] if model else None
    files, seen = {*(folder / kind).glob("*.parquet")}, set[Path]()
    while new := sorted(files - seen):
        files = set()
        for file in new:
            seen.add(file)
            try:
                if (pq.read_schema(file).metadata or {}).get(b"ledger", b"").decode() != VERSION:
                    others += 1
                    continue
                parts.append(pq.read_table(file, filters=filters).to_pandas())
            except FileNotFoundError:  # it was the oldest, or its rows are in another one now
                files = {*(folder / kind).glob("*.parquet")}
            except (pa.ArrowInvalid, OSError) as error:
                raise DataError(f"{file} cannot be read: {error}") from error
    if others:
        say(f"{others} files of {folder / kind} are of another version and are left out")
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
