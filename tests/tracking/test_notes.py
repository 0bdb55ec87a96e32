"""What MLflow is to have of a run, in a folder."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from forecaster.base import atomic
from forecaster.base.errors import StorageError, UsageError
from forecaster.tracking import notes
from forecaster.tracking.notes import Points
from tests.tracking.toy import noted


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def begin(key="0123456789", name="toy", **about):
    return noted(name, key, **about)


def add(own, number):
    own.add(Points(at=7000, step=number, values={"loss": 1.0}))


def numbers(own, start=0):
    return [points.step for points in own.points(start)[0]]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0.1"])
def test_what_is_no_number_is_kept(value):
    own = begin()
    points = Points(at=1, step=1, values={"loss": float(value)})
    own.add(points)
    own.note(figures=points)
    own.release()
    again = notes.take(own.folder)
    ((points,), end) = again.points(0)
    assert str(points.values["loss"]) == str(again.about.figures.values["loss"]) == value
    add(again, 2)
    assert numbers(again, end) == [2]


def test_another_process_finds_what_is_left_and_makes_the_end_again():
    own = begin()
    add(own, 1)
    figures = Points(at=7000, step=0, values={"test_mse": 1.0})
    own.note(params={"a": "1"}, status="KILLED", ended=9, has_model=True, figures=figures)
    own.note(version=notes.NewVersion(name="x", tags={}))
    own.write("texts/a.txt", b"a")
    made = {"status": "", "ended": None, "has_model": False, "figures": None, "version": None}
    expected = own.about.model_copy(update=made)
    own.release()
    again = notes.take_up("0123456789")
    assert (again.about, numbers(again)) == (expected, [1])
    assert (again.folder / notes.FILES / "texts" / "a.txt").read_bytes() == b"a"
    assert notes.take_up("0123456789") is notes.take(again.folder) is None, "it is held"
    assert notes.take_up("9") is None


def test_runs_that_wait_are_those_of_processes_that_are_gone():
    begin()
    assert notes.waiting() == 0
    begin("abcdefghij", process=f"{notes.machine()} {os.getpid()} 7.00").release()
    assert notes.waiting() == 1


def test_what_its_process_wrote_last_is_taken(monkeypatch):
    own, lock = begin(), notes._lock

    def late(folder):
        own.note(status="FINISHED", ended=9)  # between the looks of another process
        own.release()
        return lock(folder)

    monkeypatch.setattr(notes, "_lock", late)
    assert notes.take(own.folder).about.status == "FINISHED"


def test_a_process_that_dies_while_it_removes_a_folder_leaves_no_run(monkeypatch):
    own = begin()
    with monkeypatch.context() as dies:
        dies.setattr(notes.shutil, "rmtree", lambda *_, **__: None)
        own.remove()
    own.release()
    assert notes.find([]) == []
    assert notes.take(own.folder) is None
    assert list(Path("runs").iterdir()) == []


def test_neither_a_torn_line_nor_a_full_disk_leaves_a_part_of_a_line(monkeypatch):
    own = begin()
    add(own, 1)
    own.release()
    with (own.folder / "points.jsonl").open("ab") as file:
        file.write(b'{"at": 1, "st')
    again, write = notes.take_up("0123456789"), os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[:5]))
        with pytest.raises(StorageError, match=r"points\.jsonl cannot be written: no space"):
            add(again, 2)
    add(again, 3)
    assert numbers(again) == [1, 3]


def test_the_end_of_a_process_that_died_is_that_of_what_it_wrote_last():
    own = begin()
    add(own, 1)
    for name, at in (("points.jsonl", 1000), ("run.json", 900)):
        os.utime(own.folder / name, (at, at))
    own.close()
    assert (own.about.status, own.about.ended) == ("KILLED", 1_000_000)
    own.note(status="FINISHED")
    own.close()
    assert own.about.status == "FINISHED", "it had ended"


def test_a_run_is_found_by_its_name():
    first, second = begin(begun=1), begin("abcdefghij", "other-abcdefgh", begun=2)
    assert notes.find([]) == [first.folder, second.folder], "a parent before its children"
    for name in ["toy-01234567", "toy-01234567.spool", "runs/toy-01234567"]:
        assert notes.find([name]) == [first.folder]
    with pytest.raises(UsageError, match=r"left to upload: other-abcdefgh, toy-01234567"):
        notes.find(["x"])
    Path("runs/x").mkdir()
    assert notes.find(["x"]) == [], "MLflow has all of it"


def test_one_that_cannot_be_read_is_told_and_stops_no_other():
    bad, good = begin(), begin("abcdefghij")
    for own in (bad, good):
        own.release()
    for text in ("", "[]", '{"format": 3}', '{"key": "0"}', "\ud800"):
        (bad.folder / "run.json").write_text(text, errors="surrogatepass")
        assert notes.find([]) == [bad.folder, good.folder]
        with pytest.raises(StorageError, match=r"run\.json cannot be read"):
            notes.take(bad.folder)
    notes.take_up("abcdefghij").release()


def test_a_process_that_looks_at_it_meanwhile_stops_no_beginning(monkeypatch):
    write, looking = atomic.write, []

    def seen(file, data):
        write(file, data)
        looking.append((notes.waiting(), notes.take(file.parent)))  # as another process does

    monkeypatch.setattr(atomic, "write", seen)
    add(begin(), 1)
    assert looking == [(0, None)], "from the moment that it can be found it is held"


def test_one_that_another_process_holds_is_refused_and_stays_as_it_is():
    own = begin()
    before = (own.folder / "run.json").read_text()
    with pytest.raises(StorageError, match=r"cannot create .* could not be acquired"):
        begin(uri="another")
    assert (own.folder / "run.json").read_text() == before


def test_points_may_come_from_several_threads():
    own = begin()

    def several(base):
        for number in range(base, base + 50):
            add(own, number)
            own.note(params={**own.about.params, str(base): str(number)})

    with ThreadPoolExecutor() as threads:
        list(threads.map(several, (0, 50, 100)))
    assert sorted(numbers(own)) == [*range(150)]


def test_a_process_is_gone_when_it_is():
    assert not notes.is_gone(notes.process())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        where, _, _ = notes.process().split()
        words = f"{where} {child.pid} {psutil.Process(child.pid).create_time():.2f}"
        assert not notes.is_gone(words)
        child.kill()
    assert notes.is_gone(words)
    assert notes.is_gone(f"{where} {os.getpid()} 7.00"), "the number was given again"
    assert not notes.is_gone(words.replace(where, "elsewhere")), "who knows"
    assert not notes.is_gone("x")
