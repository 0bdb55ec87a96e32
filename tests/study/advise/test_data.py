import shlex
from dataclasses import replace

import pytest

from forecaster.datasets.facts import Event, Facts
from forecaster.study.advise.data import advise, told
from forecaster.study.compare import regimes
from forecaster.study.compare.regimes import Known

FACTS = Facts("mine", 20_000, 14_000, "h", (24, 168), 583, 1, 1, None, (), ())
AHEAD = replace(FACTS, known=("load", "wind"))
USUAL = Known(
    "none", "nothing", None, 0, 0, 1, 1.0, "prob", 0.02, "no attention is measurably better",
    None, [], "none", [], None, ["ETTh1, T = 96"],
)  # fmt: skip
KNOWN = Known(
    "prob", "content", {"grid": "known", "regime": "encoder", "linear": True}, 2, 0, 2, 1.5,
    "prob", 0.02, "take prob in the encoder", "epf", ["model.tokens=point"], "prob",
    [{"data": "epf-NP", "mse": 0.4}], None, ["epf-DE, T = 24", "epf-NP, T = 24"],
)  # fmt: skip


@pytest.fixture
def ask(monkeypatch):
    """The advice for facts, with these findings by regime instead of those of the package."""

    def call(facts, **found):
        every = dict.fromkeys(regimes.REGIMES, USUAL) | found
        monkeypatch.setattr(regimes, "known", lambda: every)
        return advise(
            facts,
            lambda attn, config, sets: f"train {attn} {config} {shlex.join(sets)}".rstrip(),
            lambda grid, attn, fits: f"compare {grid} {attn} {shlex.join(fits)}",
        )

    return call


def finding(advice, name):
    (found,) = [each for each in advice.findings if each.regime.name == name]
    return found


def test_an_ordinary_seasonal_series(ask):
    advice = ask(FACTS, usual=USUAL)
    assert advice.text().splitlines() == [
        "On ordinary seasonal series: the cheapest. No attention is measurably better than none.",
        "",
        "data         mine: 20,000 steps of h; measured on the first 14,000 of them",
        "to forecast  1 column",
        "seasons      24 and 168 steps; 583 cycles of 24",
        "known ahead  nothing is named (--future-covariates)",
        "rare events  none are known",
        "",
        "resembles usual: 583 cycles of 24 steps",
        "  seasons, and no other structure",
        "  no attention is measurably better",
        "  on       ETTh1, T = 96 (docs/comparison.md)",
        "  train    train none None",
        "  compare  compare usual prob window.past=auto model.tokens=cycle",
        "",
        "does not resemble",
        "  known    no column is named as known ahead (--future-covariates)",
        "  columns  1 column to forecast, not 8",
        "  drift    whether a period changes is not measured",
        "  recall   no rare event is known ahead",
    ]


def test_a_type_that_is_better_where_it_was_studied(ask):
    advice = ask(AHEAD, usual=USUAL, known=KNOWN)
    assert advice.decisive is finding(advice, "known")
    assert advice.answer == "On series like 'known': take prob."
    assert finding(advice, "known").lines() == [
        "resembles known: load, wind",
        "  the tokens carry covariates known ahead, such as a forecast of the load",
        "  take prob in the encoder",
        "  on       epf-DE, T = 24; epf-NP, T = 24 (docs/comparison.md)",
        "  train    train prob None model.tokens=point",
        "  compare  compare known prob window.past=auto",
    ]


def test_on_the_very_data_of_a_grid_its_recipe_is_taken(ask):
    advice = ask(replace(AHEAD, name="epf-NP"), known=KNOWN)
    assert finding(advice, "known").train.startswith("train prob epf model.tokens=point")
    assert finding(advice, "known").compare == "compare known prob "


def test_better_than_none_without_looking_at_content(ask):
    advice = ask(AHEAD, known=replace(KNOWN, attn="static", reason="positions"), usual=USUAL)
    assert advice.answer == "On series like 'known': take static; content is not what helps there."


def test_nothing_is_known(ask):
    advice = ask(replace(FACTS, seasons=(), cycles=0))
    assert advice.decisive is None
    assert advice.answer == (
        "Nothing is known: this resembles no regime that was studied. Take the cheapest, none, "
        "until you have compared."
    )
    assert advice.text().splitlines()[7:9] == [
        "",
        "to compare   compare usual None window.past=auto model.tokens=cycle",
    ]
    assert advice.to_dict()["choice"] is None


def test_generated_samples_decide_where_nothing_else_does(ask):
    events = (Event("promo", 0.02, 7),)
    advice = ask(replace(AHEAD, events=events), recall=KNOWN, usual=USUAL)
    found = finding(advice, "recall")
    assert found.train is None
    assert found.compare.startswith("compare usual prob"), "its samples are not like a series"
    assert "what types can do, not that a forecast gains from it" in advice.text()
    assert advice.decisive is finding(advice, "known"), "the first of those measured on data"


def test_only_generated_samples_are_alike(ask):
    events = (Event("promo", 0.02, 7),)
    advice = ask(replace(FACTS, seasons=(), cycles=0, events=events), recall=KNOWN)
    assert advice.decisive is finding(advice, "recall")
    assert advice.answer == (
        "On series like 'recall': take prob. That is known only of generated samples: compare "
        "before you pay for it."
    )


def test_a_floor_that_was_better_is_told(ask):
    table = {
        "data": "weather", "horizon": 96, "attn": "aft-simple", "mse": 0.17314,
        "floor": "ridge, 720", "floor_mse": 0.13893,
    }  # fmt: skip
    usual = replace(USUAL, evidence=[table, {**table, "data": "ETTh1", "floor_mse": 0.4}])
    assert (
        "  in 1 of these 2 a floor, which needs no network, was the better forecast: weather, "
        "T = 96: ridge, 720 has MSE 0.1389, the network with aft-simple 0.1731"
    ) in ask(FACTS, usual=usual).text().splitlines()
    assert "was the better forecast" not in ask(FACTS, usual=USUAL).text()


def test_facts_in_words():
    columns = replace(FACTS, targets=38, together=0.506)
    assert told(columns)[1] == (
        "to forecast  38 columns, with a mean correlation of 0.51 (0 none, 1 complete)"
    )
    panel = replace(FACTS, series=1200, events=(Event("promo", 0.0123, 7),))
    lines = told(panel)
    assert lines[0].endswith("the first 14,000 of the longest")
    assert lines[1] == "to forecast  1,200 series"
    assert lines[4] == "rare events  promo: 7 in 1.2% of the steps"
