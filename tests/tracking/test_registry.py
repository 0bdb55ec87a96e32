"""Which version of a name is served, and the way to its files."""

import math
import re
from contextlib import nullcontext

import numpy as np
import pytest

from forecaster.base.errors import UsageError
from forecaster.config.run_config import RunConfig
from forecaster.record.challenge import Decision, tags_of
from forecaster.tracking import registry, store
from forecaster.tracking.notes import NewVersion
from forecaster.tracking.registry import download, promote, register, resolve
from forecaster.tracking.run import start
from tests.service.toy import make_bundle
from tests.tracking.toy import CHAMPION, NAME, TASK, contents


class Made:
    """The outcome of a registration, by its sentence."""

    def __init__(self, name, sentence):
        self.sentence, self.version = sentence, sentence.split()[2]
        self.champion = sentence.startswith(f"{name} version {self.version} is the champion")


@pytest.fixture
def contest(logged, client, uri, monkeypatch):
    """Registers versions under a new name, in a store that may look like a server."""
    experiment = client.get_run(logged[0]).info.experiment_id

    def contest(name, error, task=TASK, shared=False):
        if shared:
            monkeypatch.setattr(store, "locked", lambda uri: nullcontext())
        run = client.create_run(experiment).info.run_id
        own = NewVersion(name, tags_of(errors(error), task))
        return Made(name, register(client, uri, run, logged[1], own))

    return contest


def errors(mean):
    """The errors of six stretches, some of them harder than others for every model."""
    return [mean * factor for factor in (1, 2, 0.5, 1, 3, 0.25)]


def aliases(client, name):
    return {key: str(each) for key, each in client.get_registered_model(name).aliases.items()}


@pytest.mark.parametrize("shared", [False, True])
def test_champion_moves_to_the_better_model_of_one_task(contest, client, shared):
    name, other = f"forecaster-contest-{shared}", {**TASK, "borders": "[1, 2, 4]"}
    contests = [
        (0.5, TASK, "champion", "version 1 is the champion: there was none"),
        (0.6, TASK, "nothing", "but not the champion: MSE on the calibrating half 0.775, version "),
        (math.nan, TASK, "nothing", "its MSE on the calibrating half is nan"),
        (0.3, TASK, "champion", "version 4 is the champion: MSE on the calibrating half 0.3875"),
        (0.1, other, "challenger", "errors do not compare. To serve it all the same: forecaster "
         "promote NAME/5"),
        (0.2, TASK, "champion", "version 6 is the champion"),
    ]  # fmt: skip
    expected = {}
    for number, (error, task, becomes, reason) in enumerate(contests, 1):
        made = contest(name, error, task, shared)
        assert made.version == str(number)
        assert made.champion is (becomes == "champion")
        assert reason.replace("NAME", name) in made.sentence
        if becomes != "nothing":
            expected[becomes] = str(number)
        assert aliases(client, name) == expected
        tags = client.get_model_version(name, str(number)).tags
        assert tags["decision"] == made.sentence
        assert tags["calibrating_mse"] == f"{np.mean(errors(error)):.6g}"
        assert task.items() <= tags.items()


class TestRenew:
    @pytest.mark.parametrize(
        ("wins", "beats", "before", "becomes"),
        [
            (True, True, "1", "champion"),
            (True, True, "7", "challenger"),  # another one won meanwhile
            (False, True, "1", "challenger"),
            (False, False, "1", None),
        ],
    )
    def test_what_becomes_of_a_version(self, wins, beats, before, becomes, contest, client, logged):
        name = f"forecaster-renew-{wins}-{beats}-{before}"
        contest(name, 0.5)
        own = NewVersion(name, {**tags_of(errors(0.9), TASK), "contest": "{}"})
        decision = Decision(wins, beats, "as it was decided")
        sentence, served = registry.renew(name, before, logged[0], own, decision)
        assert served is (becomes == "champion")
        assert aliases(client, name) == {"champion": "1"} | ({becomes: "2"} if becomes else {})
        tags = client.get_model_version(name, "2").tags
        assert (tags["decision"], tags["contest"]) == (sentence, "{}")
        assert "as it was decided" in sentence

    def test_without_a_run(self, logged):
        own = NewVersion(NAME, {})
        with pytest.raises(UsageError, match="there is no run nope"):
            registry.renew(NAME, "1", "nope", own, Decision(True, True, ""))


