"""What MLflow is to have of a run, in memory and, where it has to wait, in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from forecaster.base.errors import StorageError, UsageError
from forecaster.tracking import notes
from forecaster.tracking.notes import Points
from tests.tracking.toy import noted


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def left(key="0123456789", name="toy", **about):
    """The folder of a run that has ended without MLflow."""
    own = noted(name, key, **about)
    own.save()
    own.release()
    return own.folder


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0.1"])
def test_what_is_no_number_is_kept(value):
    own = noted("toy", "0123456789")
    points = Points(at=1, step=1, values={"loss": float(value)})
    own.points.append(points)
    own.note(figures=points)
    own.save()
    own.release()
    again = notes.take(own.folder)
    (kept,) = again.points
    assert str(kept.values["loss"]) == str(again.about.figures.values["loss"]) == value


def test_another_process_finds_what_is_left_once_it_is_released():
    own = noted("toy", "0123456789")
    own.note(params={"a": "1"}, status="KILLED", ended=9, has_model=True)
    own.note(version=notes.NewVersion(name="x", tags={}))
    own.write("texts/a.txt", b"a")
    assert notes.find([]) == [], "its process may tell all of it"
    own.save()
    assert notes.take(own.folder) is None, "it is held"
    own.release()
    assert notes.waiting() == 1
    again = notes.take(own.folder)
    assert again.about == own.about
    assert (again.folder / notes.FILES / "texts" / "a.txt").read_bytes() == b"a"
    again.remove()
    again.release()
    assert list(Path("runs").iterdir()) == []
    assert notes.take(own.folder) is None, "another process has just removed it"
    assert list(Path("runs").iterdir()) == []


def test_a_run_that_goes_on_leaves_nothing_of_before():
    folder, other = left(), left("abcdefghij")
    notes.forget("0123456789")
    assert not folder.exists()
    assert notes.find([]) == [other]


def test_the_folder_of_a_run_stays_with_what_else_it_has():
    folder = left()
    (folder.parent / "MANIFEST.sha256").touch()
    notes.take(folder).remove()
    assert [each.name for each in folder.parent.iterdir()] == ["MANIFEST.sha256"]


def test_a_process_that_dies_while_it_removes_a_folder_leaves_no_run(monkeypatch):
    own = notes.take(left())
    with monkeypatch.context() as dies:
        dies.setattr(notes.shutil, "rmtree", lambda *_, **__: None)
        own.remove()
    own.release()
    assert notes.find([]) == []


def test_a_run_is_found_by_its_name():
    first, second = left(begun=1), left("abcdefghij", "other", begun=2)
    assert notes.find([]) == [first, second], "a parent before its children"
    for name in ["toy-01234567", "runs/toy-01234567"]:
        assert notes.find([name]) == [first]
    with pytest.raises(UsageError, match=r"left to upload: other-abcdefgh, toy-01234567"):
        notes.find(["x"])
    Path("runs/x").mkdir()
    assert notes.find(["x"]) == [], "MLflow has all of it"


def test_one_that_cannot_be_read_is_told_and_stops_no_other():
    bad, good = left(), left("abcdefghij")
    for text in ("", "[]", '{"format": 3}', '{"key": "0"}', "\ud800"):
        (bad / "run.json").write_text(text, errors="surrogatepass")
        assert notes.find([]) == [bad, good]
        with pytest.raises(StorageError, match=r"run\.json cannot be read"):
            notes.take(bad)
    notes.forget("abcdefghij")
    assert notes.find([]) == [bad]


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk():
    Path("runs").touch()
    with pytest.raises(StorageError, match=r"cannot create .*toy-01234567"):
        noted("toy", "0123456789")


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
