import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from forecaster import signals, spools
from forecaster.errors import StorageError, UsageError
from forecaster.spools import Sender

PATIENT = (None, None, 99)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spools, "RETRIES", (0.01, 0.02))


def begin(id="0123456789", name="toy", **about):
    return spools.begin({"id": id, "name": name, "again": False, **about})


def numbers(spool):
    return [line["number"] for line, _ in spool.left()]


class Told:
    """A tracker that keeps the numbers it is sent, one at a time."""

    def __init__(self, spool):
        self.spool, self.numbers = spool, []
        self.fails = self.hangs = False

    def __call__(self, advance):
        lines = self.spool.left()  # first: a line that follows a failed one is not sent before it
        while self.hangs:
            time.sleep(0.01)
        if self.fails:
            raise OSError("away")
        if not lines:
            return False
        self.numbers.append(lines[0][0]["number"])
        self.spool.note(told=lines[0][1])
        return True


@pytest.fixture
def told():
    """What is sent of a spool, and the thread that sends it."""
    told = Told(begin())
    sender = Sender(told.spool, told)
    sender.start()
    yield told, sender
    told.hangs = False
    sender.close()
    assert not sender.is_alive()


def test_lines_stay_in_order_until_they_are_told():
    spool = begin()
    for number in range(3):
        spool.append("metrics", number=number)
    assert numbers(spool) == [0, 1, 2]
    spool.note(told=spool.left()[1][1])
    assert numbers(spool) == [2]
    assert not spool.whole
    assert spool.kinds() == {"metrics": 1}
    spool.note(told=spool.left()[0][1])
    assert (numbers(spool), spool.whole) == ([], True)
    spool.remove()
    assert not spool.folder.exists()


def test_another_process_finds_what_is_left():
    spool = begin()
    spool.append("metrics", number=1)
    spool.append("metrics", number=2)
    spool.note(told=spool.left()[0][1], run="r")
    spool.release()
    assert spools.waiting() == 1
    again = spools.take_up("0123456789")
    assert numbers(again) == [2]
    assert again.state["run"] == "r"
    assert again.about["again"]
    assert spools.take_up("0123456789") is None, "it is held"
    assert spools.waiting() == 0
    assert spools.take_up("9") is None


def test_a_line_that_was_torn_is_dropped():
    spool = begin()
    spool.append("metrics", number=1)
    spool.release()
    with (spool.folder / "lines.jsonl").open("ab") as file:
        file.write(b'{"kind": "metrics", "num')
    again = spools.take_up("0123456789")
    again.append("metrics", number=2)
    assert numbers(again) == [1, 2]


def test_a_full_disk_leaves_no_part_of_a_line(monkeypatch):
    spool = begin()
    spool.append("metrics", number=1)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[:5]))
        with pytest.raises(StorageError, match=r"lines\.jsonl cannot be written: no space"):
            spool.append("metrics", number=2)
    spool.append("metrics", number=3)
    assert numbers(spool) == [1, 3]


def test_a_run_that_ended_may_go_on():
    spool = begin()
    spool.append("metrics", number=1)
    spool.append("end", status="KILLED")
    spool.close_for("KILLED")
    assert [line["kind"] for line, _ in spool.left()] == ["metrics", "end"], "it had ended"
    spool.release()
    assert numbers(spools.take_up("0123456789")) == [1]


def test_the_end_of_a_process_that_died_is_that_of_its_last_line():
    spool = begin()
    spool.append("metrics", number=1)
    os.utime(spool.folder / "lines.jsonl", (1000, 1000))
    spool.close_for("KILLED")
    assert spool.left()[1][0] == {"kind": "end", "status": "KILLED", "at": 1_000_000}


def test_a_run_is_found_by_each_of_its_names():
    first, second = begin(), begin("abcdefghij", "other")
    first.call("9876543210")
    first.release()
    names = ["toy-01234567", "toy-01234567.spool", "runs/toy", "9876543210"]
    for name in names:
        ((shown, found),) = spools.find([name])
        assert shown == found.name == "toy-01234567"
        found.release()
    assert dict(spools.find([]))["other-abcdefgh"] is None, "under way"
    with pytest.raises(
        UsageError, match=r"run 'x' in runs/; left to upload: other-abcdefgh, toy-01234567"
    ):
        list(spools.find(["x"]))
    second.release()


