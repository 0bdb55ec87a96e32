"""The memory and the turns of bodies, without HTTP."""

import asyncio
from time import monotonic, sleep

import pytest

from forecaster_service import body as module
from forecaster_service.body import LARGE, Bodies
from forecaster_service.http_errors import HttpError
from forecaster_service.settings import Settings

pytestmark = pytest.mark.anyio
MIB = 2**20


class Sender:
    """Stands in for a request whose body comes when it is told to."""

    def __init__(self, declared):
        self.headers = {} if declared is None else {"content-length": str(declared)}
        self.pieces = asyncio.Queue()
        self.asked = False

    def send(self, *pieces):
        for piece in pieces:
            self.pieces.put_nowait(piece)

    async def receive(self):
        self.asked = True
        piece = await self.pieces.get()
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}


def bodies(**settings):
    """Room for 2 MiB of bodies that arrive."""
    return Bodies(Settings(max_bodies_bytes=4 * MIB, max_body_bytes=MIB, **settings))


async def read(of, sender, seconds=60):
    """The length of a body, whose memory is then free."""
    async with of.read(sender, monotonic() + seconds) as data:
        return len(data)


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_a_body_waits_for_memory_and_none_of_it_is_read_before():
    of, senders = bodies(), [Sender(MIB) for _ in range(3)]
    tasks = [asyncio.create_task(read(of, each)) for each in senders]
    await asyncio.sleep(0.3)
    assert [each.asked for each in senders] == [True, True, False]
    assert of.held == 2 * MIB
    for sender in senders:
        sender.send(b"x" * MIB, None)
    assert await asyncio.gather(*tasks) == [MIB] * 3
    assert of.held == 0


async def test_without_memory_until_the_deadline_it_is_refused_unless_it_is_small():
    of, small = bodies(), Sender(LARGE - 1)
    small.send(b"x" * (LARGE - 1), None)
    tasks = [asyncio.create_task(read(of, Sender(MIB))) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert await read(of, small) == LARGE - 1
    with pytest.raises(HttpError) as caught:
        await read(of, Sender(MIB), seconds=0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert of.held == 0
    assert (caught.value.status_code, caught.value.reason) == (503, "memory")
    assert int((caught.value.headers or {})["Retry-After"]) >= 1


async def test_one_of_unknown_length_takes_the_most_once_it_is_large():
    of, sender = bodies(), Sender(None)
    task = asyncio.create_task(read(of, sender))
    sender.send(b"x" * (LARGE - 1))
    await asyncio.sleep(0.05)
    assert of.held == 0
    sender.send(b"xx")
    await asyncio.sleep(0.05)
    assert of.held == MIB
    sender.send(None)
    assert await task == LARGE + 1
    assert of.held == 0


async def test_who_stands_still_loses_the_place_only_when_others_wait(monkeypatch):
    monkeypatch.setattr(module, "STALLED", 0.3)
    of, still, busy = bodies(), Sender(MIB), Sender(MIB)
    tasks = [asyncio.create_task(read(of, each)) for each in (still, busy)]
    for _ in range(5):
        await asyncio.sleep(0.1)
        busy.send(b"x" * LARGE)
    assert not tasks[0].done()
    other = Sender(MIB)
    other.send(b"x" * MIB, None)
    assert await read(of, other) == MIB
    with pytest.raises(HttpError) as caught:
        await tasks[0]
    assert caught.value.status_code == 408
    assert (caught.value.headers or {})["Connection"] == "close"
    busy.send(None)
    assert await tasks[1] == 5 * LARGE


async def test_one_large_body_is_parsed_at_a_time_and_those_behind_it_know():
    of, running, until = bodies(), [0], monotonic() + 60

    def parse():
        running.append(running[-1] + 1)
        sleep(0.1)
        running.append(running[-1] - 1)

    await of.work(MIB, until, parse)
    assert of.ahead() == 0
    tasks = [asyncio.create_task(of.work(MIB, until, parse)) for _ in range(3)]
    await asyncio.sleep(0)
    assert of.ahead() == pytest.approx(0.3, rel=0.5)
    with pytest.raises(HttpError) as caught:
        await of.work(MIB, monotonic() + 0.05, parse)
    assert (caught.value.status_code, caught.value.reason) == (503, "time")
    await asyncio.gather(*tasks)
    assert (max(running), of.ahead()) == (1, 0)


async def test_small_bodies_leave_others_a_turn():
    of, gaps, done, waiting = bodies(), [0.0], [], []

    async def watch():
        while len(done) < 40:
            began = monotonic()
            await asyncio.sleep(0)
            gaps.append(monotonic() - began)

    async def work():
        await of.work(1, monotonic() + 60, lambda: done.append(sleep(0.005)))
        waiting.append(of.waiting)

    await asyncio.gather(watch(), *(work() for _ in range(40)))
    assert max(waiting) > 20, "they wait where they can be counted"
    assert sorted(gaps)[-2] < 0.1
    assert of.waiting == 0
