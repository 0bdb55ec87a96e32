import pytest

from forecaster.study.compare import table
from tests.study.compare.grids import WINDOWS, by_attention, finished


def test_verdicts(cells):
    rows = by_attention(table.rows(cells))
    assert list(rows) == ["full", "prob", "lsh", "topk", "mean", "none"], "as in the catalogue"
    assert rows["full"].against["none"].verdict == "better"
    assert rows["full"].against["none"].difference == pytest.approx(-0.5)
    assert rows["lsh"].against["none"].verdict == "worse"
    assert rows["prob"].against["none"].verdict == "no measurable difference"
    assert rows["prob"].against["full"].verdict == "worse"
    assert rows["mean"].against["none"].verdict == "no measurable difference"
    assert set(rows["none"].against) == {"full"}
    assert rows["topk"].against == {}, "it is full attention, so there is nothing to say"


def against_none(row, **changes):
    """The row with another comparison with `none`."""
    own = row.against["none"].model_copy(update=changes)
    return row.model_copy(update={"against": {**row.against, "none": own}})


def test_a_verdict_that_the_correction_takes_back_is_marked(cells):
    row = by_attention(table.rows(cells))["lsh"]
    row = against_none(row, low=0.1, high=0.3, verdict="no measurable difference")
    assert table.verdict(row, "none") == "=^"


def test_a_borderline_verdict_is_marked(cells):
    row = by_attention(table.rows(cells))["lsh"]
    for low, high, verdict, word in (
        (0.0001, 0.1, "worse", "worse~"),
        (-0.0001, 0.1, "no measurable difference", "=~"),
        (0.05, 0.1, "worse", "worse"),
        (None, None, "no measurable difference", "="),
    ):
        changed = against_none(row, low=low, high=high, verdict=verdict)
        assert table.verdict(changed, "none") == word


def test_figures(tmp_path):
    cells = [
        finished(tmp_path, [value] * 10, seed=seed, mae=value / 2, peak_mib=peak)
        for seed, value, peak in ((0, 1.0, 2.0), (1, 2.0, None), (2, 3.0, 4.0))
    ]
    (row,) = table.rows(cells)
    assert (row["mse"], row["mse_sd"]) == (2.0, 1.0)
    assert (row["mae"], row["mae_sd"]) == (1.0, 0.5)
    assert row["peak_mib"] == 3.0
    assert (row.best_floor, row.floor_mse, row.skill) == ("low", 0.5, -3.0)
    assert row.seeds == (0, 1, 2)
    (single,) = table.rows(cells[:1])
    assert single["mse_sd"] is None


def test_groups_stand_apart(cells, tmp_path):
    other = [finished(tmp_path / "x", [1.0] * WINDOWS, attn="full", linear=True)]
    rows = table.rows(cells + other)
    assert [row.linear for row in rows] == [True] + 6 * [False]
    assert rows[0].against == {}, "the other group has the linear path, this one has not"


def test_text(cells, tmp_path):
    heavy = finished(
        tmp_path / "x", [1.0] * WINDOWS, attn="diff", within_budget=False, budget_parameters=123456,
        peak_mib=None, floors={"zero": {"mse": 0.0}},
    )  # fmt: skip
    text = table.text(table.rows([*cells, heavy]))
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert (
        "small, T = 2, few (9 tokens), without the linear path; 6 steps, 400 test windows" in text
    )
    assert lines["full"].split()[-2:] == ["better", "–"]
    assert lines["lsh"].split()[-2:] == ["worse", "worse"]
    assert lines["prob"].split()[-2:] == ["=", "worse"]
    assert lines["topk"].split()[-2:] == ["(full)", "(full)"]
    assert "123,456*" in lines["diff"]
    assert "±" in lines["full"]
    assert "±" not in lines["diff"]
    assert "found with 80 % power: 0." in text
    assert " from none, 0." in text
    assert "−static" not in text
    with_static = table.text(
        table.rows([*cells, finished(tmp_path / "y", [1.0] * WINDOWS, attn="static")])
    )
    assert "  −none   −static  −full\n" in with_static
    assert max(map(len, with_static.splitlines())) <= 120
    assert max(map(len, text.splitlines())) <= 110


def test_columns_of_large_numbers_stay_apart(tmp_path):
    large = [finished(tmp_path / "x", [1e4] * WINDOWS, attn="diff", budget_parameters=2_251_012,
                      within_budget=False)]  # fmt: skip
    text = table.text(table.rows(large))
    assert "  10000.0000  0.5000  2,251,012*  " in text


def test_markdown_has_a_table_for_each_group(cells, tmp_path):
    other = finished(tmp_path / "x", [1.0] * WINDOWS, attn="full", regime="many")
    text = table.markdown(table.rows([*cells, other])).replace("&emsp;", "")
    assert text.count("**small, T = 2, ") == 2
    head = "| attention | MSE | MAE | params | train s | win/s | ms | MiB | skill | −none | −full |"
    assert text.count(head) == 2
    (own,) = (line for line in text.splitlines() if line.startswith("| lsh |"))
    assert own.endswith("| worse | worse |")
    assert "±" in own
    assert {line.count("|") for line in text.splitlines() if "|" in line} == {12}


def test_flat_rows_have_columns_for_verdicts(cells):
    rows = {row["attn"]: row for row in table.flat(table.rows(cells))}
    assert (rows["full"]["none: verdict"], rows["lsh"]["full: verdict"]) == ("better", "worse")
    assert "full: verdict" not in rows["full"]
    assert not any(isinstance(value, dict | list) for value in rows["lsh"].values())
