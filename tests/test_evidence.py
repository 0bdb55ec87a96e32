"""The choice among made-up tables, and the file that comes with the package."""

import pytest

from benchmarks.evidence import Place, Table, choose, joined, known
from forecaster.study.compare import regimes

BEST = {"none": "better", "static": "better"}


def row(mse, seconds, none="", static="", full="", **also):
    """The row of a type, with its verdicts."""
    said = {"none": none, "static": static, "full": full}
    against = {
        name: {"verdict": verdict or "no measurable difference", "holm": 0.01, "smallest": 0.02}
        for name, verdict in said.items()
    }
    return {
        "mse": mse, "train_seconds": seconds, "inference_ms": 1.5, "is_full": False,
        "within_budget": True, "seeds": [0, 1, 2], "tokens": 168, "best_floor": "ridge",
        "floor_mse": 0.4, "against": against,
    } | also  # fmt: skip


CONTROLS = {"none": row(0.5, 10.0), "static": row(0.45, 9.0)}


def table(own, /, **changes):
    """A table with both controls, of the grid `known` unless another is given."""
    values = {
        "grid": "known", "data": "epf-NP", "horizon": 24, "regime": "encoder", "linear": True,
        "rows": {**own, **CONTROLS},
    }  # fmt: skip
    return Table(**(values | changes))


FULL, PROB = row(0.4, 30, **BEST), row(0.4, 20, **BEST)


class TestChoice:
    def test_better_in_most_tables(self):
        tables = [
            table({"full": FULL, "prob": PROB}),
            table({"full": FULL, "prob": row(0.4, 20)}, data="epf-DE"),
        ]
        choice = choose(tables)
        assert (choice.attn, choice.reason) == ("full", "content")
        assert choice.place == Place("known", "encoder", True)
        assert choice.cost("full") == pytest.approx(3.0)
        assert choice.cheapest == "prob"
        tables[1] = table({"full": row(0.5, 30), "prob": row(0.6, 20, none="worse")}, data="epf-DE")
        assert choose(tables).attn == "full", "worse in some counts against it"

    def test_better_than_none_and_not_than_static_is_no_content(self):
        tables = [table({"full": row(0.44, 30, none="better"), "prob": row(0.46, 5)})]
        choice = choose(tables)
        assert (choice.attn, choice.reason) == ("full", "positions")
        tables[0].rows["static"] = row(0.45, 9.0, none="better")
        assert choose(tables).attn == "static", "as good, and cheaper"

    def test_nothing_is_better(self):
        rows = {
            "full": row(0.4, 30),
            "prob": row(0.5, 8, none="worse"),
            "aft-full": row(0.5, 5, within_budget=False),
            "linear": row(0.3, 1, **BEST),
        }
        choice = choose([table(rows), table(rows, regime="cross")])
        assert (choice.attn, choice.reason, choice.place) == ("none", "nothing", None)
        assert choice.cheapest == "prob", "aft-full has other parameters, linear is no attention"

    def test_places_are_compared_on_what_both_have(self):
        worse = table({"full": row(0.42, 30, **BEST)}, regime="cross")
        easy = table({"full": row(0.01, 30, **BEST)}, regime="cross", data="easy")
        assert choose([table({"full": FULL}), worse, easy]).place.regime == "encoder"

    def test_a_type_is_compared_on_the_tables_that_have_it(self):
        tables = [
            table({"full": FULL}),
            table({"full": row(0.9, 30)}, data="nn5"),
            table({"prob": row(0.41, 20, **BEST)}, regime="cross"),
            table({}, data="nn5", regime="cross"),
        ]
        assert choose(tables).attn == "full", "that prob was not tried on nn5 is no merit"


def test_times_of_later_grids_are_those_beside_none():
    at = {"data": "epf-NP", "horizon": 24, "regime": "encoder", "linear": True}
    first = {"none": row(0.5, 10.0), "full": FULL}
    later = {"none": row(0.5, 20.0), "full": row(0.4, 50), "gated": row(0.4, 50)}
    documents = [
        {"grid": grid, "rows": [{"attn": name, **at, **own} for name, own in rows.items()]}
        for grid, rows in (("known", first), ("known.2025", later))
    ]
    (rows,) = joined(documents, "known").values()
    assert {name: own["train_seconds"] for name, own in rows.items()} == {
        "none": 10.0, "full": 30, "gated": 25.0
    }  # fmt: skip


def told(*tables, cells=()):
    """What is known from the documents of the grids of some tables."""
    documents = [
        {
            "grid": own.grid,
            "rows": [
                {"attn": attn, "data": own.data, "horizon": own.horizon, "regime": own.regime,
                 "linear": own.linear, **values}
                for attn, values in own.rows.items()
            ],
        }
        for own in tables
    ]  # fmt: skip
    return known(documents, cells)


def test_what_is_known_of_a_regime():
    beats = {"prob": row(0.4, 15.0, **BEST), "full": row(0.45, 20.0), "linear": row(0.42, 1.0)}
    cells = [
        {"grid": "known", "data": "epf-NP", "together": 0.75},
        {"grid": "other", "data": "epf-NP", "together": 0.5},
    ]
    ((name, own),) = told(table(beats), table(beats, data="epf-DE"), cells=cells).items()
    assert name == "known"
    first = own["evidence"][0]
    assert first["controls"] == {"none": 0.5, "static": 0.45, "linear": 0.42}
    assert first["against"] == BEST
    found = regimes.Known(**own)
    assert (found.attn, found.reason, found.better, found.worse, found.of) == (
        "prob", "content", 2, 0, 2,
    )  # fmt: skip
    assert (found.cost, found.smallest, found.together) == (pytest.approx(1.5), 0.02, 0.75)
    assert found.on == ["epf-DE, T = 24", "epf-NP, T = 24"]
    assert found.sets[0] == "model.tokens=point"


@pytest.mark.parametrize(
    "said", [{"verdict": "better"}, {"verdict": "no measurable difference", "holm": 0.2}]
)
def test_what_was_not_corrected_or_not_found_names_no_type(said):
    rows = {"full": row(0.4, 30, against={"none": said}), "none": row(0.5, 10)}
    assert told(table({}, rows=rows))["known"]["reason"] == "nothing"
