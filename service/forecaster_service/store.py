"""The models that are served, their replacement, and the queue in front of them."""

import gc
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from math import inf
from random import uniform
from threading import Event, Thread, Timer
from time import monotonic, perf_counter, time
from typing import Literal

import torch
from fastapi import Request

from forecaster.base.errors import ConfigError, DeviceLostError, ForecasterError
from forecaster.forecast import kept
from forecaster.forecast.answer import Answer
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question
from forecaster.record.ledger import Ledger
from forecaster_service.batching import MARGIN, Batcher, Submission
from forecaster_service.body import Bodies
from forecaster_service.card import example
from forecaster_service.http_errors import HttpError, busy
from forecaster_service.loading import (
    AGAIN,
    Served,
    Slot,
    UnfitError,
    current,
    differences,
    for_clients,
    load,
)
from forecaster_service.logs import logger
from forecaster_service.metrics import Metrics, labels
from forecaster_service.process import Process
from forecaster_service.registry import Child, Found, State
from forecaster_service.settings import Settings

UNNAMED = (
    "no model was named: set FORECASTER_MODEL to a bundle's folder, an MLflow run id or a "
    "registered name, or use forecaster serve --model"
)
PACE = 0.02
"""The weight of the last answer in the estimate of what a request costs."""
LEAVING_SECONDS = 2.0
"""Seconds from the loss of the device to the end of the process, for the answers that report it;
then a supervisor restarts it."""
KEEPING_SECONDS = 10.0
"""Between two writes of what is kept."""
MOST_KEPT = 1_000
"""The most answers that wait to be kept; further ones are lost."""