def test_a_name_that_ends_with_letters_of_the_id_is_that_of_the_folder():
    spool = begin("0123456789", "toy-01234567")
    assert spool.folder == Path("runs/toy-01234567.spool")
    spool.release()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("run.json", '{"format": 0}', "another version of forecaster"),
        ("run.json", "", r"run\.json cannot be read"),
        ("state.json", "", r"state\.json cannot be read"),
    ],
)
def test_one_that_cannot_be_read_is_told_and_stops_no_other(name, text, told):
    for id in ("0123456789", "abcdefghij"):
        begin(id).release()
    Path("runs/toy-01234567.spool", name).write_text(text)
    for names in ([], ["toy-01234567", "toy-abcdefgh"]):
        found = dict(spools.find(names))
        assert re.search(told, str(found["toy-01234567"]))
        found["toy-abcdefgh"].release()
    spools.take_up("abcdefghij").release()
    assert spools.waiting() == 2


def test_a_process_that_looks_at_it_meanwhile_stops_no_beginning(monkeypatch):
    write, looking = spools._write, []

    def seen(file, document):
        write(file, document)
        looking.append(spools._hold(file.parent))  # as `waiting` and `sync` of another process do

    monkeypatch.setattr(spools, "_write", seen)
    begin().append("metrics", number=1)
    assert looking == [None], "from the moment that it can be found it is held"


def test_nor_a_run_that_goes_on():
    spool = begin()
    spool.append("metrics", number=1)
    spool.release()
    looking = spools._hold(spool.folder)
    threading.Timer(0.2, looking.release).start()
    assert numbers(spools.take_up("0123456789")) == [1]


def test_one_that_another_process_holds_is_refused_and_stays_as_it_is():
    spool = begin()
    before = (spool.folder / "run.json").read_text()
    with pytest.raises(StorageError, match="another process is using"):
        begin(uri="another")
    assert (spool.folder / "run.json").read_text() == before


def test_no_folder_for_it():
    Path("runs").write_text("a file")
    with pytest.raises(StorageError, match=r"cannot create .*runs"):
        begin()


def test_a_process_is_gone_when_it_is():
    assert not spools.is_gone(spools.process())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        where, _, _ = spools.process().split()
        words = f"{where} {child.pid} {psutil.Process(child.pid).create_time():.2f}"
        assert not spools.is_gone(words)
        child.kill()
    assert spools.is_gone(words)
    assert spools.is_gone(f"{where} {os.getpid()} 7.00"), "the number was given again"
    assert not spools.is_gone(words.replace(where, "elsewhere")), "who knows"
    assert not spools.is_gone("x")


def test_it_is_told_in_the_background(told):
    tracker, sender = told
    tracker.hangs = True
    before = time.monotonic()
    for number in range(100):
        tracker.spool.append("metrics", number=number)
        sender.wake()
    assert time.monotonic() - before < 1
    assert tracker.numbers == []
    tracker.hangs = False
    assert sender.settle(*PATIENT)
    assert tracker.numbers == [*range(100)]


def test_it_is_tried_again(told):
    tracker, sender = told
    tracker.fails = True
    tracker.spool.append("metrics", number=1)
    assert not sender.settle(None, None, 3)
    assert str(sender.error) == "away"
    tracker.fails = False
    assert sender.settle(*PATIENT)
    assert (tracker.numbers, sender.error) == ([1], None)


def test_what_failed_last_is_tried_once_more(told, monkeypatch):
    tracker, sender = told
    monkeypatch.setattr(spools, "RETRIES", (60.0, 60.0))
    tracker.fails = True
    tracker.spool.append("metrics", number=1)
    assert not sender.settle(None, None, 1)
    before = time.monotonic()
    assert not sender.settle(None, None, 99)
    tracker.fails = False
    assert sender.settle(*PATIENT), "at once, for somebody waits"
    assert time.monotonic() - before < 5


