"""What waits at the same time runs together: a bounded queue before the threads of a device."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, RLock, Thread, current_thread
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class RefusedError(Exception):
    """The queue is full, or closed for good."""


@dataclass(frozen=True)
class Done(Generic[Result]):
    """The results of a submission, in the order of its items.

    `inference` are the seconds in which its batches ran, `queue` those in which it waited, `batch`
    the most items that ran together with it, its own included.
    """

    results: list[Result]
    queue: float
    inference: float
    batch: int


class _Work(Future[Done[Result]], Generic[Item, Result]):
    """A submission: `taken` items have left the queue, and `found` has the results of those that
    have run, by their number. It has run for `inference` seconds, and since `began` while some of
    it runs in `threads`."""

    def __init__(
        self,
        key: Hashable,
        call: Callable[[Sequence[Item]], Sequence[Result]],
        items: Sequence[Item],
    ) -> None:
        super().__init__()
        self.key, self.call, self.items = key, call, items
        self.submitted = monotonic()
        self.taken = 0
        self.found: dict[int, Result] = {}
        self.inference = 0.0
        self.threads = 0
        self.began = 0.0
        self.batch = 0


class Batcher(Generic[Item, Result]):
    """Runs items in its threads, at most `max_batch` at a time and only those of one key together.

    A batch starts when a thread is free and either it is full or its oldest item has waited for
    `max_wait` seconds; with 0, it takes its share of what is there, an equal one for each thread
    that is free. A submission that is larger than a batch runs in several, between which others
    get their turn. At most `max_queue` items wait, or one larger submission. While its first thread
    is free no other one takes anything, so that what comes one after the other runs in that.
    """

    def __init__(self, max_batch: int, max_wait: float, max_queue: int, threads: int = 1) -> None:
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait, max_queue
        self._queue: dict[_Work[Item, Result], None] = {}  # in their order
        self.waiting = 0  # items in the queue
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
    def busy(self) -> int:
        """How many of the threads run a batch."""
        return len(self._threads) - self._free

    def submit(
        self,
        key: Hashable,
        call: Callable[[Sequence[Item]], Sequence[Result]],
        items: Sequence[Item],
    ) -> Future[Done[Result]]:
        """Queue items, at least one, for `call`, which gives a result for each.

        `call` is handed the items of others with an equal key, too, and must be the same for them.
        Where it raises, the batch is run again in halves, so that the error reaches only those
        whose item it is. Cancelling the future takes what has not run out of the queue. Raises
        RefusedError when there is no room.
        """
        work = _Work(key, call, items)
        with self._changed:
            if self._closed:
                raise RefusedError("the service is ending")
            if self.waiting and self.waiting + len(items) > self.max_queue:
                raise RefusedError(f"{self.waiting} series are waiting already")
            self._queue[work] = None
            self.waiting += len(items)
            self._wake()
        work.add_done_callback(self._drop)
        return work

    def close(self) -> None:
        """Take nothing more, and return when what waits has run."""
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
                self.waiting -= len(work.items) - work.taken

    def _wake(self) -> None:
        """Tell those that may take something; nobody is woken for nothing."""
        (self._for_first if self._first_free else self._for_others).notify_all()

    def _run(self) -> None:
        while self._step():
            pass  # and nothing of a batch is kept while there is none

    def _step(self) -> bool:
        batch = self._take()
        self._forecast(batch)
        return bool(batch)

    def _take(self) -> list[tuple[_Work[Item, Result], int]]:
        """The next batch, items by their number; empty when the queue is closed and empty."""
        leads = current_thread() is self._threads[0]
        changed = self._for_first if leads else self._for_others
        with changed:
            self._free += 1
            self._first_free = self._first_free or leads
            while True:
                first = next(iter(self._queue), None)
                if first is None and self._closed:
                    return []  # and stays free
                if first is None or (self._first_free and not leads):
                    changed.wait()
                    continue
                alike = [work for work in self._queue if work.key == first.key]
                rest = first.submitted + self.max_wait - monotonic()
                count = sum(len(work.items) - work.taken for work in alike)
                if rest <= 0 or count >= self.max_batch or self._closed:
                    break
                changed.wait(rest)
            share = min(-(-count // self._free), self.max_batch)
            self._free -= 1
            self._first_free = self._first_free and not leads
            batch: list[tuple[_Work[Item, Result], int]] = []
            for work in alike:
                end = min(work.taken + share - len(batch), len(work.items))
                batch += [(work, number) for number in range(work.taken, end)]
                self.waiting -= end - work.taken
                work.taken = end
                del self._queue[work]
                if end < len(work.items):
                    self._queue[work] = None  # behind all others
                if len(batch) == share:
                    break
            if self._queue:
                self._wake()
            return batch

    def _forecast(self, batch: list[tuple[_Work[Item, Result], int]]) -> None:
        batch = [(work, number) for work, number in batch if not work.done()]
        if not batch:
            return
        first, results = batch[0][0], None
        works = dict(batch)
        with self._timed(works):
            try:
                results = first.call([work.items[number] for work, number in batch])
            except Exception as error:
                if len(batch) == 1:
                    with self._changed:  # another thread may fail with another item of it
                        if not first.done() and first.set_running_or_notify_cancel():
                            first.set_exception(error)
        if results is None:  # no longer in the handler, which keeps the memory of what failed
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]) if middle else ():
                self._forecast(half)
            return
        with self._changed:
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
        """Counts as inference of each, what runs in several threads at once but once."""
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
