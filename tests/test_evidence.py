"""The choice among made-up tables, and the file that comes with the package."""

import pytest

from benchmarks.evidence import Place, Table, choose, known
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


class TestChoice:
    def test_better_in_most_tables(self):
        tables = [
            table({"full": row(0.4, 30, **BEST), "prob": row(0.4, 20, **BEST)}),
            table({"full": row(0.4, 30, **BEST), "prob": row(0.4, 20)}, data="epf-DE"),
        ]
        choice = choose(tables)
        assert (choice.attn, choice.reason) == ("full", "content")
        assert [each.net("full", ("none", "static")) for each in choice.tables] == [1, 1]
        assert choice.place == Place("known", "encoder", True)
        assert choice.cost("full") == pytest.approx(3.0)
        assert choice.cheapest == "prob"

    def test_worse_in_some_counts_against_it(self):
        one = {"full": row(0.4, 30, **BEST), "prob": row(0.4, 20, **BEST)}
        other = {"full": row(0.5, 30), "prob": row(0.6, 20, none="worse")}
        assert choose([table(one), table(other, data="epf-DE")]).attn == "full"

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
            "linear": row(0.3, 1, none="better", static="better"),
        }
        choice = choose([table(rows), table(rows, regime="cross")])
        assert (choice.attn, choice.reason, choice.place) == ("none", "nothing", None)
        assert choice.cheapest == "prob", "aft-full has other parameters, linear is no attention"
        assert choice.cost("none") == 1.0

    def test_places_are_compared_on_what_both_have(self):
        rows = {"full": row(0.4, 30, **BEST)}
        worse = {"full": row(0.42, 30, **BEST)}
        easy = table({"full": row(0.01, 30, **BEST)}, regime="cross", data="easy")
        tables = [table(rows), table(worse, regime="cross"), easy]
        assert choose(tables).place.regime == "encoder"


def documents(*tables):
    """The documents of the grids of some tables."""
    return [
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


def told(*tables, cells=()):
    return known(documents(*tables), cells)


class TestFile:
    def test_what_is_known_of_a_regime(self):
        beats = {"prob": row(0.4, 15.0, **BEST), "full": row(0.45, 20.0), "linear": row(0.42, 1.0)}
        cells = [
            {"grid": "known", "data": "epf-NP", "together": 0.75},
            {"grid": "other", "data": "epf-NP", "together": 0.5},
        ]
        found = told(table(beats), table(beats, data="epf-DE"), cells=cells)
        assert list(found) == ["known"]
        own = found["known"]
        evidence = own.pop("evidence")
        sets = own.pop("sets")
        assert own == {
            "attn": "prob", "reason": "content",
            "place": {"grid": "known", "regime": "encoder", "linear": True},
            "better": 2, "worse": 0, "of": 2, "cost": pytest.approx(1.5), "cheapest": "prob",
            "smallest": 0.02, "config": "epf", "swapped": "prob", "together": 0.75,
            "on": ["epf-DE, T = 24", "epf-NP, T = 24"],
            "found": "take prob in the encoder over point tokens, with the linear path: measurably "
            "better than none and static in 2 of 2 tables, worse in 0; 1.5 times the training time "
            "of none",
        }  # fmt: skip
        assert sets[0] == "model.tokens=point"
        assert evidence[0]["controls"] == {"none": 0.5, "static": 0.45, "linear": 0.42}
        assert evidence[0]["against"] == BEST
        regimes.Known(**own, evidence=evidence, sets=sets)

    @pytest.mark.parametrize(
        "said", [{"verdict": "better"}, {"verdict": "no measurable difference", "holm": 0.2}]
    )
    def test_what_was_not_corrected_or_not_found_names_no_type(self, said):
        rows = {"full": row(0.4, 30, against={"none": said}), "none": row(0.5, 10)}
        assert told(table({}, rows=rows))["known"]["reason"] == "nothing"
