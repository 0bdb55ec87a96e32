import gc
import pickle
import shutil
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from forecaster.base.errors import BundleError, UnavailableError
from forecaster.forecast.bundle import MANIFEST, WEIGHTS, digest_of, load
from forecaster.forecast.question import Question
from forecaster_service.card import example
from forecaster_service.http_errors import HttpError, busy
from forecaster_service.loading import AGAIN
from forecaster_service.metrics import Metrics
from forecaster_service.settings import Settings
from forecaster_service.store import Store
from tests.bundles import sign
from tests.lacking import lacking
from tests.service.processes import until
from tests.service.toy import NAME, make_bundle

ASK = """
import sys
from tests.service.toy import NAME, start
with start(model=sys.argv[1]) as client:
    body = client.get(f"/models/{NAME}/example").json()
    assert client.post("/predict", json=body).status_code == 200
"""


def test_it_answers_without_lightning_and_mlflow(folder):
    done = lacking(ASK, str(folder), without={"lightning", "pytorch_lightning", "mlflow"})
    assert done.returncode == 0, done.stderr


def total(counter):
    """What a counter has counted, over all labels."""
    (found,) = counter.collect()
    return int(sum(each.value for each in found.samples if each.name.endswith("_total")))


@pytest.fixture
def folder(tmp_path):
    """A folder with a model that may be replaced."""
    make_bundle(tmp_path / "one", columns=("load", "wind"))
    return tmp_path / "one"


def newer(folder):
    """Another model for the same clients."""
    return make_bundle(folder, columns=("load", "wind"), model="tokens")


@contextmanager
def stored(*sources, **settings):
    """A store that has tried to load its models; tests call `poll` themselves."""
    names = ",".join(map(str, sources))
    store = Store(Settings(model=names, poll_seconds=1000, **settings), Metrics())
    store.load()
    yield store
    store.close()


LOADING = "forecaster_service.loading"


def refused(store):
    with pytest.raises(HttpError) as caught:
        store.get(None)
    return caught.value


@pytest.mark.parametrize(
    ("failing", "error", "words"),
    [
        (f"{LOADING}.load_bundle", RuntimeError("swordfish"), "could not be loaded"),
        (f"{LOADING}.golden.check", BundleError("is off"), "is off"),
        (f"{LOADING}.Predictor.answer", UnavailableError("swordfish"), "be found"),
    ],
)
def test_a_model_that_cannot_be_loaded_or_forecast(
    folder, monkeypatch, capsys, failing, error, words
):
    """Clients are told what is fit for them; the log tells all."""

    def fail(*args, **options):
        raise error

    monkeypatch.setattr(failing, fail)
    with stored(folder) as store:
        assert store.status == "failed"
        problem = refused(store)
    assert problem.status_code == 503
    assert words in problem.detail
    assert "swordfish" not in problem.detail
    assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize("first", ["a version", "a folder", "the folder twice"])
def test_one_that_no_request_could_reach_is_refused(folder, tmp_path, registry, first):
    """A version of a name or a folder, and another folder whose model has the same name."""
    make_bundle(tmp_path / "two", model="tokens")
    registry.put(f"{NAME}/1", folder, name=NAME, version="1")
    version, other = f"{NAME}/1", tmp_path / "two"
    sources = {"a version": (version, other), "a folder": (other, version)}
    with stored(*sources.get(first, (folder, other))) as store:
        assert store.status == "failed"
        assert store.get(None) is store.slots[0].served
        with pytest.raises(HttpError, match=f"model 2 of 2: two models are called {NAME}"):
            store.whole()


class TestTrust:
    """The reasons to refuse a complete bundle."""

    def test_a_digest_that_is_not_pinned(self, folder):
        digest = digest_of(folder)
        with stored(folder, digests=f"sha256:{'0' * 64}") as store:
            assert "FORECASTER_DIGESTS does not contain" in refused(store).detail
        with stored(folder, digests=f"sha256:{'0' * 64},{digest}") as store:
            assert store.get(None).identity.digest == digest

    @pytest.mark.parametrize("change", [1e-3, np.nan, None])
    def test_another_golden_forecast_is_refused_or_none(self, folder, change):
        bundle = load(folder)
        golden = change and replace(bundle.golden, forecast=bundle.golden.forecast + change)
        replace(bundle, golden=golden).save(folder)
        with stored(folder) as store:
            assert "forecasts" in refused(store).detail

    def test_a_pickle_beside_the_bundle_is_not_opened(self, folder, tmp_path):
        canary = tmp_path / "canary"
        bomb = f"cos\nsystem\n(S'touch {canary}'\ntR.".encode()
        for name in ("python_model.pkl", "model.pt", "weights.ckpt"):
            (folder / name).write_bytes(bomb)
        with stored(folder) as store:
            assert store.get(None)
            (folder / WEIGHTS).write_bytes(bomb)
            sign(folder)
            store.poll()
            assert store.get(None).identity.digest != digest_of(folder)
            assert total(store.metrics.failures) == 1
        assert not canary.exists()
        pickle.loads(bomb)
        assert canary.exists(), "it would have been made"