@pytest.mark.parametrize("limits", [(0.2, None, 99), (None, 0.2, 99)])
def test_a_tracker_that_hangs_is_given_up(told, limits):
    tracker, sender = told
    assert sender.settle(*PATIENT)
    tracker.hangs = True
    tracker.spool.append("metrics", number=1)
    before = time.monotonic()
    assert not sender.settle(*limits)
    assert 0.2 <= time.monotonic() - before < 2


def test_a_signal_ends_a_wait_that_it_falls_into_and_no_later_one(told):
    tracker, sender = told
    assert sender.settle(*PATIENT)
    tracker.hangs = True
    tracker.spool.append("metrics", number=1)
    with signals.heeding(), signals.orderly():
        threading.Timer(0.5, signal.raise_signal, [signal.SIGTERM]).start()
        before = time.monotonic()
        assert not sender.settle(None, 60, 99, signals.waiting)
        assert 0.4 <= time.monotonic() - before < 5
        before = time.monotonic()
        assert not sender.settle(None, 1, 99, signals.waiting)
        assert time.monotonic() - before >= 1, "what has to end in order may wait its time"


class TestAbsent:
    """A tracker that is not there yet, like one that starts together with the run."""

    @pytest.fixture
    def told(self):
        told = Told(begin())
        told.absent = True

        def tell(advance):
            if told.absent:
                raise ConnectionRefusedError
            return told(advance)

        sender = Sender(told.spool, tell, lambda error: isinstance(error, ConnectionRefusedError))
        sender.start()
        told.spool.append("metrics", number=1)
        assert not sender.settle(5, 5, 1), "without patience it is a failure like any other"
        yield told, sender
        sender.close()

    def test_it_is_waited_for(self, told):
        tracker, sender = told
        threading.Timer(2.5, lambda: setattr(tracker, "absent", False)).start()
        assert sender.settle(1, 1, 1, patience=60), "the other limits begin when it is there"
        assert tracker.numbers == [1]

    def test_but_not_for_ever(self, told):
        _, sender = told
        before = time.monotonic()
        assert not sender.settle(60, 60, 99, patience=0.5)
        assert 0.5 <= time.monotonic() - before < 10

    def test_one_that_comes_and_fails_is_not(self, told):
        tracker, sender = told
        tracker.absent, tracker.fails = False, True
        before = time.monotonic()
        assert not sender.settle(60, 60, 1, patience=60)
        assert time.monotonic() - before < 30

    def test_a_signal_ends_the_wait(self, told):
        _, sender = told
        with signals.heeding(), signals.orderly():
            threading.Timer(1.5, signal.raise_signal, [signal.SIGTERM]).start()
            before = time.monotonic()
            assert not sender.settle(60, 60, 99, signals.waiting, patience=60)
            assert time.monotonic() - before < 30


def test_a_tracker_that_gets_on_is_waited_for():
    spool, parts = begin(), iter(range(8))
    spool.append("file", number=1)

    def tell(advance):
        for _ in parts:
            time.sleep(0.1)
            advance()
        done = spool.whole
        spool.note(told=spool.left()[0][1] if not done else spool.state["told"])
        return not done

    sender = Sender(spool, tell)
    sender.start()
    assert sender.settle(0.5, None, 1), "0.8 s in all, and never 0.5 s without an advance"
    sender.close()


def test_a_thread_that_hangs_holds_no_end():
    """The process ends though the tracker does not answer."""
    script = """
from forecaster import signals, spools
import time
spool = spools.begin({"id": "0123456789", "name": "toy", "again": False})
sender = spools.Sender(spool, lambda advance: time.sleep(600))
sender.start()
spool.append("metrics", number=1)
assert not sender.settle(0.1, None, 1)
sender.close()
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
    assert done.returncode == 0
    assert numbers(spools.take_up("0123456789")) == [1]


def test_lines_may_come_from_several_threads(told):
    tracker, sender = told
    threads = [
        threading.Thread(
            target=lambda base=base: [
                tracker.spool.append("metrics", number=base + i) for i in range(50)
            ]
        )
        for base in (0, 50, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sender.settle(*PATIENT)
    assert sorted(tracker.numbers) == [*range(150)]