class TestPromote:
    @pytest.mark.parametrize("named", ["{name}/2", "{name}@challenger", "models:/{name}/2"])
    def test_by_hand(self, named, contest, client, logged):
        name = f"forecaster-promote-{len(named)}"
        contest(name, 0.5)
        contest(name, 0.1, {})
        assert aliases(client, name) == {"champion": "1", "challenger": "2"}
        sentence = promote(named.format(name=name))
        assert sentence == (
            f"{name} version 2 is the champion; version 1 was the champion before. To go "
            f"back: forecaster promote {name}/1"
        )
        assert aliases(client, name) == {"champion": "2"}
        promoted = client.get_model_version(name, "2").tags["promoted"]
        assert promoted.startswith("by hand at 2")
        assert promote(f"{name}/2") == f"{name} version 2 is already the champion"
        assert promote(f"{name}/1").endswith(f"promote {name}/2")
        assert not contest(name, 0.6).champion, "what was promoted by hand is the one to beat"
        assert contest(name, 0.2).champion

    def test_by_the_run(self, contest, logged, client, uri):
        contest("forecaster-by-run", 0.5)
        with start(RunConfig(), "x", {}) as run:
            pass
        own = NewVersion("forecaster-by-run", tags_of(errors(0.6), TASK))
        first, again = (register(client, uri, run.id, logged[1], own) for _ in range(2))
        assert first == again
        assert promote(run.id).startswith("forecaster-by-run version 2 is the champion;")
        client.delete_registered_model_alias("forecaster-by-run", "champion")
        assert promote("forecaster-by-run/1") == (
            "forecaster-by-run version 1 is the champion; there was none before"
        )

    def test_what_names_no_version(self, logged):
        for named, words in (
            (NAME, f"'{NAME}' names no version: use {NAME}/VERSION"),
            (f"{NAME}/99", f"'{NAME}' has no version 99"),
            ("0" * 32, "there is no run 0"),
        ):
            with pytest.raises(UsageError, match=re.escape(words)):
                promote(named)


# The way back


@pytest.mark.parametrize(
    ("reference", "origin"),
    [
        ("{run}", {}),
        ("runs:/{run}/toy-run-1", {}),
        ("models:/{model}", {}),
        (NAME, CHAMPION),
        (f"models:/{NAME}@champion", CHAMPION),
        (f"{NAME}/1", {"name": NAME, "version": "1"}),
    ],
)
def test_download_by_every_name(logged, home, tmp_path, reference, origin):
    run, model = logged
    reference = reference.format(run=run, model=model)
    found = download(reference, tmp_path / "a" / "b")
    assert resolve(reference) == found
    assert model in found.pop("source", model)
    assert found == origin
    assert contents(tmp_path / "a" / "b") == contents(home / "some bundle")


def test_without_a_champion_the_newest_version_is_meant(contest, client, tmp_path):
    name, folder = "forecaster-newest", tmp_path / "other"
    make_bundle(folder, columns=("one",))
    for _ in range(10):
        contest(name, 0.5)
    with start(RunConfig(), "x", {}) as run:
        run.log_model(folder)
        run.register(name, errors(0.6), TASK)
    client.delete_registered_model_alias(name, "champion")
    assert download(name, tmp_path / "newest")["version"] == "11"
    assert contents(tmp_path / "newest") == contents(folder)
    assert resolve("newest")["name"] == name, "it was registered last"


def test_what_does_not_exist_is_explained(logged, tmp_path):
    for reference, message in (
        ("../../etc", "names no model: expected"),
        ("forecaster-toy-M-all-7", f"Did you mean '{NAME}'? Known: "),
        (f"{NAME}@best", f"'{NAME}' has no alias 'best'. It has: champion."),
        (f"{NAME}/77", f"'{NAME}' has no version 77. It has: 1."),
        ("0" * 32, f"there is no run {'0' * 32} in sqlite:///"),
        (f"m-{'0' * 32}", f"there is no model m-{'0' * 32} in sqlite:///"),
        (f"runs:/{logged[0]}/other", "has no model other. It has: toy-run-1."),
    ):
        for call in (resolve, lambda named: download(named, tmp_path / "bundle")):
            with pytest.raises(UsageError, match=re.escape(message)):
                call(reference)
        assert not (tmp_path / "bundle").exists()
    with pytest.raises(ValueError, match="early"), start(RunConfig(), "x", {}) as run:
        raise ValueError("early")
    with pytest.raises(UsageError, match=r"\(failed\) has no model\. It has: none\."):
        download(run.id, tmp_path)


def test_a_model_of_others_is_refused(client, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.pkl").write_text("x")
    client.create_registered_model("theirs")
    client.create_model_version("theirs", (tmp_path / "theirs").as_uri())
    with pytest.raises(UsageError, match="'theirs' was not made by forecaster"):
        download("theirs", tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_the_newest_is_ours_and_all_pages_are_read(logged, client, monkeypatch):
    client.create_registered_model("champion-of-others")
    client.create_model_version("champion-of-others", "file:///nowhere")
    name = resolve("newest")["name"]
    assert name.startswith("forecaster-")
    whole = type(client).search_registered_models

    def page_by_page(self, text="", max_results=1, page_token=None):
        return whole(self, text, max_results=1, page_token=page_token)

    monkeypatch.setattr(type(client), "search_registered_models", page_by_page)
    assert resolve("newest")["name"] == name
