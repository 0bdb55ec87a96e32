"""Several processes on one socket: what they share, and what happens when one dies."""

import json
import re
import signal
import sys
import time
from contextlib import closing
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from forecaster.forecast.bundle import digest_of
from forecaster_service.workers import ServiceWorker
from tests.service.processes import (
    CLIENTS,
    SECONDS,
    Load,
    children,
    free_port,
    get,
    running,
    serving,
    until,
)
from tests.service.toy import NAME, make_bundle

WORKERS = 2
SEVERAL = ("--workers", str(WORKERS))


def workers(server):
    """The processes that serve."""
    return children(server.process, "spawn_main")


def example(server):
    return json.dumps(server.get(f"/models/{NAME}/example")).encode()


def counters(server):
    """The samples of /metrics, by name and labels."""
    text = server.raw([get("/metrics")])[0].decode()
    found = re.findall(r"^([^#\s]\S*) (\S+)\r?$", text.partition("\r\n\r\n")[2], re.MULTILINE)
    return {name: float(value) for name, value in found}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def server(place):
    for kind in ("informer", "tokens"):
        make_bundle(place / kind, model=kind)
    (place / "link").symlink_to("informer")
    with serving(place / "link", place, *SEVERAL, device="cpu", poll_seconds=1) as server:
        yield server


def test_where_none_can_start_it_ends(tmp_path):
    """A process that dies between the parent's question and its answer is waited for, 3 s here."""
    log, environment = tmp_path / "log", {"FORECASTER_DEVICE": "cpu"}
    code = (
        "import os; from forecaster_service import workers; kept = workers.from_environment();"
        "workers.HUNG = 3;"
        "workers.from_environment = lambda: kept; os.environ['FORECASTER_DEVICE'] = 'nonsense';"
        f"workers.run('127.0.0.1', {free_port()}, 2, workers.Child(kept))"
    )
    with running([sys.executable, "-c", code], environment, tmp_path, log) as process:
        assert process.wait(SECONDS) == 1
    assert "cannot start" in log.read_text()


def test_a_file_that_is_still_empty_hides_no_figure(tmp_path):
    for name in ("metrics", "processes"):
        (tmp_path / name).mkdir()
    key = mmap_key("asked", "asked_total", [], [], "how often")
    with closing(MmapedDict(str(tmp_path / "metrics" / "counter_1.db"))) as own:
        own.write_value(key, 3.0, 0.0)
    (tmp_path / "metrics" / "counter_2.db").touch()
    figures = ServiceWorker(2, tmp_path).figures(CollectorRegistry())
    assert b"asked_total 3.0" in generate_latest(figures)


@pytest.mark.slow
class TestAsOneService:
    def test_one_that_is_killed_costs_what_it_was_doing_and_comes_back(self, server):
        seen = []

        def counted(deaths):
            seen.append(counters(server))
            wanted, answering, died = (
                seen[-1][f"forecaster_{name}"]
                for name in ("workers_wanted", "workers", "worker_deaths_total")
            )
            return wanted == answering == WORKERS and died >= deaths  # a hung one is replaced, too

        with Load(server.port, example(server)) as load:
            for number in range(WORKERS):
                asked, victim = len(load.answers), workers(server)[0]
                until(lambda asked=asked: len(load.answers) > asked + 20)
                victim.kill()
                until(
                    lambda number=number: counted(number + 1),
                    about=lambda: f"{seen[-1]}\n{server.log.read_text()[-3000:]}",
                )
        assert load.failed == [], server.log.read_text()[-3000:]
        assert load.again <= WORKERS * CLIENTS
        for before, after in pairwise([*seen, counters(server)]):
            for name, value in before.items():
                if re.search(r"_(total|count|bucket|sum)({|$)", name):
                    assert after[name] >= value, name
        assert 0 < server.figure("forecasts_total") <= len(load.answers) + load.again

    def test_a_newer_model_takes_its_place_in_all_without_a_failed_request(self, server, place):
        with Load(server.port, example(server)) as load:
            until(lambda: len(load.answers) > 20)
            (place / "spare").symlink_to("tokens")
            (place / "spare").replace(place / "link")
            new = digest_of(place / "tokens")
            until(lambda: server.log.read_text().count(f'"digest": "{new}"') >= WORKERS)
            asked = len(load.answers)
            until(lambda: len(load.answers) > asked + 20)
        assert load.failed == [], server.log.read_text()[-3000:]
        assert load.again == 0
        assert set(load.answers) == {digest_of(place / kind) for kind in ("informer", "tokens")}
        older = [each for each in load.answers[asked:] if each != new]
        assert len(older) <= CLIENTS  # what was under way

    def test_without_their_parent_none_is_left(self, server):
        processes = workers(server)
        server.process.kill()
        until(lambda: not any(each.is_running() for each in processes))
        assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_terminated_all_end_and_answer_what_they_have(folder, tmp_path):
    with serving(folder, tmp_path, *SEVERAL, drain_seconds=1, max_batch=1) as server:
        processes = workers(server)
        with Load(server.port, example(server)) as load:
            until(lambda: len(load.answers) > 20)
            asked, began = len(load.answers), time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(SECONDS) == 143
            assert time.monotonic() - began >= 1
        assert len(load.answers) > asked
        assert all(isinstance(error, ConnectionError) for error in load.failed), load.failed
    assert not any(each.is_running() for each in processes)
    assert "Traceback" not in server.log.read_text()
