"""The ledger of a service: what it forecasts, the values that came, and how good it was."""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from forecaster.base.atomic import write
from forecaster.base.errors import StorageError
from forecaster.forecast import kept
from forecaster.forecast.predictor import Predictor
from forecaster.record.ledger import Ledger
from forecaster_service.batching import Done
from forecaster_service.forecasting import Forecast, Inputs, Job, together
from forecaster_service.logs import logger
from forecaster_service.settings import Settings

SECONDS = 10.0
"""Between two writes."""
MOST = 1_000
"""The most answers that wait to be kept; further ones are lost."""
ROWS = 300_000
"""The most rows of forecasts that are looked at, the newest ones."""
LONGEST = 300.0
"""The most seconds for a look."""


class _Answered(NamedTuple):
    model: Predictor
    inputs: list[Inputs]
    forecasts: list[Forecast]
    steps: int
    actual: bool
    time: datetime


class Keeper:
    """Keeps forecasts in the ledger of the settings, if there is one, in a thread of its own: an
    answer waits for nothing and never fails. `lost` counts what could not be kept.

    Every few minutes another process looks at what came of the forecasts of the `models`. Services
    that share a ledger share these looks, in `live/` there.
    """

    def __init__(self, settings: Settings, models: Callable[[], Sequence[Predictor]]) -> None:
        self.ledger, self.models = None, models
        if settings.ledger is not None:
            days, most = settings.ledger_days, settings.ledger_bytes
            self.ledger = Ledger(settings.ledger, days=days, most_bytes=most)
        self._found: dict[str, dict[str, Any]] = {}
        self._tried, self._read = dict[str, float](), dict[str, int]()
        self._believed, self._every = frozenset(settings.actuals_keys), settings.ledger_seconds
        self._waiting: deque[_Answered] = deque()
        self._dropped = 0
        self._ending = Event()
        self._thread = Thread(target=self._watch, name="ledger", daemon=True)

    @property
    def lost(self) -> int:
        """The rows, and series of too many at once, that could not be kept."""
        return self._dropped + (self.ledger.lost if self.ledger else 0)

    def believes(self, key: str | None) -> bool:
        """Whether an API key may say which values came."""
        return key in self._believed

    def found(self, model: Predictor) -> dict[str, Any] | None:
        """What the last look found of a model."""
        return self._found.get(kept.trained(model.bundle))

    def open(self) -> None:
        if self.ledger is not None:
            self._thread.start()

    def close(self) -> None:
        """Keep what waits."""
        self._ending.set()
        if self.ledger is not None and self._thread.is_alive():
            self._thread.join(SECONDS)

    def note(self, model: Predictor, job: Job, done: Done[Forecast], key: str | None) -> None:
        """Keep an answer, and its histories as actual values if `key` may write those."""
        if self.ledger is None:
            return
        if len(self._waiting) >= MOST:
            self._dropped += len(job.inputs)
            return
        forecasts = list(done.results)
        believed, now = self.believes(key), datetime.now(UTC)
        self._waiting.append(_Answered(model, job.inputs, forecasts, job.steps, believed, now))

    def came(self, rows: pd.DataFrame) -> bool:
        """Keep actual values; False if there is no room for them."""
        assert self.ledger is not None
        return self.ledger.add("actuals", rows)

    def write(self) -> None:
        """Keep what waits now. Never raises."""
        assert self.ledger is not None
        while self._waiting:
            told = self._waiting.popleft()
            try:
                question = together(told.inputs)
                values = np.stack([each.values[: told.steps] for each in told.forecasts])
                quantiles = np.stack([each.quantiles[: told.steps] for each in told.forecasts])
                levels = told.model.levels
                rows = kept.forecasts(told.model, question, values, quantiles, levels, told.time)
                self.ledger.add("forecasts", rows)
                if told.actual:
                    rows = kept.actuals(told.model, question, told.time)
                    self.ledger.add("actuals", rows)
            except Exception:  # a row less is no reason to stop
                self._dropped += len(told.inputs)
        self.ledger.flush()

    def look(self) -> None:
        """Find out how good the forecasts of each model were, where that may have changed. Never
        raises."""
        assert self.ledger is not None
        for model in self.models():
            own, now = kept.trained(model.bundle), monotonic()
            place = self.ledger.folder / "live" / f"{own.removeprefix('sha256:')}.json"
            try:
                known = place.stat().st_mtime_ns if place.exists() else 0
                changed = self.ledger.changed
                # unless another process has just looked, or this one has tried to
                since = min(time() - known / 1e9, now - self._tried.get(own, -inf))
                if changed > known and since >= self._every:
                    self._tried[own] = now
                    place.parent.mkdir(exist_ok=True)
                    write(place, _ask(self.ledger.folder, model))
                    os.utime(place, ns=(changed, changed))  # what came meanwhile is not in it
                if place.exists() and (found := place.stat().st_mtime_ns) != self._read.get(own):
                    self._found[own] = json.loads(place.read_bytes())
                    self._read[own] = found
            except Exception as error:  # no room for it, or it takes too long
                logger().warning("the ledger was not looked at", reason=str(error))

    def _watch(self) -> None:
        while not self._ending.wait(SECONDS):
            self.write()
            self.look()
        self.write()


def _ask(folder: Path, model: Predictor) -> bytes:
    """What another process finds in the ledger of a model, as JSON."""
    promise = json.dumps(asdict(kept.promise(model.bundle))).encode()
    command = [sys.executable, "-m", "forecaster.record", str(folder), str(ROWS)]
    done = subprocess.run(
        command, input=promise, capture_output=True, timeout=LONGEST, check=False,
        start_new_session=True,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [b"no word"])[-1]
        raise StorageError(f"{' '.join(command)}: {last.decode(errors='replace')}")
    return done.stdout
