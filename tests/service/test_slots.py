import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from forecaster import parts
from forecaster.attention import ProbSparseAttention, plugins
from forecaster.attention.plugins import GROUP
from forecaster.base.errors import (
    BundleError,
    ConfigError,
    StorageError,
    UnavailableError,
    UsageError,
)
from forecaster.config.run_config import load_dict
from forecaster.datasets.known import Attribute, KnownInputs
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import Predictor, keep
from forecaster.parts import CycleMean
from forecaster_service.settings import Settings
from forecaster_service.slots import (
    Slot,
    UnfitError,
    current,
    differences,
    for_clients,
    load,
)
from tests.bundles import blended
from tests.service.toy import AHEAD, ITEMS, KINDS, Registry, make_bundle, rename

TWO = {"columns": ("load", "wind")}


def with_window(bundle: Bundle, **lengths: int) -> Bundle:
    """Another look-back or horizon, only for a comparison: the weights do not fit."""
    window = bundle.config.window.model_copy(update=lengths)
    return replace(bundle, config=bundle.config.model_copy(update={"window": window}))


def unbuilt(bundle: Bundle) -> Predictor:
    """An object with the attributes of a forecaster with this bundle."""
    made = object.__new__(Predictor)
    made.bundle, made.device, made.model = bundle, "cpu", bundle.build()
    return made


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (TWO, {"columns": ("wind", "load")}, "columns: .* became .*; targets"),
        (TWO, {**TWO, "targets": ("wind",)}, "^targets: "),
        (TWO, {**TWO, "freq": "15min"}, "freq: 'h' became '15min'"),
        (TWO, {**TWO, "timezone": "UTC"}, "timezone: 'naive' became 'UTC'"),
        (TWO, {**TWO, "loss": "pinball"}, "what is forecast: 'mean' became 'median'"),
        ({"columns": ("load",)}, KINDS["ahead"], r"future covariates: \(\) became"),
        (KINDS["ahead"], {"columns": ("load",)}, r"future covariates: .* became \(\)"),
        (KINDS["panel"], KINDS["attributes"], "static attributes: {} became"),
        (KINDS["panel"], {"columns": ("load",)}, r"id: \('town',\) became \(\); series: 3 are"),
        (KINDS["panel"], {**KINDS["panel"], "items": ITEMS[:1]}, "series: 2 are unknown now"),
        (
            KINDS["attributes"],
            {**KINDS["attributes"], "known": KnownInputs(attributes=(
                Attribute("size"), Attribute("kind", ("in", "at", "by"))))},
            "words of kind: 1 are unknown now",
        ),
        (
            KINDS["attributes"],
            {**KINDS["attributes"], "known": KnownInputs(attributes=(
                Attribute("size", ("s", "m")), Attribute("kind", ("in", "out"))))},
            "static attributes: .*'size': 'a number'.* became .*'size': 'a word'",
        ),
    ],
)  # fmt: skip
def test_what_would_not_suit_the_clients_of_a_model(
    before: dict[str, Any], after: dict[str, Any], words: str, tmp_path: Path
) -> None:
    old = Predictor(make_bundle(tmp_path / "old", model="tokens", **before), "cpu")
    new = Predictor(make_bundle(tmp_path / "new", model="tokens", **after), "cpu")
    assert differences(old, old) == []
    assert re.search(words, "; ".join(differences(old, new)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({**TWO, "model": "informer"}, {**TWO, "model": "tokens"}),
        ({**KINDS["panel"], "items": ITEMS[:2]}, KINDS["panel"]),
        (
            KINDS["attributes"],
            {**KINDS["attributes"], "known": KnownInputs(attributes=(
                Attribute("size", mean=3.0), Attribute("kind", ("at", "in", "out"))))},
        ),
        (
            KINDS["ahead"],
            {**KINDS["ahead"], "known": KnownInputs(AHEAD.columns, Scaler((1.0, 2.0), (3.0, 4.0)))},
        ),
        ({"columns": ("load",)}, KINDS["holidays"]),
    ],
)  # fmt: skip
def test_what_suits_them(before: dict[str, Any], after: dict[str, Any], tmp_path: Path) -> None:
    old = Predictor(make_bundle(tmp_path / "old", **{"model": "tokens", **before}), "cpu")
    new = Predictor(make_bundle(tmp_path / "new", **{"model": "tokens", **after}), "cpu")
    assert differences(old, new) == []


def test_lengths_and_levels(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, **TWO)
    forecaster = unbuilt(bundle)

    def other(**lengths: int) -> Predictor:
        made = unbuilt(bundle)
        made.bundle = with_window(bundle, **lengths)
        return made

    closed = unbuilt(blended(bundle, cycle=1.0))
    assert differences(closed, forecaster) == ["rows of history that are needed: 8 became 24"]
    assert differences(forecaster, closed) == []
    assert differences(other(horizon=9), forecaster) == ["horizon: 9 became 6"]
    assert differences(forecaster, other(horizon=9)) == []
    ahead = unbuilt(make_bundle(tmp_path / "ahead", **KINDS["ahead"]))
    longer = unbuilt(ahead.bundle)
    longer.bundle = with_window(ahead.bundle, horizon=9)
    assert differences(ahead, longer) == ["horizon: 6 became 9"]
    none = unbuilt(replace(bundle, intervals=None))
    assert differences(none, forecaster) == []
    assert differences(forecaster, none) == ["quantile levels: (0.1, 0.5, 0.9) became ()"]


