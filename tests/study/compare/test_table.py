import pytest

from forecaster.study.compare import table
from tests.study.compare.grids import WINDOWS, by_attention, finished


def test_verdicts(cells, tmp_path):
    other = finished(tmp_path / "x", [1.0] * WINDOWS, attn="full", linear=True)
    found = table.rows([*cells, other])
    assert (found[0].linear, found[0].against) == (True, {}), "another group"
    rows = by_attention(found[1:])
    assert list(rows) == ["full", "prob", "lsh", "topk", "mean", "none"], "as in the catalogue"
    told = {
        name: {to: each.verdict for to, each in row.against.items()} for name, row in rows.items()
    }
    same = "no measurable difference"
    assert told == {
        "full": {"none": "better"},
        "prob": {"none": same, "full": "worse"},
        "lsh": {"none": "worse", "full": "worse"},
        "topk": {},  # it is full attention, so there is nothing to say
        "mean": {"none": same, "full": "worse"},
        "none": {"full": "worse"},
    }
    assert rows["full"].against["none"].difference == pytest.approx(-0.5)
    for flat, row in zip(table.flat(found[1:]), rows.values(), strict=True):
        own = {key[:4]: value for key, value in flat.items() if key.endswith(": verdict")}
        assert own == told[row.attn], "a column for each"
        assert not any(isinstance(value, dict | list) for value in flat.values())


def test_the_conclusion_in_words(cells):
    assert table.conclusion(table.rows(cells)) == (
        "In 1 table, measurably better than none: full in 1; measurably worse than none: lsh in 1; "
        "in 1 a floor, which needs no network, was better than all."
    )


def test_a_verdict_that_is_borderline_or_taken_back_is_marked(cells):
    row = by_attention(table.rows(cells))["lsh"]
    for low, high, verdict, word in (
        (0.0001, 0.1, "worse", "worse~"),
        (-0.0001, 0.1, "no measurable difference", "=~"),
        (0.05, 0.1, "worse", "worse"),
        (0.1, 0.3, "no measurable difference", "=^"),  # by the correction
        (None, None, "no measurable difference", "="),
    ):
        changes = {"low": low, "high": high, "verdict": verdict}
        against = {"none": row.against["none"].model_copy(update=changes)}
        assert table.verdict(row.model_copy(update={"against": against}), "none") == word


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


def test_text(cells, tmp_path):
    heavy = finished(
        tmp_path / "x", [1e4] * WINDOWS, attn="diff", within_budget=False,
        budget_parameters=2_251_012, peak_mib=None, floors={"zero": {"mse": 0.0}},
    )  # fmt: skip
    text = table.text(table.rows([*cells, heavy]))
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    heading = "small, T = 2, few (9 tokens), without the linear path; 6 steps, 400 test windows"
    assert heading in text
    for name, shown in (("full", "better –"), ("lsh", "worse worse"), ("prob", "= worse"),
                        ("topk", "(full) (full)")):  # fmt: skip
        assert lines[name].split()[-2:] == shown.split()
    assert lines["diff"].split()[1:4] == ["10000.0000", "0.5000", "2,251,012*"]
    assert ("±" in lines["full"], "±" in lines["diff"]) == (True, False)
    assert "found with 80 % power: 0." in text
    assert "−static" not in text
    controls = [*cells, finished(tmp_path / "y", [1.0] * WINDOWS, attn="static")]
    wide = table.text(table.rows(controls))
    assert "  −none   −static  −full\n" in wide
    assert max(map(len, [*wide.splitlines(), *text.splitlines()])) <= 120


def test_markdown_has_a_table_for_each_group(cells, tmp_path):
    other = finished(tmp_path / "x", [1.0] * WINDOWS, attn="full", regime="many")
    text = table.markdown(table.rows([*cells, other])).replace("&emsp;", "")
    assert text.count("**small, T = 2, ") == 2
    head = "| attention | MSE | MAE | params | train s | win/s | ms | MiB | skill | −none | −full |"
    assert text.count(head) == 2
    (own,) = (line for line in text.splitlines() if line.startswith("| lsh |"))
    assert own.endswith("| worse | worse |")
