"""Batching: series that wait at the same time run together, from a bounded queue."""

from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from math import inf
from threading import Condition, Thread
from time import monotonic
from typing import TypeAlias

from forecaster.forecast.answer import Answer
from forecaster.forecast.question import Question, concatenate
from forecaster_service.http_errors import busy

MARGIN = 1.5
"""The factor by which a wait may exceed its estimate."""
COMING = 0.1
"""Seconds for which a batch waits while further requests are being read."""
LATEST = 60.0
"""The longest Retry-After, in seconds."""
WEIGHT = 0.3
"""The weight of a batch in the estimate for the next one of its kind and size."""
FRESH = 60.0
"""Seconds after a measurement during which it is a reason to refuse a request."""


Call: TypeAlias = Callable[[Question], Answer]


class Submission(Future[Answer]):
    """A submission. `answers` are those to the series that have run, in `inference` seconds, after
    the first `taken` have left the queue; `queue` is the seconds in which it waited, and `batch`
    the size of the largest batch that it was in."""

    def __init__(self, key: Hashable, call: Call, question: Question, within: float) -> None:
        super().__init__()
        self.key, self.call, self.question = key, call, question
        self.submitted = monotonic()
        self.until = self.submitted + within
        self.taken = self.batch = 0
        self.answers: list[Answer] = []
        self.inference = self.queue = 0.0


Part: TypeAlias = tuple[Submission, Question]
"""A submission, and those of its series that are in a batch."""


