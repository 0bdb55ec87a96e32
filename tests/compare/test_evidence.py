import json

import pytest

from forecaster.compare import evidence
from forecaster.compare.evidence import Place, Table, choose, read, write
from tests.compare.evidence_tables import CONTROLS, row, table

BEST = {"none": "better", "static": "better"}


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
        assert (choice.better, choice.worse, choice.of) == (2, 0, 2)
        assert choice.place == Place("known", "encoder", True)
        assert choice.cost == pytest.approx(3.0)
        assert choice.cheapest == "prob"
        assert choice.smallest == 0.02

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
        choice = choose([table({"prob": row(0.1, 1, **BEST) | {"full": True}})])
        assert (choice.attn, choice.cheapest) == ("none", None)

    def test_nothing_is_better(self):
        rows = {
            "full": row(0.4, 30),
            "prob": row(0.5, 8, none="worse"),
            "aft-full": row(0.5, 5, budget=False),
            "linear": row(0.3, 1, none="better", static="better"),
        }
        choice = choose([table(rows), table(rows, regime="cross", smallest={"none": 0.04})])
        assert (choice.attn, choice.reason, choice.place) == ("none", "nothing", None)
        assert (choice.better, choice.worse, choice.of) == (0, 0, 2)
        assert choice.cheapest == "prob", "aft-full has other parameters, linear is no attention"
        assert choice.cost == 1.0
        assert choice.smallest == pytest.approx(0.03)

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
        assert (choice.of, choice.place.grid) == (2, "known")

    def test_nothing_between_the_tables_and_an_error_of_zero(self):
        rows = {"full": row(0.0, 30, **BEST)}
        assert choose([table(rows), table(rows, linear=False)]).attn == "full"


def comparison(verdict, **said):
    """A document of benchmarks/compare.py with two rows."""
    same = {
        "data": "x", "horizon": 4, "regime": "few", "linear": False, "tokens": 9,
        "seeds": [0, 1, 2], "best_floor": "ridge", "floor_mse": 0.1234567, "is_full": False,
        "within_budget": True, "mse": 0.5, "train_seconds": 2.0, "peak_mib": 3.0,
    }  # fmt: skip
    against = {"none": {"difference": -0.1, "low": -0.2, "high": -0.05, "verdict": verdict, **said}}
    rows = [{**same, "attn": "full", "against": against}, {**same, "attn": "none", "against": {}}]
    return {"grid": "toy", "rows": rows}


class TestFile:
    def test_what_is_written_can_be_read(self):
        cells = [{"grid": "toy", "data": "x", "together": 0.75}, {"grid": "other", "data": "x"}]
        text = write([comparison("better", holm=0.01, smallest=0.0625)], cells)
        (found,) = read(text)
        assert isinstance(found, Table)
        assert (found.grid, found.data, found.horizon, found.seeds) == ("toy", "x", 4, 3)
        assert (found.floor, found.floor_mse, found.together) == ("ridge", 0.12346, 0.75)
        assert found.smallest == {"none": 0.0625}
        assert found.rows["full"]["verdicts"] == {"none": "better"}
        assert found.rows["full"]["inference_ms"] is None, "an older grid lacks a figure"
        assert found.rows["none"]["verdicts"] == {}
        assert found.types == ["full"]
        assert choose([found]).attn == "full"
        assert text.count("\n") == 6, "a line for each type"

    @pytest.mark.parametrize(
        ("verdict", "said"),
        [("better", {}), ("no measurable difference", {"holm": 0.2, "smallest": 0.1})],
    )
    def test_what_was_not_corrected_or_not_found_names_no_type(self, verdict, said):
        (found,) = read(write([comparison(verdict, **said)], []))
        assert found.rows["full"]["verdicts"] == {}
        assert choose([found]).reason == "nothing"

    def test_a_table_of_two_seeds_speaks_of_no_type(self):
        document = comparison("better", holm=0.01)
        for each in document["rows"]:
            each["seeds"] = [0, 1]
        assert read(write([document], [])) == ()

    def test_no_results(self):
        assert read(write([], [])) == ()

    def test_what_comes_with_the_package_can_be_read(self):
        assert json.loads(evidence.FILE.read_text())
        for found in evidence.known():
            assert "none" in found.rows
            assert set(CONTROLS["none"]) == set(found.rows["none"])
            assert found.cost("none") == 1
            assert found.cost("no such type") is None
