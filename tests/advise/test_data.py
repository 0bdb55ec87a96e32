import json
import shlex
from dataclasses import replace

import pytest

from forecaster.advise.data import advise, sentence, told
from forecaster.compare import evidence
from forecaster.compare.evidence import choose
from forecaster.datasets.facts import Event, Facts
from tests.compare.evidence_tables import row, table

FACTS = Facts("mine", 20_000, 14_000, "h", (24, 168), 583, 1, 1, None, (), (), 0.125)
AHEAD = replace(FACTS, known=("load", "wind"))
BEST = {"none": "better", "static": "better"}
USUAL = table(
    {"prob": row(0.48, 8), "full": row(0.49, 20, none="worse")},
    grid="usual", regime="patches", data="ETTh1", horizon=96,
)  # fmt: skip
KNOWN = table({"prob": row(0.4, 15, **BEST), "full": row(0.45, 20), "linear": row(0.42, 1)})


@pytest.fixture
def ask(monkeypatch):
    """The advice for facts, with these tables instead of those of the package."""

    def call(facts, *tables):
        monkeypatch.setattr(evidence, "known", lambda: tables)
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
    advice = ask(FACTS, USUAL)
    assert advice.text().splitlines() == [
        "On ordinary seasonal series: the cheapest. No attention is measurably better than none.",
        "",
        "data         mine: 20,000 steps of h; measured on the first 14,000 of them",
        "to forecast  1 column",
        "seasons      24 and 168 steps; 583 cycles of 24",
        "known ahead  nothing is named (--future-covariates)",
        "rare events  none are known",
        "drift        0.12 (0 one period, 1 none)",
        "",
        "resembles usual: 583 cycles of 24 steps",
        "  seasons, and no other structure",
        "  in 1 table no attention is measurably better than none (80 % power to see 0.0200): take "
        "the cheapest, none; the cheapest attention is prob",
        "    data    T  grid: tokens    best type     MSE    none  static  linear  best floor  "
        "− none  − static  train s   ms",
        "    ETTh1  96  usual: patches  prob       0.4800  0.5000  0.4500       –      0.4000  "
        "     =         =      8.0  1.5",
        "  train    train none None",
        "  compare  compare usual prob window.past=auto model.tokens=cycle",
        "",
        "does not resemble",
        "  known    no column is named as known ahead (--future-covariates)",
        "  columns  1 column to forecast, not 8",
        "  drift    drift is 0.12, where 0.3 is much",
        "  events   no rare event is known ahead",
        "  recall   no rare event is known ahead",
    ]


def test_a_type_that_is_better_where_it_was_studied(ask):
    advice = ask(AHEAD, USUAL, KNOWN, replace(KNOWN, data="epf-DE"))
    assert advice.decisive is finding(advice, "known")
    assert advice.answer == "On series like 'known': take prob."
    lines = finding(advice, "known").lines()
    assert lines[0] == "resembles known: load, wind"
    assert lines[2] == (
        "  take prob in the encoder over point tokens, with the linear path: measurably better "
        "than none and static in 2 of 2 tables, worse in 0; 1.5 times the training time of none"
    )
    assert "prob  0.4000  0.5000  0.4500  0.4200      0.4000  better    better" in lines[4]
    assert lines[-2].startswith(
        "  train    train prob None model.tokens=point model.channels=mixed"
    )
    assert lines[-1] == "  compare  compare known prob window.past=auto"


def test_a_table_too_long_for_static(ask):
    rows = {name: cells for name, cells in KNOWN.rows.items() if name != "static"}
    longer = table({}, rows=rows, data="longer")
    lines = finding(ask(AHEAD, KNOWN, longer), "known").lines()
    assert "better than none, and than static where it can run, in 2 of 2 tables" in lines[2]


def test_on_the_very_data_of_a_grid_its_recipe_is_taken(ask):
    advice = ask(replace(AHEAD, name="epf-NP"), KNOWN)
    assert finding(advice, "known").train.startswith("train prob epf model.tokens=point")
    assert finding(advice, "known").compare == "compare known prob "


