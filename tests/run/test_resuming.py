import json
import os
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


def take_up(which="small-5", *sets, digest="sha256:1"):
    with resuming.take_up(which, config(*sets), digest) as found:
        assert found.lock.is_locked
    return found


def test_a_run_is_found_by_its_name_or_folder():
    begin(cutoffs=3)
    for which in ("small-5", "small-5.unfinished", "runs/small-5", "runs/small-5.unfinished/"):
        found = take_up(which)
        assert (found.name, found.bundle) == ("small-5", Path("runs/small-5"))
        assert (found.facts["run_id"], found.facts["cutoffs"]) == ("r", 3)


def test_what_does_not_exist_is_told_with_what_does():
    with pytest.raises(UsageError, match=r"--resume x: .*: none"):
        take_up("x")
    begin("a")
    begin("b")
    with pytest.raises(UsageError, match=r"unfinished: a, b"):
        resuming.begun_with("x")
    Path("runs/c").mkdir()
    Path("runs/c/MANIFEST.sha256").touch()
    for which in ("c", "runs/c"):
        with pytest.raises(UsageError, match=r"runs/c is finished; .* predict --model"):
            take_up(which)


def test_another_configuration_or_other_data_are_told_value_by_value():
    begin("small-5", "sha256:1", "train.lr=0.1", "train.lr_of={linear: 0.5}")
    with pytest.raises(UsageError) as caught:
        take_up("small-5", "seed=4", "train.lr_of={}")
    for words in ("runs/small-5.unfinished", "train.lr: 0.1 there, 0.001 here",
                  "seed: 0 there, 4 here", "train.lr_of.linear: 0.5 there, nothing here",
                  "--resume small-5"):  # fmt: skip
        assert words in str(caught.value)
    begin("b")
    for nothing in ("track.experiment=x", "track.uri=http://a",
                    "track.register_model=false", "data.path=elsewhere.csv"):  # fmt: skip
        take_up("b", nothing)
        assert resuming.newest(config(nothing, "train.lr=0.001"), "sha256:1").name == "b", nothing
    with pytest.raises(UsageError, match=r"train\.lr_of\.encoder: nothing there, 0.1 here"):
        take_up("b", "train.lr_of.encoder=0.1")
    with pytest.raises(DataError, match="sha256:1, but these have sha256:2"):
        take_up("b", digest="sha256:2")


def test_a_run_under_way_is_left_alone():
    with resuming.begin("small-5", config(), "sha256:1", run_id="r"):
        with pytest.raises(UsageError, match="in progress"):
            take_up()
        assert resuming.newest(config(), "sha256:1") is None
    take_up()


def test_a_damaged_note_is_named():
    begin()
    for text in ("", "{", "[]", '{"format": 9}'):
        Path("runs/small-5.unfinished/run.json").write_text(text)
        with pytest.raises((StorageError, UsageError), match=r"run\.json"):
            take_up()
        assert resuming.newest(config(), "sha256:1") is None


def test_the_newest_is_the_last_of_the_same_configuration_and_data():
    kinds = {"one": ("sha256:1",), "two": ("sha256:1",)}
    kinds |= {"seed": ("sha256:1", "seed=1"), "data": ("sha256:2",)}
    for name, kind in kinds.items():
        begin(name, *kind)
    begun = resuming.take_up("one", config(), "sha256:1")
    begun.note(begun=begun.facts["begun"] + 1000)
    begun.lock.release()
    for name in ("one", "seed", "data"):
        digest, *sets = kinds[name]
        assert resuming.newest(config(*sets), digest).name == name
    assert resuming.newest(config("seed=2"), "sha256:1") is None


def test_what_is_begun_is_there_until_it_is_removed():
    with resuming.begin("x", config("seed=7", "data.name=ETTh2"), "sha256:1", run_id="r") as begun:
        begun.note(run_id="s")
    facts = json.loads(Path("runs/x.unfinished/run.json").read_text())
    assert (facts["run_id"], facts["data_digest"]) == ("s", "sha256:1")
    loaded = resuming.begun_with("x")
    assert loaded.config == config("seed=7", "data.name=ETTh2")
    assert loaded.named("data.name"), "so that no other data take their place"
    begun.remove()
    assert list(Path("runs").iterdir()) == []


def test_a_file_in_the_way():
    Path("runs").touch()
    for call in (resuming.make_folder, begin):
        with pytest.raises(StorageError, match=f"{os.getcwd()}/runs"):
            call()
