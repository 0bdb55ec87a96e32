import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forecaster.base.errors import DataError, StorageError, UsageError
from forecaster.config.run_config import load
from forecaster.run import resuming


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(*sets):
    return load(None, sets, {"attn": "full"}, {}).config


def begin(name="small-5", digest="sha256:1", *sets, **facts):
    begun = resuming.begin(name, config(*sets), digest, run_id="r", **facts)
    begun.lock.release()  # as if its process had ended
    return begun


class TestTakeUp:
    @pytest.mark.parametrize(
        "which", ["small-5", "small-5.unfinished", "runs/small-5", "runs/small-5.unfinished/"]
    )
    def test_a_run_is_found_by_its_name_or_folder(self, which):
        begin(cutoffs=3)
        found = resuming.take_up(which, config(), "sha256:1")
        assert (found.name, found.bundle) == ("small-5", Path("runs/small-5"))
        assert (found.facts["run_id"], found.facts["cutoffs"]) == ("r", 3)

    def test_what_does_not_exist_is_told_with_what_does(self):
        with pytest.raises(UsageError, match=r"--resume x: there is no such run .*: none"):
            resuming.take_up("x", config(), "sha256:1")
        begin("a")
        begin("b")
        with pytest.raises(UsageError, match=r"unfinished: a, b"):
            resuming.begun_with("x")

    def test_a_finished_run_has_nothing_to_resume(self):
        Path("runs/small-5").mkdir(parents=True)
        Path("runs/small-5/MANIFEST.sha256").touch()
        for which in ("small-5", "runs/small-5"):
            with pytest.raises(UsageError, match=r"runs/small-5 is finished; .* predict --model"):
                resuming.take_up(which, config(), "sha256:1")

    def test_another_configuration_is_told_value_by_value(self):
        begin("small-5", "sha256:1", "train.lr=0.1", "train.lr_of={linear: 0.5}")
        with pytest.raises(UsageError) as caught:
            resuming.take_up("small-5", config("seed=4", "train.lr_of={}"), "sha256:1")
        said = str(caught.value)
        assert "runs/small-5.unfinished was begun with another configuration: " in said
        assert "train.lr was 0.1 and is 0.001; " in said
        assert "train.lr_of.linear was 0.5 and is absent" in said
        assert "seed was 0 and is 4" in said
        assert "Use --resume small-5 without other options" in said

    def test_how_often_checkpoints_are_made_is_no_difference(self):
        begin()
        resuming.take_up("small-5", config("train.checkpoint_minutes=7"), "sha256:1")

    def test_other_data_are_told_with_both_digests(self):
        begin()
        with pytest.raises(DataError, match="of digest sha256:1, but these have sha256:2"):
            resuming.take_up("small-5", config(), "sha256:2")

    def test_a_run_under_way_is_left_alone(self):
        begin()
        program = """
            import sys
            from filelock import FileLock
            lock = FileLock("runs/small-5.unfinished/lock")
            lock.acquire()
            print("held", flush=True)
            sys.stdin.read()
        """
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", "\n".join(map(str.strip, program.splitlines()))]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(UsageError, match="is in progress in another process"):
                resuming.take_up("small-5", config(), "sha256:1")
            assert resuming.newest(config(), "sha256:1") is None
            other.kill()
        with resuming.take_up("small-5", config(), "sha256:1") as found:
            assert found.lock.is_locked

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9}'])
    def test_a_damaged_note_is_named(self, text):
        begin()
        Path("runs/small-5.unfinished/run.json").write_text(text)
        with pytest.raises((StorageError, UsageError), match=r"run\.json"):
            resuming.take_up("small-5", config(), "sha256:1")
        assert resuming.newest(config(), "sha256:1") is None


class TestNewest:
    def test_it_is_the_last_of_the_same_configuration_and_data(self):
        for name, digest, sets in (
            ("one", "sha256:1", ()),
            ("two", "sha256:1", ()),
            ("other-seed", "sha256:1", ("seed=1",)),
            ("other-data", "sha256:2", ()),
        ):
            begin(name, digest, *sets)
        begun = resuming.take_up("one", config(), "sha256:1")
        begun.note(begun=begun.facts["begun"] + 1000)
        begun.lock.release()
        assert resuming.newest(config(), "sha256:1").name == "one"
        assert resuming.newest(config("seed=1"), "sha256:1").name == "other-seed"
        assert resuming.newest(config("seed=2"), "sha256:1") is None


class TestLife:
    def test_what_is_begun_is_there_until_it_is_removed(self):
        with resuming.begin("x", config(), "sha256:1", run_id="r") as begun:
            assert begun.lock.is_locked
            begun.note(run_id="s")
        assert not begun.lock.is_locked
        facts = json.loads(Path("runs/x.unfinished/run.json").read_text())
        assert (facts["run_id"], facts["data_digest"]) == ("s", "sha256:1")
        begun.remove()
        assert list(Path("runs").iterdir()) == []

    def test_the_configuration_comes_back(self):
        begin("x", "sha256:1", "seed=7", "data.name=ETTh2")
        loaded = resuming.begun_with("x")
        assert loaded.config == config("seed=7", "data.name=ETTh2")
        assert loaded.named("data.name"), "so that no other data take their place"

    def test_a_file_in_the_way(self):
        Path("runs").touch()
        for call in (resuming.make_folder, begin):
            with pytest.raises(StorageError, match=f"cannot create {os.getcwd()}/runs"):
                call()