class Store:
    """Holds the models and the queue of their work.

    There is one of the `slots` for each model of the settings; the first has the default model.
    `draining` is set when the service is about to end. `lost` is the reason why the device is gone,
    empty while it is there. `registry` resolves models that are not folders, and is closed with the
    store.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        registry: Found | None = None,
        process: Process | None = None,
    ) -> None:
        self.settings, self.metrics = settings, metrics
        self.registry, self.process = registry or Child(settings), process or Process()
        self.draining = False
        self.lost = ""
        self.slots = [Slot(source) for source in settings.models]
        cuda = settings.device != "cpu" and torch.cuda.is_available()
        batch = settings.max_batch or (64 if cuda else 16)  # small ones stay in a CPU's caches
        self.bodies = Bodies(settings)
        self.keeper = Keeper(settings)
        self.batcher = Batcher(batch, settings.max_queue, lambda: self.bodies.waiting)
        self._interval, self._answered, self._others_waited = 0.0, 0.0, False
        self._ending = Event()

    def open(self) -> None:
        """Load in a daemon thread, so that a hanging registry cannot delay the exit."""
        Thread(target=self._watch, name="load", daemon=True).start()
        self.keeper.open()

    def close(self) -> None:
        """Forecast everything that waits, and accept nothing more."""
        self._ending.set()
        self.registry.close()
        self.batcher.close()
        self.keeper.close()
        gc.unfreeze()

    @property
    def is_ready(self) -> bool:
        """Whether `whole` raises nothing."""
        with suppress(HttpError):
            return bool(self.whole())
        return False

    @property
    def status(self) -> Literal["loading", "ready", "failed"]:
        """The status of all models together."""
        if any(slot.loading for slot in self.slots):
            return "loading"
        return "ready" if self.slots and all(slot.served for slot in self.slots) else "failed"

    def load(self) -> None:
        """Load the models of the settings, each checked by a forecast. Never raises."""
        for slot in self.slots:
            self._try(slot, None)
            slot.loading = False

    def poll(self) -> None:
        """Check whether the names resolve to other models now, and replace the old models by those;
        requests that were already accepted are still answered by the old ones.

        The old model stays if the new one is unavailable or damaged, does not reproduce its golden
        forecasts, or does not suit the clients of the old. The new one is tried again when its name
        resolves to yet another model, else after a minute; where only the queue was full, at the
        next poll.
        """
        for slot in (slot for slot in self.slots if not slot.fixed):
            if self.lost or self._ending.is_set():
                return
            try:
                state = current(slot, self.registry)
            except Exception as error:
                self._failed(slot, error)
                continue
            slot.looked = time()
            if slot.served and slot.served.state == state:
                slot.failed = None
            elif slot.failed != state or monotonic() >= slot.again:
                self._try(slot, state)

    def ready(self) -> Served:
        """The default model. Raises HttpError 503 while there is none, and after the device was
        lost."""
        if self.lost:
            raise HttpError(503, self.lost, retry=60, reason="device")
        if not self.slots:
            raise HttpError(503, UNNAMED, retry=60, reason="model")
        return _model_of(self.slots, self.slots[0])

    def whole(self) -> list[Served]:
        """All models. Raises HttpError 503 while one is missing, where `admit` does, and when the
        service is about to end."""
        self.admit()
        if self.draining:
            raise HttpError(503, "the service is ending", retry=10)
        return [_model_of(self.slots, slot) for slot in self.slots]

    def get(self, name: str | None) -> Served:
        """The model called `name`, by default the first. Raises HttpError 404 with the names that
        there are, and 503 if it may be a model that is not loaded."""
        if name is None or self.lost or not self.slots:
            return self.ready()
        served = [slot.served for slot in self.slots if slot.served]
        called = [model for model in served if name in model.names]
        if not called:
            for slot in self.slots:
                _model_of(self.slots, slot)
            known = "; ".join(" = ".join(model.names) for model in served)
            raise HttpError(404, f"there is no such model here; the models are: {known}")
        if len({model.identity.name for model in called}) > 1:
            names = ", ".join(model.identity.name for model in called)
            raise HttpError(404, f"several models have this name; choose one of: {names}")
        return called[0]

    def admit(self, within: float | None = None) -> Served:
        """A model, if a request that must be answered within `within` seconds, by default those of
        the settings, can be accepted now. Raises HttpError 503 if there is no model, if the waiting
        work takes longer, and after the device was lost."""
        served = next((slot.served for slot in self.slots if slot.served), None)
        if served is None or self.lost:
            return self.ready()
        within = self.settings.deadline_seconds if within is None else within
        waiting = self.waiting
        if within <= 0:
            detail, reason = "this request could not be read in time", "late"
        elif waiting >= self.settings.max_queue or self.ahead() * MARGIN > within:
            detail = f"{waiting} series are waiting already"
            reason = "queue" if waiting >= self.settings.max_queue else "time"
        else:
            return served
        again = max(self.ahead() - self.settings.deadline_seconds / MARGIN, 0.0)
        raise busy(detail, reason, self.batcher.later(again, self._interval or None))

    @property
    def waiting(self) -> int:
        """How many series wait for the device, and how many requests to be read."""
        return self.batcher.waiting + self.bodies.waiting

    def ahead(self) -> float:
        """The estimated seconds until everything that is here now has been answered."""
        return max(self.batcher.ahead() + self.bodies.ahead(), self.waiting * self._interval)

    def answered(self) -> None:
        """Note that a request has been answered: while others wait, the time between two answers is
        what one costs, whatever it is spent on."""
        now = monotonic()
        if self._others_waited:
            self._interval += PACE * (min(now - self._answered, 1.0) - self._interval)
        self._answered, self._others_waited = now, self.waiting > 0

    def submit(self, served: Served, question: Question, within: float = inf) -> Submission:
        """Queue a question for a model. Quantiles, if requested, are computed at the levels of the
        model, so that requests for different levels share a batch. Raises HttpError 503 if there is
        no room, or if the answer would take longer than `within` seconds."""
        banded = question.levels or question.joint or self.keeper.ledger
        levels = served.forecaster.levels if banded else ()
        key, call = (served.identity.digest, levels), partial(self._run, served, levels)
        return self.batcher.submit(key, call, question, within)

    def _run(self, served: Served, levels: Sequence[float], question: Question) -> Answer:
        if self.lost:
            raise HttpError(503, self.lost, retry=60, reason="device")
        start, answer = perf_counter(), None
        try:
            with suppress(torch.OutOfMemoryError):
                answer = served.forecaster.answer(question, levels)
        except DeviceLostError as error:
            self.lost = str(error)  # only a new process can use it again; the queue is left to fail
            logger().error("device lost", reason=self.lost)
            # without cleaning up, which torch would do on a device that no longer answers
            Timer(LEAVING_SECONDS, os._exit, (error.exit_code,)).start()
            raise HttpError(503, self.lost, retry=60, reason="device") from None
        if answer is None:  # outside the handler, which would keep the failed batch in memory
            # the batcher catches it and tries again in halves; the client of one series gets it
            raise busy("the device is out of memory", "memory", 1)
        model = labels(served.identity)
        self.metrics.inference.labels(*model).observe(perf_counter() - start)
        self.metrics.batch.labels(*model).observe(len(question))
        return answer

    def _watch(self) -> None:
        torch.set_num_threads(1)  # so that loading leaves the other cores to requests
        self.load()
        gc.freeze()  # else the collector would go through all objects of torch every few requests
        seconds = self.settings.poll_seconds
        while seconds and not self._ending.wait(seconds * uniform(0.8, 1.2)):
            self.poll()

    def _try(self, slot: Slot, state: State | None) -> None:
        """Load the model of a slot into it; `state` is what `current` has found."""
        began = perf_counter()
        try:
            served = self._load(slot)
        except Exception as error:
            slot.failed = None if isinstance(error, HttpError) else state
            slot.again = monotonic() + AGAIN
            self._failed(slot, error)
            return
        self.metrics.loads.labels(slot.label).inc()
        slot.loaded = slot.looked = time()
        slot.served, slot.reason, slot.failed = served, "", None
        logger().info(
            "model ready",
            model=served.identity.name,
            version=served.identity.version,
            digest=served.identity.digest,
            device=served.forecaster.device,
            seconds=round(perf_counter() - began, 2),
        )

    def _failed(self, slot: Slot, error: Exception) -> None:
        """Count and log the failure; the model in the slot stays."""
        self.metrics.failures.labels(slot.label).inc()
        if slot.served is None:
            slot.reason = for_clients(error)
        foreseen = isinstance(error, ForecasterError | HttpError)
        digest = slot.served and slot.served.identity.digest
        logger().error(
            "model failed", source=slot.source, kept=digest, reason=str(error),
            exc_info=None if foreseen else error,
        )  # fmt: skip

    def _load(self, slot: Slot) -> Served:
        """The model of a slot, loaded and checked. Raises an error if it must not be served."""
        served, old = load(slot.source, self.settings, self.registry), slot.served
        if old and (changes := differences(old.forecaster, served.forecaster)):
            raise UnfitError(
                "the new model would not suit the clients of the old: " + "; ".join(changes) + ". "
                "Restart the service to serve it, or give it another name"
            )
        others = [other.served for other in self.slots if other is not slot and other.served]
        if unreachable(served, others):
            raise ConfigError(
                f"two models are called {served.identity.name}, so that a request cannot "
                "choose between them: remove one, or register them and give alias or version"
            )
        forecaster = served.forecaster
        request = example(forecaster)
        parameters = {**request["parameters"], "quantile_levels": forecaster.levels}
        question = Question.from_json(request["inputs"], parameters, forecaster)
        self.submit(served, question).result()
        return served


def _model_of(slots: Sequence[Slot], slot: Slot) -> Served:
    if slot.served is None:
        which = f"model {slots.index(slot) + 1} of {len(slots)}: " if len(slots) > 1 else ""
        retry = 2 if slot.loading else 60
        raise HttpError(503, which + slot.reason, retry=retry, reason="model")
    return slot.served


def unreachable(new: Served, others: Sequence[Served]) -> bool:
    """Whether all names of one of two different models are names of the other, too."""
    names = set(new.names)
    return any(
        (names <= set(other.names) or names >= set(other.names))
        and not (new.identity.version and new.identity.digest == other.identity.digest)
        for other in others
    )


def store_of(request: Request) -> Store:
    """The store of the service that answers a request, with its settings, metrics and models.

    A plain call, because FastAPI's `Depends` would cost each request the time to resolve it.
    """
    store: Store = request.app.state.store
    return store


def left(store: Store, request: Request) -> float:
    """The seconds until the deadline of a request, which counts from its arrival."""
    arrived: float = request.state.arrived
    return arrived + store.settings.deadline_seconds - monotonic()


class Keeper:
    """Keeps forecasts in the ledger of the settings, if there is one, in a thread of its own: an
    answer waits for nothing and never fails. `lost` counts what could not be kept."""

    def __init__(self, settings: Settings) -> None:
        self.ledger = None
        if settings.ledger is not None:
            days, most = settings.ledger_days, settings.ledger_bytes
            self.ledger = Ledger(settings.ledger, days=days, most_bytes=most)
        self._believed = frozenset(settings.actuals_keys)
        self._waiting: deque[tuple[Predictor, Question, Answer, bool, datetime]] = deque()
        self._dropped = 0
        self._ending = Event()
        self._thread = Thread(target=self._watch, name="ledger", daemon=True)

    @property
    def lost(self) -> int:
        """The rows, and series of too many at once, that could not be kept."""
        return self._dropped + (self.ledger.lost if self.ledger else 0)

    def open(self) -> None:
        if self.ledger is not None:
            self._thread.start()

    def close(self) -> None:
        """Keep what waits."""
        self._ending.set()
        if self.ledger is not None and self._thread.is_alive():
            self._thread.join(KEEPING_SECONDS)

    def note(self, model: Predictor, question: Question, answer: Answer, key: str | None) -> None:
        """Keep an answer, and its histories as actual values if `key` may write those."""
        if self.ledger is None:
            return
        if len(self._waiting) >= MOST_KEPT:
            self._dropped += len(question)
            return
        believed, now = key in self._believed, datetime.now(UTC)
        self._waiting.append((model, question, answer, believed, now))

    def write(self) -> None:
        """Keep what waits now. Never raises."""
        assert self.ledger is not None
        while self._waiting:
            model, question, answer, believed, then = self._waiting.popleft()
            try:
                shown = answer.at(answer.levels, question.steps)
                self.ledger.add("forecasts", kept.forecasts(model, question, shown, then))
                if believed:
                    self.ledger.add("actuals", kept.actuals(model, question, then))
            except Exception:  # a row less is no reason to stop
                self._dropped += len(question)
        self.ledger.flush()

    def _watch(self) -> None:
        while not self._ending.wait(KEEPING_SECONDS):
            self.write()
        self.write()
