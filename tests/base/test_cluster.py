"""Work on a Ray cluster on this machine: the same answers, and failures that cost no other task."""

import os
import signal
import sys
import time
from contextlib import nullcontext, suppress
from unittest.mock import Mock

import psutil
import pytest

from forecaster.base import cluster, signals
from forecaster.base.errors import Stopped, UnavailableError
from forecaster.base.workers import FailedError


def work(shared, item):
    if item == "raise":
        raise ValueError("no such thing")
    if item == "die":
        os._exit(3)
    return shared, item, os.getpid()


@pytest.mark.slow
def test_each_item_gets_its_answer_and_a_failure_costs_no_other():
    found, listening = {}, set()
    for item, answer in cluster.each(work, "all", ["a", "raise", "die", "b"], cluster.LOCAL, 2):
        found[item] = answer
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                every = process.net_connections("inet")
                listening |= {each.laddr.ip for each in every if each.status == psutil.CONN_LISTEN}
    assert set() < listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    for item in "ab":
        assert found[item][:2] == ("all", item)
        assert found[item][2] != os.getpid()
    assert isinstance(found["raise"], FailedError)
    assert str(found["raise"]) == "raised ValueError: no such thing"
    assert str(found["die"]).startswith("was lost: ")


def test_a_cluster_that_is_not_there():
    pytest.importorskip("ray")
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match=r"no Ray cluster can be used at 127\.0\.0\.1:1: "):
        list(cluster.each(work, None, ["a"], "127.0.0.1:1", 1))
    assert time.monotonic() - begun < 60, "Ray alone would wait for minutes"


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        UnavailableError, match=r"--ray needs ray: .* 'attention-forecaster\[ray\]'"
    ):
        list(cluster.each(work, None, ["a"], cluster.LOCAL, 1))


def test_a_signal_waits_until_native_code_has_returned(monkeypatch):
    ray, returned = Mock(), []

    def wait(waiting, **how):
        signal.raise_signal(signal.SIGTERM)
        returned.append(True)
        return waiting, []

    ray.wait = wait
    monkeypatch.setattr(cluster, "joined", lambda *where: nullcontext(ray))
    with pytest.raises(Stopped), signals.heeding():
        list(cluster.each(work, None, ["a"], "somewhere", 1))
    assert returned == [True]