def test_names_outside_ascii_fit_into_a_header(tmp_path: Path) -> None:
    bundle = rename(make_bundle(tmp_path), tmp_path, "forecaster-Zürich/1\n")
    served = load(str(tmp_path), Settings(), Registry())
    assert served.header == f"forecaster-Z%C3%BCrich/1%0A; digest={bundle.digest}"


@pytest.mark.parametrize(
    ("reference", "origin", "fixed"),
    [
        ("a", {"name": "a", "version": "7"}, False),
        ("a@champion", {"name": "a", "version": "7", "alias": "champion"}, False),
        ("a/7", {"name": "a", "version": "7"}, True),
        ("models:/a/7", {"name": "a", "version": "7"}, True),
        ("0" * 32, {}, True),
    ],
)
def test_which_names_may_move(
    reference: str, origin: dict[str, str], fixed: bool, tmp_path: Path, registry: Registry
) -> None:
    make_bundle(tmp_path)
    registry.put(reference, tmp_path, **origin)
    if not origin:
        registry.models[reference] = tmp_path, {}
    slot = Slot(reference)
    assert not slot.fixed
    slot.served = load(reference, Settings(), registry)
    assert slot.fixed == fixed
    assert current(slot, registry) == slot.served.state


def test_what_folders_and_names_resolve_to(tmp_path: Path, registry: Registry) -> None:
    make_bundle(tmp_path / "one")
    digest = load(str(tmp_path / "one"), Settings(), Registry()).identity.digest
    registry.put("a", tmp_path / "one", name="a", version="1")
    (tmp_path / "empty").mkdir()
    named, local = Slot("a"), Slot(str(tmp_path / "one"))
    there = {"name": "a", "version": "1", "source": str(tmp_path / "one")}
    assert current(named, registry) == there
    with pytest.raises(UsageError, match="no such model"):
        current(Slot("b"), registry)
    with pytest.raises(BundleError):
        current(Slot(str(tmp_path / "empty")), registry)
    assert registry.asked == ["a", "b"]
    registry.away = True
    assert current(local, registry) == {"digest": digest}
    with pytest.raises(UnavailableError):
        current(named, registry)


def test_a_folder_stays_one_when_it_is_gone(tmp_path: Path, registry: Registry) -> None:
    make_bundle(tmp_path / "one")
    slot = Slot(str(tmp_path / "one"), load(str(tmp_path / "one"), Settings(), Registry()))
    (tmp_path / "one").rename(tmp_path / "two")
    with pytest.raises(BundleError):
        current(slot, registry)
    assert registry.asked == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConfigError("set it"), "set it"),
        (UnfitError("it does not fit"), "it does not fit"),
        (BundleError("/secret"), "damaged or incomplete"),
        (UsageError("/secret"), "could not be found"),
        (UnavailableError("/secret"), "could not be found"),
        (StorageError("/secret"), "could not be loaded"),
        (ValueError("/secret"), "could not be loaded"),
    ],
)
def test_what_clients_are_told(error: Exception, words: str) -> None:
    assert words in for_clients(error)
    assert "/secret" not in for_clients(error)


class Theirs(ProbSparseAttention):
    """An attention from a package by another author."""


class TestAttentionsOfOthers:
    @pytest.fixture
    def theirs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A bundle whose attention another package offers."""
        entry = EntryPoint("theirs", f"{__name__}:Theirs", GROUP)
        monkeypatch.setattr(EntryPoint, "load", lambda self: Theirs)
        monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
        bundle = make_bundle(tmp_path / "ours")
        values = bundle.config.to_dict() | {"attn": {"name": "theirs", "factor": 1}}
        replace(bundle, config=load_dict(values, "the test")).save(tmp_path / "theirs")
        return tmp_path / "theirs"

    def test_they_are_loaded_only_where_the_settings_name_them(self, theirs: Path) -> None:
        with pytest.raises(BundleError, match="allow it with FORECASTER_ATTENTIONS=theirs"):
            load(str(theirs), Settings(model=str(theirs)), Registry())
        served = load(str(theirs), Settings(model=str(theirs), attentions=("theirs",)), Registry())
        assert served.identity.attn == "theirs"

    def test_a_service_binds_nobody_else_in_its_process(self, theirs: Path) -> None:
        with pytest.raises(BundleError):
            load(str(theirs), Settings(model=str(theirs)), Registry())
        assert Predictor.load(theirs, "cpu").bundle.config.attn.name == "theirs"


def test_parts_of_others_are_loaded_only_where_the_settings_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = blended(make_bundle(tmp_path / "ours"), network=0.5, cycle=0.5)
    network, cycle = ours.parts
    source = str(tmp_path / "theirs")
    imported: list[str] = []

    def imports(entry: EntryPoint) -> type[CycleMean]:
        imported.append(entry.name)
        return CycleMean

    entries = [EntryPoint(name, "nowhere:None", parts.GROUP) for name in ("theirs", "another")]
    monkeypatch.setattr(EntryPoint, "load", imports)
    monkeypatch.setattr(parts, "entry_points", lambda group: entries)
    keep(replace(ours, parts=(network, replace(cycle, kind="theirs"))), tmp_path / "theirs")
    imported.clear()
    for settings in (Settings(model=source), Settings(model=source, attentions=("theirs",))):
        with pytest.raises(BundleError, match="allow it with FORECASTER_PARTS=theirs"):
            load(source, settings, Registry())
    assert imported == []
    monkeypatch.setenv("FORECASTER_PARTS", "theirs")
    assert load(source, Settings(model=source), Registry()).identity.digest.startswith("sha256:")
    assert set(imported) == {"theirs"}