def test_a_type_in_the_cross_attention(ask):
    advice = ask(AHEAD, replace(KNOWN, regime="cross"))
    command = finding(advice, "known").train
    assert command.startswith("train None None ")
    assert command.endswith("attn=none attn.cross=prob")


def test_better_than_none_without_looking_at_content(ask):
    rows = {"prob": row(0.46, 15, none="better"), "static": row(0.45, 9, none="better")}
    advice = ask(AHEAD, table({}, rows={**rows, "none": row(0.5, 10)}), USUAL)
    assert advice.answer == "On series like 'known': take static; content is not what helps there."
    assert "better than none, though no type than static, in 1 of 1" in advice.text()


def test_what_is_not_measured_yet_is_said(ask):
    advice = ask(AHEAD, USUAL)
    assert advice.decisive is finding(advice, "usual")
    assert advice.answer.endswith(" This one also resembles known, which is not measured yet.")
    lines = finding(advice, "known").lines()
    assert lines[2:] == ["  not measured yet", "  compare  compare known None window.past=auto"]


def test_nothing_is_known(ask):
    advice = ask(AHEAD)
    assert advice.decisive is None
    assert advice.answer == (
        "Nothing is known: this resembles known and usual, which are not measured yet. Take the "
        "cheapest, none, until you have compared."
    )
    short = replace(FACTS, seasons=(), cycles=0, drift=None)
    assert ask(short, USUAL).answer.startswith(
        "Nothing is known: this resembles no regime that was studied."
    )
    assert "drift        no clear cycle" in ask(short, USUAL).text()
    assert "to compare   compare usual None window.past=auto" in ask(short, USUAL).text()


def test_generated_samples_decide_where_nothing_else_does(ask):
    events = (Event("promo", 0.02, 7),)
    recalls = replace(KNOWN, grid="recall", regime="points", linear=False)
    advice = ask(replace(AHEAD, events=events), recalls, USUAL)
    found = finding(advice, "recall")
    assert found.choice.attn == "prob"
    assert found.train is None
    assert found.compare.startswith("compare usual prob"), "its samples are not like a series"
    assert "what types can do, not that a forecast gains from it" in advice.text()
    assert advice.decisive is finding(advice, "usual")
    assert advice.answer.endswith("also resembles known and events, which are not measured yet.")


def test_only_generated_samples_are_alike(ask):
    wave = replace(KNOWN, grid="drift", regime="points", linear=False, data="phase-256-chirp")
    advice = ask(replace(FACTS, drift=0.6), USUAL, wave)
    assert advice.decisive is finding(advice, "drift")
    assert advice.answer == (
        "On series like 'drift': take prob. That is known only of generated samples: compare "
        "before you pay for it."
    )


def test_no_type_is_better_at_the_better_place(ask):
    bad = {"prob": row(0.7, 15, **BEST), "static": row(0.8, 9), "none": row(0.9, 10)}
    advice = ask(AHEAD, table({"prob": row(0.5, 15)}), table({}, regime="cross", rows=bad))
    found = finding(advice, "known")
    assert found.take == (
        "take none in the encoder over point tokens, with the linear path: in 1 table with these "
        "tokens no attention is measurably better"
    )
    assert found.train.startswith("train none None model.tokens=point")


def test_without_known_power_none_is_claimed():
    assert "80 %" not in sentence(choose([replace(USUAL, smallest={})]))


def test_it_is_plain_json(ask):
    advice = ask(AHEAD, USUAL, KNOWN).to_dict()
    assert json.loads(json.dumps(advice, allow_nan=False)) == json.loads(json.dumps(advice))
    assert (advice["choice"], advice["regime"]) == ("prob", "known")
    known = advice["regimes"][0]
    assert known["choice"]["place"] == {"grid": "known", "regime": "encoder", "linear": True}
    (measured,) = known["choice"]["evidence"]
    assert measured["against"] == BEST
    assert measured["controls"] == {"none": 0.5, "static": 0.45, "linear": 0.42}
    assert ask(AHEAD).to_dict()["choice"] is None


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
