"""Memory for the values of a table, and the treatment of rows that share a place."""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.base import installation
from forecaster.base.errors import StorageError

IN_MEMORY = 2**26
"""The most bytes of values kept in memory; more are kept in 32 bits in a mapped file."""

CHUNK = 2**20
"""The values that are processed together."""


def allocate(shape: tuple[int, int]) -> NDArray[np.floating[Any]]:
    """Allocate values: float64 in memory or, above IN_MEMORY, float32 in a mapped file.

    The file has no name and is deleted with the array. Raises StorageError if the disk is full.
    """
    if shape[0] * shape[1] * 8 <= IN_MEMORY:
        return np.empty(shape)
    folder = installation.cache() / "values"
    size = shape[0] * shape[1] * 4
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # without it a full disk would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, np.float32, "r+", shape=shape)
    except OSError as error:
        raise StorageError(
            f"{folder}: no room for {size >> 20} MiB of values: {error.strerror}. "
            "Set $XDG_CACHE_HOME to another folder."
        ) from None


class Values:
    """Rows of values (N, C) by their places, each of which is expected once."""

    def __init__(self, rows: int, columns: int, average: bool) -> None:
        self.values = allocate((rows, columns))
        self.seen = np.zeros(rows, dtype=bool)
        self.average = average
        self.sums: NDArray[np.floating[Any]] | None = None
        self.weights: NDArray[np.floating[Any]] | None = None

    def put(
        self, places: NDArray[np.int64], block: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Store rows; return which repeat an earlier row, and which of these differ from it."""
        fresh = ~self.seen[places]
        if (places[1:] <= places[:-1]).any():
            firsts = np.zeros(len(places), dtype=bool)
            firsts[np.unique(places, return_index=True)[1]] = True
            fresh &= firsts
        if fresh.all():
            self.values[places] = block
            self.seen[places] = True
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self.values[places[fresh]] = block[fresh]
        self.seen[places[fresh]] = True
        again = np.flatnonzero(~fresh)
        there, here = self.values[places[again]], block[again].astype(self.values.dtype)
        same = (there == here) | (np.isnan(there) & np.isnan(here))
        if self.average:
            if self.sums is None or self.weights is None:
                self.sums, self.weights = (allocate(self.values.shape) for _ in range(2))
                self.sums[:] = self.weights[:] = 0
            np.add.at(self.sums, places[again], np.nan_to_num(here))
            np.add.at(self.weights, places[again], ~np.isnan(here))
        return again, again[~same.all(axis=1)]

    def finish(self) -> None:
        """Average the rows that share a place, and leave NaN where nothing was put."""
        for part in self.parts():
            if self.sums is not None and self.weights is not None:
                there = ~np.isnan(self.values[part])
                count = there + self.weights[part]
                total = np.where(there, self.values[part], 0) + self.sums[part]
                self.values[part] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            self.values[part][~self.seen[part]] = np.nan
        self.sums = self.weights = None

    def parts(self) -> Iterator[slice]:
        rows = len(self.values)
        chunk = max(1, CHUNK // max(1, self.values.shape[1]))
        return (slice(begin, min(begin + chunk, rows)) for begin in range(0, rows, chunk))