class TestReplacing:
    """A folder or a name that now has another model."""

    @pytest.fixture
    def store(self, folder):
        with stored(folder) as store:
            yield store

    def counts(self, store):
        """How many models were replaced, and how many attempts have failed."""
        replaced = total(store.metrics.loads) - len(store.slots)
        return replaced, total(store.metrics.failures)

    def test_another_model_takes_the_place_and_the_old_leaves_the_memory(self, store, folder):
        old = store.get(None)
        store.poll()
        assert store.get(None) is old, "there is nothing new"
        new = newer(folder)
        store.poll()
        assert store.get(None).identity.digest == new.digest != old.identity.digest
        assert self.counts(store) == (1, 0)
        question = Question.from_json(example(old.forecaster)["inputs"], {}, old.forecaster)
        assert len(store.submit(old, question).result()) == 1, "the old ends what it began"
        kept = weakref.ref(old.forecaster)
        del old, question
        gc.collect()
        assert kept() is None

    @pytest.mark.parametrize(
        "damage",
        [
            lambda folder: (folder / MANIFEST).unlink(),
            lambda folder: make_bundle(folder, columns=("wind", "load")),
            shutil.rmtree,
        ],
    )
    def test_one_that_is_broken_or_of_another_shape_leaves_the_old(self, store, folder, damage):
        old = store.get(None)
        newer(folder)
        damage(folder)
        store.poll()
        assert store.whole() == [old]
        assert self.counts(store) == (0, 1)

    def test_a_broken_one_is_tried_again_when_it_changes_else_after_a_minute(
        self, store, folder, monkeypatch
    ):
        whole = newer(folder)
        weights = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(b"x")
        for _ in range(3):
            store.poll()
        assert self.counts(store) == (0, 1)
        now = time.monotonic() + AGAIN
        monkeypatch.setattr("forecaster_service.store.monotonic", lambda: now)
        store.poll()
        store.poll()
        (folder / WEIGHTS).write_bytes(weights)
        store.poll()
        assert self.counts(store) == (0, 2)
        now += AGAIN
        store.poll()
        assert store.get(None).identity.digest == whole.digest
        assert self.counts(store) == (1, 2)

    def test_while_the_queue_is_full_it_waits(self, store, folder, monkeypatch):
        new = newer(folder)

        def refuse(*args):
            raise busy("the queue is full", "queue", 1)

        with monkeypatch.context() as patch:
            patch.setattr(store.batcher, "submit", refuse)
            store.poll()
        assert self.counts(store) == (0, 1)
        store.poll()
        assert store.get(None).identity.digest == new.digest

    def test_an_alias_moves(self, folder, registry):
        other = folder.parent / "two"
        new = newer(other)
        registry.put("a@champion", folder, name="a", version="1", alias="champion")
        registry.put("a/1", folder, name="a", version="1")
        with stored("a@champion", "a/1") as store:
            first, fixed = store.whole()
            store.poll()
            assert store.whole() == [first, fixed]
            assert registry.asked == ["a@champion"], "a version stays what it is"
            registry.put("a@champion", other, name="a", version="2", alias="champion")
            store.poll()
            assert store.get(None).identity.digest == new.digest
            assert store.get("a@champion").identity.version == "2"
            assert store.get("a/1") is fixed
            registry.away = True
            store.poll()
            registry.away = False
            registry.models.pop("a@champion")
            store.poll()
            assert store.get("a@champion").identity.version == "2"
            assert store.status == "ready"
            assert self.counts(store) == (1, 2)

    def test_a_lost_device_loads_nothing(self, store, folder):
        store.lost = "it is gone"
        newer(folder)
        store.poll()
        assert self.counts(store) == (0, 0)


def test_it_polls_by_itself_until_it_ends(folder, monkeypatch):
    others = set(threading.enumerate())
    store = Store(Settings(model=str(folder), poll_seconds=0.01), Metrics())
    store.open()
    until(lambda: store.status == "ready")
    with monkeypatch.context() as patch:  # an unexpected error ends no thread
        patch.setattr("forecaster_service.store.current", lambda *asked: 1 / 0)
        until(lambda: total(store.metrics.failures) > 1)
    new = newer(folder)
    until(lambda: store.get(None).identity.digest == new.digest)
    store.close()
    until(lambda: all(each.name != "load" for each in {*threading.enumerate()} - others))
