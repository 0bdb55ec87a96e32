"""The folder of a run: what a process notes, and what another finds."""

from pathlib import Path

import pytest

from forecaster.base.errors import StorageError
from forecaster.record import folder as runs
from forecaster.record.folder import begin, known, read, take


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def left(name="toy", **facts):
    """The folder of a run whose process has ended."""
    with begin(name, **facts) as own:
        return own.folder


def test_what_is_noted_is_there_for_the_next_process():
    own = begin("toy", "0123456789", config={"seed": 7}, data_digest="sha256:1")
    folder = own.folder
    assert own.checkpoints.is_dir()
    assert take(folder) is None, "it is held"
    own.note(run_id="s", params={"a": "1"})
    for value in ("nan", "inf", "-inf", "0.1"):
        own.add({"loss": float(value)}, 1)
    with (folder / "epochs.jsonl").open("a") as file:
        file.write('\n[1, 2, {"lo')  # its process died
    own.release()
    with take(folder) as again:
        again.add({"loss": 2.0}, 2)
        assert again.about == own.about == read(folder)
    with take(folder) as again:
        assert [str(each["loss"]) for _, _, each in again.points] == [
            *("nan", "inf", "-inf", "0.1", "2.0"),
        ]  # fmt: skip
    assert (again.about.run_id, again.about.status) == ("s", "RUNNING")


def test_what_is_finished_keeps_no_checkpoint_and_nothing_half_written():
    with begin("toy") as own:
        (own.checkpoints / "fit.safetensors").touch()
        (own.folder / ".new.abc").mkdir()
        (own.folder / "MANIFEST.sha256").touch()
        assert own.finished
        own.finish()
        own.told()
    names = {each.name for each in own.folder.iterdir()}
    assert names == {"MANIFEST.sha256", "run.json", "lock"}
    assert read(own.folder).uploaded


@pytest.mark.parametrize("resumable", [True, False])
def test_a_run_that_left_nothing_is_removed_once_it_is_told(resumable):
    with begin("toy") as own:
        own.note(resumable=resumable)
        own.told()
    assert own.folder.exists() is resumable


def test_a_process_that_dies_while_it_removes_a_folder_leaves_no_run(monkeypatch):
    folder = left()
    own = take(folder)
    with monkeypatch.context() as dies:
        dies.setattr(runs.shutil, "rmtree", lambda *_, **__: None)
        own.remove()
    assert known() == []
    assert take(folder) is None, "another process has just removed it"
    (folder / "unfinished").rmdir()
    assert take(folder) is None
    assert not folder.exists()


def test_the_oldest_comes_first_and_one_that_cannot_be_read_stops_no_other():
    with begin("b") as own:
        own.note(begun=1)
    first, second, bad = own.folder, left("a"), left("c")
    for text in ("", "[]", '{"format": 3}', '{"key": "0"}', "\ud800"):
        (bad / "run.json").write_text(text, errors="surrogatepass")
        assert known() == [bad, first, second]
        with pytest.raises(StorageError, match=r"run\.json cannot be read"):
            take(bad)
    with pytest.raises(StorageError, match=r"run\.json cannot be read"):
        take(bad)  # it is not held


def test_a_file_in_the_way_is_an_error_of_the_disk():
    Path("runs").touch()
    with pytest.raises(StorageError, match=r"cannot create .*toy"):
        begin("toy")
