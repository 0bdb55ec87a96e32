import shlex
from dataclasses import replace

import pytest

from forecaster.datasets.seasons import Facts
from forecaster.study.advise.data import advise, text, told
from forecaster.study.compare import regimes
from forecaster.study.compare.regimes import Known

FACTS = Facts("mine", 20_000, 14_000, "h", (24, 168), 583, 1, 1, None, (), ())
AHEAD = replace(FACTS, known=("load", "wind"))
RARE = {"events": ({"name": "promo", "share": 0.02, "count": 7},)}
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
            lambda *asked: f"train {asked[0]} {asked[1]} {shlex.join(asked[2])}".rstrip(),
            lambda *asked: f"compare {asked[0]} {asked[1]} {shlex.join(asked[2])}",
        )

    return call


def finding(advice, name):
    (found,) = [each for each in advice["regimes"] if each["regime"] == name]
    return found


def test_an_ordinary_seasonal_series(ask):
    assert text(ask(FACTS), FACTS).splitlines() == [
        "On ordinary seasonal series: no attention is measurably better than none; prob is as good "
        "as any.",
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


def test_nothing_is_known(ask):
    facts = replace(FACTS, seasons=(), cycles=0)
    advice = ask(facts)
    assert advice["choice"] is advice["regime"] is None
    nothing = "Nothing is known: this resembles no regime that was studied."
    assert advice["answer"].startswith(nothing)
    compare = "to compare   compare usual None window.past=auto model.tokens=cycle"
    assert text(advice, facts).splitlines()[8] == compare


@pytest.mark.parametrize(
    ("facts", "found", "decisive", "answer"),
    [
        (AHEAD, {"known": KNOWN}, "known", "take prob."),
        (AHEAD, {"known": replace(KNOWN, attn="static", reason="positions")}, "known",
         "take static; content is not what helps there."),
        (replace(FACTS, seasons=(), cycles=0, **RARE), {"recall": KNOWN}, "recall",
         "take prob. That is known only of generated samples: compare before you pay for it."),
    ],
)  # fmt: skip
def test_what_was_better_where_it_was_studied_is_taken(ask, facts, found, decisive, answer):
    advice = ask(facts, **found)
    assert (advice["regime"], advice["choice"]) == (decisive, found[decisive].attn)
    assert advice["answer"] == f"On series like '{decisive}': {answer}"


def test_a_finding_has_the_commands_that_use_it(ask):
    lines = text(ask(AHEAD, known=KNOWN), AHEAD).splitlines()
    assert lines[8:14] == [
        "resembles known: load, wind",
        "  the tokens carry covariates known ahead, such as a forecast of the load",
        "  take prob in the encoder",
        "  on       epf-DE, T = 24; epf-NP, T = 24 (docs/comparison.md)",
        "  train    train prob None model.tokens=point",
        "  compare  compare known prob window.past=auto",
    ]
    same = finding(ask(replace(AHEAD, name="epf-NP"), known=KNOWN), "known")
    assert same["train"] == "train prob epf model.tokens=point", "the recipe of the grid"
    assert same["compare"] == "compare known prob "


def test_generated_samples_decide_only_where_nothing_else_does(ask):
    facts = replace(AHEAD, **RARE)
    advice = ask(facts, recall=KNOWN)
    found = finding(advice, "recall")
    assert found["train"] is None
    assert found["compare"].startswith("compare usual prob"), "its samples are not like a series"
    assert "what types can do, not that a forecast gains from it" in text(advice, facts)
    assert advice["regime"] == "known", "the first of those measured on data"


def test_a_floor_that_was_better_is_told(ask):
    table = {
        "data": "weather", "horizon": 96, "attn": "aft-simple", "mse": 0.17314,
        "floor": "ridge, 720", "floor_mse": 0.13893,
    }  # fmt: skip
    usual = replace(USUAL, evidence=[table, {**table, "data": "ETTh1", "floor_mse": 0.4}])
    said, other = (text(ask(FACTS, usual=each), FACTS) for each in (usual, USUAL))
    assert (
        "  in 1 of these 2 a floor, which needs no network, was the better forecast: weather, "
        "T = 96: ridge, 720 has MSE 0.1389, the network with aft-simple 0.1731\n"
    ) in said
    assert "was the better forecast" not in other


def test_facts_in_words():
    columns = told(replace(FACTS, targets=38, together=0.506))[1]
    assert (
        columns == "to forecast  38 columns, with a mean correlation of 0.51 (0 none, 1 complete)"
    )
    lines = told(replace(FACTS, series=1200, **RARE))
    assert lines[0].endswith("the first 14,000 of the longest")
    assert lines[1] == "to forecast  1,200 series"
    assert lines[4] == "rare events  promo: 7 in 2.0% of the steps"
