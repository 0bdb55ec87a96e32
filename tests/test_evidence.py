"""The choice among made-up tables, and the file that comes with the package."""

import json
from typing import Any

import pytest

from benchmarks.evidence import Place, Table, choose, known, write
from forecaster.study.compare import regimes

BEST = {"none": "better", "static": "better"}


def row(mse: float, seconds: float, none: str = "", static: str = "", full: str = "", **also: Any):
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


def table(own: dict[str, Any], /, **changes: Any) -> Table:
    """A table with both controls, of the grid `known` unless another is given."""
    values = {
        "grid": "known", "data": "epf-NP", "horizon": 24, "regime": "encoder", "linear": True,
        "rows": {**own, **CONTROLS},
    }  # fmt: skip
    return Table(**(values | changes))


class TestChoice:
    def test_no_tables(self):
        assert choose([]) is None
        assert choose([table({}, rows={"full": row(0.4, 1)})]) is None, "nothing to hold it against"

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
        again = [table(other, data=f"epf-{name}") for name in ("BE", "FR")]
        choice = choose([table({"prob": one["prob"]}), *again])
        assert (choice.attn, choice.reason) == ("none", "nothing")

    def test_better_than_none_and_not_than_static_is_no_content(self):
        tables = [table({"full": row(0.44, 30, none="better"), "prob": row(0.46, 5)})]
        choice = choose(tables)
        assert (choice.attn, choice.reason) == ("full", "positions")
        tables[0].rows["static"] = row(0.45, 9.0, none="better")
        assert choose(tables).attn == "static", "as good, and cheaper"

    def test_without_static_none_decides(self):
        rows = {"full": row(0.4, 30, none="better"), "none": row(0.5, 10)}
        assert choose([table({}, rows=rows)]).reason == "content"

    def test_of_equals_the_one_that_full_does_not_beat_and_then_the_cheapest(self):
        """Of three that beat the controls, one falls short of full attention by far."""
        rows = {
            "full": row(0.1, 30, **BEST),
            "single": row(0.1, 20, **BEST),
            "fastformer": row(0.4, 5, **BEST, full="worse"),
        }
        assert choose([table(rows)]).attn == "single"
        del rows["full"], rows["single"]
        assert choose([table(rows)]).attn == "fastformer"

    def test_what_amounts_to_full_attention_is_no_choice(self):
        choice = choose([table({"prob": row(0.1, 1, **BEST) | {"is_full": True}})])
        assert (choice.attn, choice.cheapest) == ("none", None)

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

    def test_the_place_with_the_lower_error(self):
        """A type that beats a bad control does not make its place a good one."""
        bad = {"full": row(0.7, 30, **BEST), "none": row(0.9, 10), "static": row(0.8, 9)}
        tables = [table({"full": row(0.45, 30)}), table({}, regime="cross", rows=bad)]
        choice = choose(tables)
        assert (choice.attn, choice.reason) == ("none", "nothing")
        assert choice.place == Place("known", "encoder", True)
        bad["full"]["mse"] = 0.3
        assert choose(tables).place == Place("known", "cross", True)

    def test_places_are_compared_on_what_both_have(self):
        rows = {"full": row(0.4, 30, **BEST)}
        worse = {"full": row(0.42, 30, **BEST)}
        easy = table({"full": row(0.01, 30, **BEST)}, regime="cross", data="easy")
        tables = [table(rows), table(worse, regime="cross"), easy]
        assert choose(tables).place.regime == "encoder"

    def test_further_grids_are_the_same_place(self):
        rows = {"full": row(0.4, 30, **BEST)}
        choice = choose([table(rows), table(rows, grid="known.europe", data="europe-prices")])
        assert (len(choice.tables), choice.place.grid) == (2, "known")

    def test_nothing_between_the_tables_and_an_error_of_zero(self):
        rows = {"full": row(0.0, 30, **BEST)}
        assert choose([table(rows), table(rows, linear=False)]).attn == "full"


def documents(*tables: Table):
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


def told(*tables: Table, cells: Any = ()):
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

    def test_the_sentences(self):
        beats = {"prob": row(0.4, 15.0, **BEST)}
        longer = table({}, rows={**beats, "none": row(0.5, 10.0)}, data="longer")
        found = told(table(beats), longer)["known"]["found"]
        assert "better than none, and than static where it can run, in 2 of 2 tables" in found
        rows = {"prob": row(0.46, 15, none="better"), "static": row(0.45, 9, none="better")}
        own = told(table({}, rows={**rows, "none": row(0.5, 10)}))["known"]
        assert (own["attn"], own["reason"]) == ("static", "positions")
        assert "better than none, though no type than static, in 1 of 1" in own["found"]
        bad = {"prob": row(0.7, 15, **BEST), "static": row(0.8, 9), "none": row(0.9, 10)}
        own = told(table({"prob": row(0.5, 15)}), table({}, regime="cross", rows=bad))["known"]
        assert (own["place"]["regime"], own["better"]) == ("encoder", 0)
        assert own["found"] == (
            "take none in the encoder over point tokens, with the linear path: in 1 table with "
            "these tokens no attention is measurably better"
        )

    def test_without_a_place_the_data_keep_their_recipe(self):
        own = told(table({"prob": row(0.48, 8)}))["known"]
        assert (own["place"], own["config"], own["sets"], own["swapped"]) == (
            None,
            None,
            [],
            "none",
        )
        assert own["found"] == (
            "in 1 table no attention is measurably better than none (80 % power to see 0.0200): "
            "take the cheapest, none; the cheapest attention is prob"
        )
        assert own["evidence"][0]["attn"] == "prob", "the best one"

    def test_a_type_in_the_cross_attention(self):
        own = told(table({"prob": row(0.4, 15, **BEST)}, regime="cross", linear=False))["known"]
        assert own["swapped"] is None
        assert own["sets"][-3:] == ["attn.cross=prob", "model.linear=false", "train.lr_of={}"]
        assert "in the cross-attention over" in own["found"]

    def test_what_is_there_for_contrast_is_left_out(self):
        assert told(table({}, grid="drift", data="phase-256-fixed")) == {}

    @pytest.mark.parametrize(
        "said", [{"verdict": "better"}, {"verdict": "no measurable difference", "holm": 0.2}]
    )
    def test_what_was_not_corrected_or_not_found_names_no_type(self, said):
        rows = {"full": row(0.4, 30, against={"none": said}), "none": row(0.5, 10)}
        assert told(table({}, rows=rows))["known"]["reason"] == "nothing"

    def test_a_row_of_two_seeds_speaks_of_no_type(self):
        rows = {name: row(0.4, 30, seeds=[0, 1], **BEST) for name in ("full", "none")}
        assert told(table({}, rows=rows)) == {}

    def test_figures_have_five_digits(self):
        own = table({"full": row(0.123456789, 30, **BEST)})
        found = json.loads(write(documents(own), []))["known"]
        assert (found["evidence"][0]["mse"], found["of"]) == (0.12346, 1)
