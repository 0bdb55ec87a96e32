import json
import os
from pathlib import Path

import pytest

from forecaster.base import installation
from forecaster.base.errors import DataError, StorageError, UsageError
from forecaster.config.run_config import load
from forecaster.record import folder as runs
from forecaster.run import resuming
from tests.bundles import unsaved


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(*sets):
    return load(None, sets, {"attn": "full"}, {}).config


def begin(name="small-5", digest="sha256:1", *sets, **facts):
    facts = {"resumable": True, **facts}
    begun = runs.begin(name, config=config(*sets).to_dict(), data_digest=digest, **facts)
    begun.release()  # as if its process had ended
    return begun


def take_up(which="small-5", *sets, digest="sha256:1"):
    with resuming.take_up(which, config(*sets), digest) as found:
        assert runs.take(found.folder) is None
    return found


def newest(*sets, digest="sha256:1"):
    found = resuming.newest(config(*sets), digest)
    if found is not None:
        found.release()
        return found.about.name
    return None


def test_a_run_is_found_by_its_name_or_folder():
    begin(cutoffs=3)
    for which in ("small-5", "runs/small-5", "runs/small-5/"):
        found = take_up(which)
        assert (found.about.name, found.folder) == ("small-5", Path("runs/small-5"))
        assert found.about.cutoffs == 3


def test_what_cannot_go_on_is_not_found():
    begin(resumable=False)
    assert newest() is None
    with pytest.raises(UsageError, match="no such run"):
        take_up()


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
    for words in ("runs/small-5 ", "train.lr: 0.1 there, 0.001 here",
                  "seed: 0 there, 4 here", "train.lr_of.linear: 0.5 there, nothing here",
                  "--resume small-5"):  # fmt: skip
        assert words in str(caught.value)
    begin("b")
    for nothing in ("track.experiment=x", "track.uri=http://a",
                    "track.register_model=false", "data.path=elsewhere.csv"):  # fmt: skip
        take_up("b", nothing)
        assert newest(nothing, "train.lr=0.001") == "b", nothing
    with pytest.raises(UsageError, match=r"train\.lr_of\.encoder: nothing there, 0.1 here"):
        take_up("b", "train.lr_of.encoder=0.1")
    with pytest.raises(DataError, match="sha256:1, but these have sha256:2"):
        take_up("b", digest="sha256:2")


def test_a_run_under_way_is_left_alone():
    begin()
    with runs.take(Path("runs/small-5")):
        with pytest.raises(UsageError, match="in progress"):
            take_up()
        assert newest() is None
    take_up()


def test_a_damaged_note_is_named():
    begin()
    for text in ("", "{", "[]", '{"format": 9}'):
        Path("runs/small-5/run.json").write_text(text)
        with pytest.raises(StorageError, match=r"run\.json"):
            take_up()
        assert newest() is None


def test_the_newest_is_the_last_of_the_same_configuration_and_data():
    kinds = {"one": ("sha256:1",), "two": ("sha256:1",)}
    kinds |= {"seed": ("sha256:1", "seed=1"), "data": ("sha256:2",)}
    for name, kind in kinds.items():
        begin(name, *kind)
    with resuming.take_up("one", config(), "sha256:1") as begun:
        begun.note(begun=begun.about.begun + 1_000_000)
    for name in ("one", "seed", "data"):
        digest, *sets = kinds[name]
        assert newest(*sets, digest=digest) == name
    assert newest("seed=2") is None


def test_a_run_is_begun_with_its_configuration():
    begin("x", "sha256:1", "seed=7", "data.name=ETTh2")
    loaded = resuming.begun_with("x")
    assert loaded.config == config("seed=7", "data.name=ETTh2")
    assert loaded.named("data.name"), "so that no other data take their place"


def test_a_file_in_the_way():
    Path("runs").touch()
    for call in (lambda: runs.make_folder(Path("runs")), begin):
        with pytest.raises(StorageError, match=f"{os.getcwd()}/runs"):
            call()


class TestFinished:
    @pytest.fixture(autouse=True)
    def _code(self, monkeypatch):
        monkeypatch.setattr(installation, "commit", lambda: "c")

    def save(self, name, digest="sha256:1", **about):
        bundle = unsaved()
        bundle.about.update({"commit": "c", **about})
        with runs.begin(name, config=bundle.config.to_dict(), data_digest=digest) as own:
            bundle.save(own.folder)
        return bundle.config

    def find(self, config, digest="sha256:1", cutoffs=None):
        found = resuming.finished(config, digest, cutoffs)
        return None if found is None else found[0].name

    def test_it_is_the_last_of_its_kind(self):
        assert self.find(unsaved().config) is None, "there is no folder"
        for begun, name in ((1, "one"), (3, "two"), (2, "three")):
            config = self.save(name)
            with runs.take(Path("runs", name)) as own:
                own.note(begun=begun)
        Path("runs/no-bundle").mkdir()
        Path("runs/a-file").touch()
        assert self.find(config) == "two"

    def test_other_data_configurations_cutoffs_code_and_versions_are_others(self, monkeypatch):
        config = self.save("one")
        assert self.find(config, "sha256:2") is None
        assert self.find(config.model_copy(update={"seed": 99})) is None
        assert self.find(config, cutoffs=3) is None
        assert self.find(self.save("two", "sha256:3", commit="other"), "sha256:3") is None
        assert self.find(config) == "one"
        elsewhere = config.track.model_copy(update={"experiment": "x"})
        assert self.find(config.model_copy(update={"track": elsewhere})) == "one"
        with monkeypatch.context() as later:
            later.setattr(resuming, "versions", lambda: {"torch": "9"})
            assert self.find(config) is None
        self.save("dirty", commit="c-dirty")
        monkeypatch.setattr(installation, "commit", lambda: "c-dirty")
        assert self.find(config) is None, "changes that are not committed may be others by now"

    def test_what_is_damaged_is_passed_over(self):
        config = self.save("one")
        for text in ("", "{}", "[]", json.dumps({"commit": "c"})):
            Path("runs/one/about.json").write_text(text)
            assert self.find(config) is None
        self.save("two")
        Path("runs/two/model.safetensors").write_bytes(b"x")
        assert self.find(config) is None