class Batcher:
    """Answers questions in a thread, in batches of at most `max_batch` series with the same key.

    There is one thread for the device: a batch in each of two threads takes longer than one batch
    of both, because the threads wait for the interpreter and for each other.

    A batch starts when the thread is free. While `coming` says that more is on its way, it waits a
    little to be full: under load a full batch costs little more than one series. A submission
    larger than a batch runs in several, and other submissions get their turn in between as long as
    its deadline allows. At most `max_queue` series wait, or one larger submission. A submission is
    refused when it would wait longer than it may, estimated by the `pace` of earlier batches.
    """

    def __init__(self, max_batch: int, max_queue: int, coming: Callable[[], object] = bool) -> None:
        self.max_batch, self.max_queue, self.coming = max_batch, max_queue, coming
        self._queue: dict[Submission, None] = {}  # in their order
        self._waiting = Counter[Hashable]()  # series in the queue, by key
        self._running: tuple[float, float] | None = None  # since when, and the expected cost
        self.pace = Pace()
        self._promised = 0.0  # until when the time is promised to refused submissions that retry
        self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="forecast", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a batch runs."""
        return self._running is not None

    @property
    def waiting(self) -> int:
        """How many series are in the queue."""
        return self._waiting.total()

    def ahead(self) -> float:
        """The estimated seconds until everything that runs or waits now is done."""
        with self._changed:
            since, cost = self._running or (0.0, 0.0)
            # a batch that has overrun its estimate is assumed to need as long again as the overrun
            rest = abs(cost - (monotonic() - since)) if cost else 0.0
            return rest + sum(
                self.pace.cost(key, count, self.max_batch) for key, count in self._waiting.items()
            )

    def submit(
        self, key: Hashable, call: Call, question: Question, within: float = inf
    ) -> Submission:
        """Queue a question about at least one series for `call`, which answers it.

        `call` also gets series of other submissions with an equal key, and must be the same for all
        of them. Where it raises, the batch runs again in halves, so that the error reaches only the
        submissions whose series caused it. Cancelling the future removes the series that have not
        run from the queue. Raises HttpError 503 when there is no room, and when the work would take
        longer than `within` seconds; a submission with nothing ahead of it runs regardless if its
        kind has not been measured lately.
        """
        work = Submission(key, call, question, within)
        with self._changed:
            self._admit(key, len(question), within)
            self._queue[work] = None
            self._waiting[key] += len(question)
            if not 1 < self.waiting < self.max_batch or not self.coming():
                self._changed.notify()  # else the thread already waits for the rest of this batch
        work.add_done_callback(self._drop)
        return work

    def _admit(self, key: Hashable, count: int, within: float) -> None:
        """Raise HttpError 503 unless `count` series can be taken."""
        if self._closed:
            raise busy("the service is ending", "ending", 10)
        ahead, waiting = self.ahead(), self.waiting
        cost = self.pace.cost(key, count, self.max_batch)
        if cost > within and (ahead or self.pace.fresh(key, min(count, self.max_batch))):
            fewer = ": send fewer series" if count > 1 else ""
            left = f"{max(within, 0):.2g} s are left"
            detail = f"this request takes about {cost:.2g} s here, but {left}{fewer}"
            raise busy(detail, "size", LATEST)
        over, late = waiting + count - self.max_queue, (ahead + cost) * MARGIN - within
        if waiting and over > 0:
            seconds = self.later(ahead * min(over / waiting, 1), cost)
            raise busy(f"{waiting} series are waiting already", "queue", seconds)
        if ahead and late > 0:
            seconds = self.later(min(late / MARGIN, ahead), cost)
            detail = f"{waiting} series are waiting already, about {ahead:.2g} s of work"
            raise busy(detail, "time", seconds)

    def later(self, seconds: float, cost: float | None = None) -> float:
        """In how many seconds a refused submission should be sent again: `seconds`, or more where
        earlier refused ones have their turn first. `cost`: by default what one series cost last."""
        with self._changed:
            now = monotonic()
            cost = self.pace.last if cost is None else cost
            self._promised = min(max(self._promised, now + seconds) + cost, now + LATEST)
            return min(self._promised - now, LATEST)  # (now + x) - now may be more than x

    def close(self) -> None:
        """Accept nothing more, and return when everything that waits has run."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _drop(self, work: Future[Answer]) -> None:
        with self._changed:
            if isinstance(work, Submission) and work in self._queue:
                del self._queue[work]
                self._leave(work.key, len(work.question) - work.taken)

    def _leave(self, key: Hashable, count: int) -> None:
        self._waiting[key] -= count
        if not self._waiting[key]:
            del self._waiting[key]

    def _run(self) -> None:
        while batch := self._take():
            self._forecast(batch)
            del batch  # so that it does not stay in memory while nothing is to do

    def _take(self) -> list[Part]:
        """The next batch; empty once the queue is closed and empty."""
        with self._changed:
            self._running = None
            while True:
                first = next(iter(self._queue), None)
                if first is None and self._closed:
                    return []
                if first is None:
                    self._changed.wait()
                    continue
                alike = [work for work in self._queue if work.key == first.key]
                rest = first.submitted + COMING - monotonic() if self.coming() else 0.0
                if rest <= 0 or self._waiting[first.key] >= self.max_batch or self._closed:
                    break
                self._changed.wait(rest)
            batch, room = list[Part](), self.max_batch
            for work in alike:
                end = min(work.taken + room, len(work.question))
                batch.append((work, work.question[work.taken : end]))
                room -= end - work.taken
                self._leave(work.key, end - work.taken)
                work.taken = end
                if end == len(work.question):
                    del self._queue[work]
                elif monotonic() + self.ahead() * MARGIN < work.until:
                    del self._queue[work]
                    self._queue[work] = None  # to the end of the queue
                if not room:
                    break
            count = self.max_batch - room
            self._running = monotonic(), self.pace.cost(first.key, count, self.max_batch)
            return batch

    def _forecast(self, batch: list[Part]) -> None:
        batch = [(work, question) for work, question in batch if not work.done()]
        if not batch:
            return
        first, answer, start = batch[0][0], None, monotonic()
        count = sum(len(question) for _, question in batch)
        try:
            answer = first.call(concatenate([question for _, question in batch]))
        except Exception as error:
            if count == 1 and first.set_running_or_notify_cancel():
                first.set_exception(error)
        seconds = monotonic() - start
        for work, _ in batch:
            work.inference += seconds
        if answer is None:  # outside the handler, which would keep the failed batch in memory
            for half in _halves(batch, count // 2) if count > 1 else ():
                self._forecast(half)
            return
        with self._changed:
            self.pace.note(first.key, count, seconds)
        end = 0
        for work, question in batch:
            work.answers.append(answer[end : end + len(question)])
            work.batch = max(work.batch, count)
            end += len(question)
            whole = sum(map(len, work.answers)) == len(work.question)
            if whole and work.set_running_or_notify_cancel():
                work.queue = monotonic() - work.submitted - work.inference
                work.set_result(concatenate(work.answers))


def _halves(batch: list[Part], middle: int) -> tuple[list[Part], list[Part]]:
    """A batch in two parts, of which the first has `middle` series."""
    first, second = list[Part](), list[Part]()
    for work, question in batch:
        if middle > 0:
            first.append((work, question[:middle]))
        if middle < len(question):
            second.append((work, question[max(middle, 0) :]))
        middle -= len(question)
    return first, second


class Pace:
    """The costs of kinds of work, identified by a key, in batches of 1, 2, 3 to 4, 5 to 8 series
    and so on. Not thread-safe by itself.

    A size that was not measured costs as much as the nearest that was, in proportion if it is
    larger: never too little.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[int, tuple[float, float]]] = {}  # seconds, and when
        self.last = 0.0
        """The cost of one series in the batch that ran last."""

    def note(self, key: Hashable, series: int, seconds: float) -> None:
        """Record that a batch of that kind, of `series` series, has cost `seconds`."""
        sizes = self._kinds.setdefault(key, {})
        before, _ = sizes.get(_size(series), (seconds, 0.0))
        sizes[_size(series)] = before + WEIGHT * (seconds - before), monotonic()
        self.last = seconds / series

    def cost(self, key: Hashable, series: int, batch: int) -> float:
        """The cost of `series` series in batches of at most `batch`; 0 for an unknown kind."""
        sizes = self._kinds.get(key)
        if not sizes:
            return 0.0

        def one(count: int) -> float:
            near = min(sizes, key=lambda size: (abs(size - _size(count)), size))
            return sizes[near][0] * max(1.0, count / (1 << near))

        full, rest = divmod(series, batch)
        return (full and full * one(batch)) + (rest and one(rest))

    def fresh(self, key: Hashable, series: int) -> bool:
        """Whether batches of that kind and size were measured recently."""
        _, measured = self._kinds.get(key, {}).get(_size(series), (0.0, -FRESH))
        return monotonic() < measured + FRESH


def _size(series: int) -> int:
    return (series - 1).bit_length()
