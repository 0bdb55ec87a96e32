"""Which run counts as the same; test_experiment.py tests what a user sees of it."""

import json
import os
from pathlib import Path

import pytest

from forecaster.base import installation
from forecaster.run import reuse
from tests.bundles import unsaved


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installation, "commit", lambda: "c")


def save(name, **about):
    bundle = unsaved()
    bundle.about.update({"data_digest": "sha256:1", "commit": "c", **about})
    bundle.save(Path("runs", name))
    return bundle.config


def newest(config, digest="sha256:1", cutoffs=None):
    found = reuse.newest(config, digest, cutoffs)
    return None if found is None else found[0].name


def test_it_is_the_last_of_its_kind():
    assert reuse.newest(unsaved().config, "sha256:1") is None, "there is no folder"
    for age, name in ((30, "one"), (10, "two"), (20, "three")):
        config = save(name)
        os.utime(f"runs/{name}/MANIFEST.sha256", (1e9 - age, 1e9 - age))
    Path("runs/no-bundle").mkdir()
    Path("runs/a-file").touch()
    assert newest(config) == "two"


def test_other_data_configurations_cutoffs_code_and_versions_are_others(monkeypatch):
    config = save("one")
    assert newest(config, "sha256:2") is None
    assert newest(config.model_copy(update={"seed": 99})) is None
    assert newest(config, cutoffs=3) is None
    assert newest(save("two", commit="other", data_digest="sha256:3"), "sha256:3") is None
    assert newest(config) == "one"
    elsewhere = config.track.model_copy(update={"experiment": "x"})
    assert newest(config.model_copy(update={"track": elsewhere})) == "one"
    with monkeypatch.context() as later:
        later.setattr(reuse, "versions", lambda: {"torch": "9"})
        assert newest(config) is None
    save("dirty", commit="c-dirty")
    monkeypatch.setattr(installation, "commit", lambda: "c-dirty")
    assert newest(config) is None, "changes that are not committed may be others by now"


def test_what_is_damaged_is_passed_over():
    config = save("one")
    for text in ("", "{}", "[]", json.dumps({"data_digest": "sha256:1"})):
        Path("runs/one/about.json").write_text(text)
        assert newest(config) is None
    save("two")
    Path("runs/two/model.safetensors").write_bytes(b"x")
    assert newest(config) is None
