"""What a process that does not import mlflow learns of the registry."""

import json
import os
import subprocess
import sys
import time

import pytest

from forecaster.base.errors import StorageError, UnavailableError
from forecaster.tracking import watch
from forecaster.tracking.__main__ import main
from forecaster.tracking.watch import look
from tests.tracking.toy import CHAMPION, NAME, command, contents


def test_command(logged, home, tmp_path, capsys):
    assert main(["download", NAME, str(tmp_path / "bundle")]) == 0
    assert contents(tmp_path / "bundle") == contents(home / "some bundle")
    output = capsys.readouterr()
    assert json.loads(output.out).items() >= CHAMPION.items()
    assert output.err == ""


@pytest.mark.parametrize("arguments", [[], ["download", "x"], ["watch", "x"], ["upload"]])
def test_command_tells_its_usage(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: python -m forecaster.tracking download")


def test_it_watches_until_its_input_ends(logged, home, uri, tmp_path):
    names = [NAME, "forecaster-nobody"]
    file = tmp_path / "found.json"
    with subprocess.Popen(
        [sys.executable, "-m", "forecaster.tracking", "watch", str(tmp_path), "0.1", *names],
        env=os.environ | {"MLFLOW_TRACKING_URI": uri},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        written = set()
        while len(written) < 2:
            assert child.poll() is None
            time.sleep(0.05)
            written |= {file.stat().st_ino} if file.exists() else set()
        nice = os.getpriority(os.PRIO_PROCESS, child.pid)
        found = json.loads(file.read_bytes())
        assert contents(tmp_path / found[NAME]["folder"]) == contents(home / "some bundle")
        child.stdin.close()
        assert (child.wait(60), child.stdout.read()) == (0, "")
    assert not tmp_path.exists()
    assert found[NAME]["state"].items() >= CHAMPION.items()
    assert "no model is registered as 'forecaster-nobody'" in found["forecaster-nobody"]["error"]
    assert found["forecaster-nobody"]["status"] == 2
    assert nice == os.getpriority(os.PRIO_PROCESS, 0) + watch.NICE


class TestLook:
    """What names resolve to, kept in a folder."""

    @pytest.fixture
    def store(self, monkeypatch):
        """The version of the model, or an error of the store."""
        store = {"version": "1"}

        def answer(*asked):
            if isinstance(store["version"], Exception):
                raise store["version"]
            return {"version": store["version"]}

        def fetched(name, folder):
            folder.mkdir()
            return answer()

        monkeypatch.setattr(watch, "resolve", answer)
        monkeypatch.setattr(watch, "download", fetched)
        return store

    def test_what_was_found_stays_while_the_store_is_away(self, store, tmp_path):
        first = look(["a"], tmp_path, {})
        store["version"] = UnavailableError("nobody answers")
        second = look(["a"], tmp_path, first)
        assert second == {"a": {**first["a"], "error": "nobody answers", "status": 69}}
        store["version"] = "1"
        assert look(["a"], tmp_path, second) == first

    def test_a_newer_bundle_gets_a_folder_and_the_old_one_goes_later(
        self, store, tmp_path, monkeypatch
    ):
        first = look(["a"], tmp_path, {})
        os.utime(tmp_path / first["a"]["folder"], (0, 0))
        assert look(["a"], tmp_path, first) == first
        store["version"] = "2"
        second = look(["a"], tmp_path, first)
        assert second["a"]["state"] == {"version": "2"}
        assert len([*tmp_path.iterdir()]) == 2, "the old one was in use until now"
        monkeypatch.setattr(watch, "OLD", -1.0)
        look(["a"], tmp_path, second)
        assert [each.name for each in tmp_path.iterdir()] == [second["a"]["folder"]]

    def test_a_download_that_fails_is_tried_again(self, store, tmp_path, monkeypatch):
        with monkeypatch.context() as broken:
            full = StorageError("no space")
            broken.setattr(watch, "download", lambda *_: (_ for _ in ()).throw(full))
            found = look(["a"], tmp_path, {})
        assert found == {"a": {"error": "no space", "status": 74}}
        assert "folder" in look(["a"], tmp_path, found)["a"]


def test_command_fails_on_one_line(logged, tmp_path, capsys):
    download = ["download", "forecaster-toy", str(tmp_path / "x")]
    assert main(download) == 2
    said = "no model is registered as 'forecaster-toy'"
    assert capsys.readouterr().err.startswith(said)
    store = "http://127.0.0.1:9"
    failed = command("-m", "forecaster.tracking", *download, MLFLOW_TRACKING_URI=store)
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (69, "", 1)
    assert failed.stderr.startswith(f"MLflow cannot use {store}: ")
