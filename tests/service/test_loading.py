from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from forecaster import parts
from forecaster.attention import ProbSparseAttention, plugins
from forecaster.attention.plugins import GROUP
from forecaster.base.errors import BundleError, StorageError, UnavailableError, UsageError
from forecaster.config.run_config import load_dict
from forecaster.datasets.known import Attribute, KnownInputs
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.predictor import Predictor, keep
from forecaster.parts import CycleMean
from forecaster_service.loading import Slot, UnfitError, current, differences, for_clients, load
from forecaster_service.settings import Settings
from tests.bundles import blended
from tests.service.toy import AHEAD, HORIZON, ITEMS, KINDS, Registry, make_bundle, rename

TWO = {"columns": ("load", "wind")}


ATTRIBUTES, PANEL, AHEAD_ = (KINDS[kind] for kind in ("attributes", "panel", "ahead"))
ONE = {"columns": ("load",)}


def attributes(size, kind):
    """A kind of bundle whose attributes are these words, or a number without any."""
    known = KnownInputs(attributes=(Attribute("size", size), Attribute("kind", kind)))
    return {**ATTRIBUTES, "known": known}


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (TWO, {"columns": ("wind", "load")}, ["columns", "targets"]),
        (TWO, {**TWO, "freq": "15min"}, ["freq"]),
        (TWO, {**TWO, "timezone": "UTC"}, ["timezone"]),
        (ONE, AHEAD_, ["future covariates"]),
        (PANEL, ATTRIBUTES, ["static attributes"]),
        (PANEL, ONE, ["id", "series"]),
        (PANEL, {**PANEL, "items": ITEMS[:1]}, ["series"]),
        (ATTRIBUTES, attributes((), ("in", "at", "by")), ["words of kind"]),
        (ATTRIBUTES, attributes(("s", "m"), ("in", "out")), ["static attributes"]),
        # what suits them
        ({**PANEL, "items": ITEMS[:2]}, PANEL, []),
        (ATTRIBUTES, attributes((), ("at", "in", "out")), []),
        (AHEAD_, {**AHEAD_, "known": KnownInputs(AHEAD.columns, Scaler((1, 2), (3, 4)))}, []),
    ],
)
def test_what_would_not_suit_the_clients_of_a_model(before, after, what, tmp_path):
    old = Predictor(make_bundle(tmp_path / "old", **{"model": "tokens", **before}), "cpu")
    new = Predictor(make_bundle(tmp_path / "new", **{"model": "tokens", **after}), "cpu")
    assert differences(old, old) == []
    assert [each.partition(":")[0] for each in differences(old, new)] == what


def test_lengths_and_levels_may_not_shrink(tmp_path):
    bundle, ahead = (make_bundle(tmp_path, **kind) for kind in (TWO, AHEAD_))

    def other(of, **changes):
        """What is compared of a model, with another horizon, which its weights do not fit."""
        made = object.__new__(Predictor)
        horizon = changes.pop("horizon", HORIZON)
        window = of.config.window.model_copy(update={"horizon": horizon})
        config = of.config.model_copy(update={"window": window})
        made.device, made.model = "cpu", of.build()
        made.bundle = replace(of, config=config, **changes)
        made._learn(made.bundle)
        return made

    plain = other(bundle)
    for one, two, forth, back in (
        (other(blended(bundle, cycle=1.0)), plain, ["rows of history that are needed"], []),
        (other(bundle, horizon=9), plain, ["horizon"], []),
        (other(ahead), other(ahead, horizon=9), ["horizon"], ["horizon"]),
        (plain, other(bundle, intervals=None), ["quantile levels"], []),
    ):
        assert [each.partition(":")[0] for each in differences(one, two)] == forth
        assert [each.partition(":")[0] for each in differences(two, one)] == back


def test_names_outside_ascii_fit_into_a_header(tmp_path):
    bundle = rename(make_bundle(tmp_path), tmp_path, "forecaster-Zürich/1\n")
    served = load(str(tmp_path), Settings(), Registry())
    assert served.header == f"forecaster-Z%C3%BCrich/1%0A; digest={bundle.digest}"


def test_which_names_may_move(tmp_path, registry):
    make_bundle(tmp_path)
    version = {"name": "a", "version": "7"}
    for reference, origin, fixed in (
        ("a", version, False),
        ("a@champion", {**version, "alias": "champion"}, False),
        ("models:/a/7", version, True),
        ("0" * 32, {}, True),
    ):
        registry.models[reference] = tmp_path, origin
        slot = Slot(reference)
        assert not slot.fixed
        slot.served = load(reference, Settings(), registry)
        assert slot.fixed == fixed
        assert current(slot, registry) == slot.served.state


def test_what_clients_are_told():
    assert for_clients(UnfitError("it does not fit")) == "it does not fit"
    for kind, words in (
        (BundleError, "damaged or incomplete"),
        (UsageError, "could not be found"),
        (UnavailableError, "could not be found"),
        (StorageError, "could not be loaded"),
        (ValueError, "could not be loaded"),
    ):
        assert words in for_clients(kind("/secret"))
        assert "/secret" not in for_clients(kind("/secret"))


class Theirs(ProbSparseAttention):
    """An attention from a package by another author."""


def test_attentions_of_others_are_loaded_only_where_the_settings_name_them(tmp_path, monkeypatch):
    entry = EntryPoint("theirs", f"{__name__}:Theirs", GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Theirs)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    bundle, source = make_bundle(tmp_path / "ours"), str(tmp_path / "theirs")
    values = bundle.config.to_dict() | {"attn": {"name": "theirs", "factor": 1}}
    replace(bundle, config=load_dict(values, "the test")).save(tmp_path / "theirs")
    with pytest.raises(BundleError, match="allow it with FORECASTER_ATTENTIONS=theirs"):
        load(source, Settings(model=source), Registry())
    assert Predictor.load(source, "cpu").bundle.config.attn.name == "theirs", "nobody else is bound"
    served = load(source, Settings(model=source, attentions=("theirs",)), Registry())
    assert served.identity.attn == "theirs"


def test_parts_of_others_are_loaded_only_where_the_settings_name_them(tmp_path, monkeypatch):
    ours = blended(make_bundle(tmp_path / "ours"), network=0.5, cycle=0.5)
    network, cycle = ours.parts
    source = str(tmp_path / "theirs")
    imported = []

    def imports(entry):
        imported.append(entry.name)
        return CycleMean

    entries = [EntryPoint(name, "nowhere:None", parts.GROUP) for name in ("theirs", "another")]
    monkeypatch.setattr(EntryPoint, "load", imports)
    monkeypatch.setattr(parts, "entry_points", lambda group: entries)
    keep(replace(ours, parts=(network, replace(cycle, kind="theirs"))), tmp_path / "theirs")
    imported.clear()
    with pytest.raises(BundleError, match="allow it with FORECASTER_PARTS=theirs"):
        load(source, Settings(model=source, attentions=("theirs",)), Registry())
    assert imported == []
    monkeypatch.setenv("FORECASTER_PARTS", "theirs")
    assert load(source, Settings(model=source), Registry()).identity.digest.startswith("sha256:")
    assert set(imported) == {"theirs"}
