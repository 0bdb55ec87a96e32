import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from forecaster.base import signals
from forecaster.base.errors import Stopped


@pytest.fixture
def _heeding():
    outside = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with signals.heeding():
            yield
    finally:
        signal.signal(signal.SIGTERM, outside)


@pytest.mark.usefixtures("_heeding")
class TestFlag:
    def test_without_anything_to_lose_the_work_ends_at_once(self):
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(signal.SIGTERM)
        assert caught.value.exit_code == 143

    def test_with_something_to_lose_it_ends_where_it_looks(self):
        signals.check()
        assert signals.waiting() == 0
        with signals.orderly():
            signal.raise_signal(signal.SIGTERM)
            assert 0 < signals.waiting() < 60
            with signals.orderly():
                pass
            with pytest.raises(Stopped):
                signals.check()

    def test_the_next_signal_is_for_the_system(self):
        with signals.orderly():
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.SIG_IGN)


def test_all_is_as_it_was_afterwards():
    def now():
        return [*map(signal.getsignal, signals.WANTED), *os.listdir("/proc/self/fd")]

    before = now()
    with signals.heeding():
        pass
    assert (now(), signals.waiting()) == (before, 0)


HANGS = {
    "in other code": "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)",
    "swallowed": "while True:\n    try: time.sleep(60)\n    except BaseException: pass",
    "in order, without a look": "with signals.orderly(): time.sleep(60); time.sleep(60)",
}


@pytest.mark.parametrize("hang", HANGS)
def test_however_it_hangs_the_process_ends(hang):
    work = textwrap.indent(HANGS[hang], "    ")
    program = f"""
import hashlib, signal, time
from forecaster.base import signals
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signals.GRACE = 0.5

def work():
{work}

with signals.heeding(), signals.orderly():
    print("ready", flush=True)
    signals._state.depth = {int("order" in hang)}
    work()
"""
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        assert 0.4 < time.monotonic() - begun < 10
        assert process.stderr.read() == "stopped\n"


def test_a_signal_that_another_heeds_ends_nothing():
    """As uvicorn does while it serves."""
    program = """
import signal, time
from forecaster.base import signals
signals.GRACE = 0.1
with signals.heeding():
    signal.signal(signal.SIGTERM, lambda number, frame: print("theirs"))
    signal.raise_signal(signal.SIGTERM)
    time.sleep(1)
    print("served")
"""
    done = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert done.splitlines() == ["theirs", "served"]
