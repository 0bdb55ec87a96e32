from dataclasses import replace

import pytest

from forecaster.attention import CATALOGUE
from forecaster.attention.base import SelfAttention
from forecaster.compare import evidence, regimes
from forecaster.compare.evidence import Place
from forecaster.compare.grid import read
from forecaster.compare.regimes import COLUMNS, REGIMES, recipe
from forecaster.config import load
from forecaster.datasets.facts import Event, Facts
from tests.compare.evidence_tables import table

PLAIN = Facts("mine", 1000, 700, "h", (), 0, 1, 1, None, (), (), None)
PLACES = [
    Place(grid, name, linear)
    for grid in ("known", "columns", "recall", "drift", "usual", "small")
    for name, regime in read(grid)[1]["protocol"]["regimes"].items()
    for linear in regime.get("linear", [True, False])
]


def alike(**changes):
    facts = replace(PLAIN, **changes)
    return {name for name, regime in REGIMES.items() if regime.see(facts).alike}


@pytest.fixture
def measured(monkeypatch):
    """Use these tables instead of those of the package."""
    return lambda *tables: monkeypatch.setattr(evidence, "known", lambda: tables)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"seasons": (24,), "cycles": 29}, {"usual"}),
        ({"seasons": (24,), "cycles": 9}, set()),
        ({"seasons": (24,), "cycles": 29, "drift": 0.29}, {"usual"}),
        ({"seasons": (24,), "cycles": 29, "drift": 0.31}, {"drift"}),
        ({"known": ("load",)}, {"known"}),
        (
            {"known": ("promo",), "events": (Event("promo", 0.01, 9),)},
            {"known", "events", "recall"},
        ),
    ],
)
def test_what_a_series_resembles(changes, expected, measured):
    measured()
    assert alike(**changes) == expected


def test_many_columns_as_strongly_together_as_what_was_measured(measured):
    many = {"targets": COLUMNS, "together": 0.3}
    measured()
    assert alike(**many) == {"columns"}, "how strongly is not known to matter yet"
    measured(
        table({}, grid="columns", together=0.5), table({}, grid="columns.nn5", together=0.29),
        table({}, grid="known", together=0.1),
    )  # fmt: skip
    assert alike(**many) == {"columns"}
    measured(table({}, grid="columns", together=0.5))
    assert alike(**many) == set()
    assert (
        "the least that was measured is 0.50" in REGIMES["columns"].see(replace(PLAIN, **many)).text
    )
    assert alike(targets=COLUMNS - 1, together=0.9) == set()
    assert alike(targets=COLUMNS, together=None) == set()
    assert alike(series=50) == set()


def test_the_words():
    assert REGIMES["usual"].see(PLAIN).text == "no visible season"
    several = replace(PLAIN, known=("a", "b", "c", "d", "e"))
    assert REGIMES["known"].see(several).text == "a, b, c and 2 more"
    assert REGIMES["columns"].see(replace(PLAIN, series=50)).text.startswith("50 series of one")
    once = replace(PLAIN, seasons=(24,), cycles=1)
    assert REGIMES["usual"].see(once).text == "1 cycle of 24 steps, not 10"


def test_tables_go_by_the_name_of_their_grid(measured):
    one, other = table({}, grid="known.europe"), table({}, grid="unknown")
    measured(one, other)
    assert REGIMES["known"].tables() == (one,)
    assert REGIMES["columns"].tables() == ()


def test_what_is_there_for_contrast_is_left_out(measured):
    one, other = (table({}, grid="drift", data=f"phase-256-{kind}") for kind in ("chirp", "fixed"))
    measured(one, other)
    assert REGIMES["drift"].tables() == (one,)
    assert REGIMES["drift"].tables([other]) == ()


def test_the_grid_to_compare_with_is_one_that_there_is(monkeypatch, tmp_path):
    assert REGIMES["known"].grid == "known"
    (tmp_path / "grids").mkdir()
    (tmp_path / "grids" / "usual.yaml").touch()
    monkeypatch.setattr(regimes, "configs", lambda: tmp_path)
    assert REGIMES["known"].grid is None
    assert REGIMES["usual"].grid == "usual"


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_recipe_is_a_configuration(place):
    """With the tokens of the place, and the type in that place."""
    copied = recipe(place, "full")
    config = load("own", copied.sets, {"attn": copied.attn, "data": "mine.csv"}).config
    protocol = read(place.grid)[1]["protocol"]
    wanted = [*protocol["set"], *protocol["regimes"][place.regime].get("set", [])]
    tokens = [text.split("=")[1] for text in wanted if text.startswith("model.tokens=")]
    assert config.model.options["tokens"] == (tokens or ["cycle"])[-1] or not tokens
    assert config.model.options["linear"] == place.linear
    assert not any("feed_forward" in text for text in copied.sets)
    swap = protocol["regimes"][place.regime].get("swap", ["encoder"])
    assert ("encoder" in swap) == (config.attn.name == "full")
    if "cross" in swap:
        assert config.attn.cross.name == "full"
        assert "cross-attention" in copied.text


def test_the_recipe_of_a_place_in_words():
    assert recipe(Place("columns", "series", True), "gau").text == (
        "gau in the encoder over series tokens, with the linear path"
    )
    assert recipe(Place("small", "quarters", False), "gau").text == (
        "gau in the encoder over the recipe's tokens, without the linear path"
    )


def test_every_measured_place_has_its_recipe():
    """Every grid of the package has its file, and the reverse."""
    named = {grid for regime in REGIMES.values() for grid in regime.grids}
    for found in evidence.known():
        for attn in found.types if found.place.grid in named else ():
            if attn in CATALOGUE and not issubclass(CATALOGUE[attn], SelfAttention):
                assert recipe(found.place, attn).config
