"""Batching: series that wait at the same time run together, from a bounded queue."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from threading import Condition, RLock, Thread, current_thread, get_ident
from time import monotonic
from typing import Generic, TypeVar

from forecaster_service.pace import Pace

Item = TypeVar("Item")
Result = TypeVar("Result")
MARGIN = 1.5
"""The factor by which a wait may exceed its estimate."""
COMING = 0.1
"""Seconds for which a batch waits while further requests are being read."""
LATEST = 60.0
"""The longest Retry-After, in seconds."""


class RefusedError(Exception):
    """A submission is refused: why, a word for the metrics, and in how many seconds to retry."""

    def __init__(self, detail: str, reason: str, seconds: float) -> None:
        super().__init__(detail)
        self.reason, self.seconds = reason, seconds


@dataclass(frozen=True)
class Done(Generic[Result]):
    """The results of a submission, in the order of its items.

    `inference` is the seconds in which its batches ran, `queue` the seconds in which it waited,
    `batch` the size of the largest batch that it was in, including its own items.
    """

    results: list[Result]
    queue: float
    inference: float
    batch: int


class _Work(Future[Done[Result]], Generic[Item, Result]):
    """A submission: `taken` items have left the queue, and `found` has the results of those that
    have run, by their number. It has run for `inference` seconds, and additionally since `began`
    while `threads` threads run items of it."""

    def __init__(
        self,
        key: Hashable,
        call: Callable[[Sequence[Item]], Sequence[Result]],
        items: Sequence[Item],
        within: float,
    ) -> None:
        super().__init__()
        self.key, self.call, self.items = key, call, items
        self.submitted = monotonic()
        self.until = self.submitted + within
        self.taken = 0
        self.found: dict[int, Result] = {}
        self.inference = 0.0
        self.threads = 0
        self.began = 0.0
        self.batch = 0


class Batcher(Generic[Item, Result]):
    """Runs items in its threads, in batches of at most `max_batch` items with the same key.

    A batch starts when a thread is free and the batch is either full or its oldest item has waited
    for `max_wait` seconds; with 0 it starts at once, and the free threads share the waiting items
    equally. While `coming` says that more is on its way, a batch waits a little to be full: under
    load a full batch costs little more than one series. A submission larger than a batch runs in
    several, and other submissions get their turn in between as long as its deadline allows. At most
    `max_queue` items wait, or one larger submission. A submission is refused when it would wait
    longer than it may, estimated by the `pace` of earlier batches. While the first thread is free
    no other thread takes a batch, so that sequential requests all run in the first.
    """

    def __init__(
        self, max_batch: int, max_wait: float, max_queue: int, threads: int = 1,
        coming: Callable[[], object] = bool,
    ) -> None:  # fmt: skip
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait, max_queue
        self.coming = coming
        self._queue: dict[_Work[Item, Result], None] = {}  # in their order
        self._waiting = Counter[Hashable]()  # items in the queue, by key
        self._running: dict[int, tuple[float, float]] = {}  # by thread: since when, expected cost
        self.pace = Pace()
        self._promised = 0.0  # until when the time is promised to refused submissions that retry
        self._closed = False
        self._changed = RLock()
        self._for_first, self._for_others = Condition(self._changed), Condition(self._changed)
        self._free = 0
        self._first_free = False
        self._threads = [
            Thread(target=self._run, name=f"forecast-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    @property
    def busy(self) -> int:
        """How many of the threads run a batch."""
        return len(self._threads) - self._free

    @property
    def waiting(self) -> int:
        """How many items are in the queue."""
        return self._waiting.total()

    def ahead(self) -> float:
        """The estimated seconds until everything that runs or waits now is done."""
        with self._changed:
            now, side = monotonic(), max(len(self._running), 1)
            # a batch that has overrun its estimate is assumed to need as long again as the overrun
            rest = sum(
                abs(cost - (now - since) / side) for since, cost in self._running.values() if cost
            )
            return rest + sum(
                self.pace.cost(key, count, self.max_batch) for key, count in self._waiting.items()
            )

    def again(self, within: float) -> float:
        """In how many seconds a submission with the deadline `within`, in seconds, would be
        accepted; 0 for now."""
        full = self.waiting >= self.max_queue
        ahead = self.ahead()
        return max(ahead - within / MARGIN, ahead / self.max_queue if full else 0.0, 1e-3 * full)

    def submit(
        self,
        key: Hashable,
        call: Callable[[Sequence[Item]], Sequence[Result]],
        items: Sequence[Item],
        within: float = inf,
    ) -> Future[Done[Result]]:
        """Queue items, at least one, for `call`, which gives a result for each.

        `call` also gets items of other submissions with an equal key, and must be the same for all
        of them. Where it raises, the batch runs again in halves, so that the error reaches only the
        submissions whose items caused it. Cancelling the future removes the items that have not run
        from the queue. Raises RefusedError when there is no room, and when the work would take
        longer than `within` seconds; a submission with nothing ahead of it runs regardless if its
        kind has not been measured lately.
        """
        work = _Work(key, call, items, within)
        with self._changed:
            self._admit(key, len(items), within)
            self._queue[work] = None
            self._waiting[key] += len(items)
            self._wake()
        work.add_done_callback(self._drop)
        return work

    def _admit(self, key: Hashable, count: int, within: float) -> None:
        """Raise RefusedError unless `count` items can be taken."""
        if self._closed:
            raise RefusedError("the service is ending", "ending", 10)
        ahead, waiting = self.ahead(), self.waiting
        own = self.max_wait + self.pace.cost(key, count, self.max_batch)
        if own > within and (self.pace.fresh(key) or ahead):
            these, few = (
                (f"{count} series take", ": send fewer series")
                if count > 1
                else ("a series takes", "")
            )
            detail = f"{these} about {own:.2g} s here, but {max(within, 0):.2g} s are left{few}"
            raise RefusedError(detail, "size", LATEST)
        over, late = waiting + count - self.max_queue, (ahead + own) * MARGIN - within
        if waiting and over > 0:
            seconds = self.later(ahead * min(over / waiting, 1), own)
            raise RefusedError(f"{waiting} series are waiting already", "queue", seconds)
        if ahead and late > 0:
            seconds = self.later(min(late / MARGIN, ahead), own)
            detail = f"{waiting} series are waiting already, about {ahead:.2g} s of work"
            raise RefusedError(detail, "time", seconds)

    def later(self, seconds: float, cost: float | None = None) -> float:
        """In how many seconds a refused submission should be sent again: `seconds`, or more where
        earlier refused ones have their turn first. `cost` is by default what one item cost last."""
        with self._changed:
            now = monotonic()
            cost = self.pace.last() if cost is None else cost
            self._promised = min(max(self._promised, now + seconds) + cost, now + LATEST)
            return self._promised - now

    def close(self) -> None:
        """Accept nothing more, and return when everything that waits has run."""
        with self._changed:
            self._closed = True
            self._for_first.notify_all()
            self._for_others.notify_all()
        for thread in self._threads:
            thread.join()

    def _drop(self, work: Future[Done[Result]]) -> None:
        with self._changed:
            if isinstance(work, _Work) and work in self._queue:
                del self._queue[work]
                self._leave(work.key, len(work.items) - work.taken)

    def _leave(self, key: Hashable, count: int) -> None:
        self._waiting[key] -= count
        if not self._waiting[key]:
            del self._waiting[key]

    def _wake(self) -> None:
        """Wake only the threads that may take a batch."""
        if 1 < self.waiting < self.max_batch and self.coming():
            return  # a thread already waits for the rest of this batch
        (self._for_first if self._first_free else self._for_others).notify_all()

    def _run(self) -> None:
        while self._step():
            pass  # the loop is in another function so that no batch stays referenced while idle

    def _step(self) -> bool:
        batch = self._take()
        try:
            self._forecast(batch)
        finally:
            with self._changed:
                self._running.pop(get_ident(), None)
        return bool(batch)

    def _take(self) -> list[tuple[_Work[Item, Result], int]]:
        """The next batch, as submissions and item numbers; empty once the queue is closed and
        empty."""
        leads = current_thread() is self._threads[0]
        changed = self._for_first if leads else self._for_others
        with changed:
            self._free += 1
            self._first_free = self._first_free or leads
            while True:
                first = next(iter(self._queue), None)
                if first is None and self._closed:
                    return []  # this thread stays counted as free
                if first is None or (self._first_free and not leads):
                    changed.wait()
                    continue
                alike = [work for work in self._queue if work.key == first.key]
                coming = self.coming()
                wait = max(self.max_wait, COMING) if coming else self.max_wait
                rest = first.submitted + wait - monotonic()
                count = sum(len(work.items) - work.taken for work in alike)
                if rest <= 0 or count >= self.max_batch or self._closed:
                    break
                changed.wait(rest)
            share = min(count if coming else -(-count // self._free), self.max_batch)
            self._free -= 1
            self._first_free = self._first_free and not leads
            batch: list[tuple[_Work[Item, Result], int]] = []
            for work in alike:
                end = min(work.taken + share - len(batch), len(work.items))
                batch += [(work, number) for number in range(work.taken, end)]
                self._leave(work.key, end - work.taken)
                work.taken = end
                if end == len(work.items):
                    del self._queue[work]
                elif monotonic() + self.ahead() * MARGIN < work.until:
                    del self._queue[work]
                    self._queue[work] = None  # to the end of the queue
                if len(batch) == share:
                    break
            cost = self.pace.cost(first.key, len(batch), self.max_batch)
            self._running[get_ident()] = monotonic(), cost
            if self._queue:
                self._wake()
            return batch

    def _forecast(self, batch: list[tuple[_Work[Item, Result], int]]) -> None:
        batch = [(work, number) for work, number in batch if not work.done()]
        if not batch:
            return
        first, results = batch[0][0], None
        works = dict(batch)
        began, side = monotonic(), len(self._running)
        with self._timed(works):
            try:
                results = first.call([work.items[number] for work, number in batch])
            except Exception as error:
                if len(batch) == 1:
                    with self._changed:  # another thread may fail with another item of this work
                        if not first.done() and first.set_running_or_notify_cancel():
                            first.set_exception(error)
        if results is None:  # outside the handler, which would keep the failed batch in memory
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]) if middle else ():
                self._forecast(half)
            return
        with self._changed:
            beside = (side + len(self._running)) / 2
            self.pace.note(first.key, len(batch), (monotonic() - began) / beside)
            for (work, number), result in zip(batch, results, strict=True):
                work.found[number] = result
            for work in works:
                work.batch = max(work.batch, len(batch))
            whole = [work for work in works if len(work.found) == len(work.items)]
        for work in whole:
            if not work.done() and work.set_running_or_notify_cancel():
                queue = monotonic() - work.submitted - work.inference
                answers = [work.found[number] for number in range(len(work.items))]
                work.set_result(Done(answers, queue, work.inference, work.batch))

    @contextmanager
    def _timed(self, works: Iterable[_Work[Item, Result]]) -> Iterator[None]:
        """Add the elapsed time to the inference of each work, counting overlapping threads once."""
        with self._changed:
            for work in works:
                work.threads += 1
                if work.threads == 1:
                    work.began = monotonic()
        try:
            yield
        finally:
            with self._changed:
                for work in works:
                    work.threads -= 1
                    if not work.threads:
                        work.inference += monotonic() - work.began
