"""The ledger of a service: what it forecasts, and the values that came."""

from collections import deque
from datetime import UTC, datetime
from threading import Event, Thread

from forecaster.forecast import kept
from forecaster.forecast.answer import Answer
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question
from forecaster.record.ledger import Ledger
from forecaster_service.settings import Settings

SECONDS = 10.0
"""Between two writes."""
MOST = 1_000
"""The most answers that wait to be kept; further ones are lost."""


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
            self._thread.join(SECONDS)

    def note(self, model: Predictor, question: Question, answer: Answer, key: str | None) -> None:
        """Keep an answer, and its histories as actual values if `key` may write those."""
        if self.ledger is None:
            return
        if len(self._waiting) >= MOST:
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
        while not self._ending.wait(SECONDS):
            self.write()
        self.write()
