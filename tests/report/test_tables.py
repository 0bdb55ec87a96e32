"""The tables of a run, as each face shows them."""

from dataclasses import replace

from forecaster.record import Record, Weighed
from forecaster.report import tables
from tests.bundles import blended, judged, rejudged, unsaved


def metrics():
    floor = {
        "mse": 1.5, "mae": 1.25, "skill": 0.3333, "chosen": "k = 2 cycles", "weight": 0.25
    }  # fmt: skip
    perfect = {**floor, "mse": 0.0, "skill": None, "weight": 0.0}
    return {
        "windows": 123, "mse": 1.0, "mae": 0.5,
        "floors": {"cycle mean": floor, "perfect": perfect}, "best_floor": "cycle mean",
        "network": {"mse": 1.25, "mae": 0.75, "weight": 0.75},
    }  # fmt: skip


def test_the_terminal_has_the_model_first_and_the_worst_series_last():
    errors = {f"s{i}": {"mse": i / 10, "mae": i / 20, "mase": 1.0} for i in range(14)}
    items = {"count": 15, "tested": 14, "shown": "all tested", "errors": errors}
    lines = tables.text(judged(**metrics(), items=items)).splitlines()
    assert lines[1:6] == [
        "part           MSE     MAE   skill  weight  chosen",
        "model       1.0000  0.5000",
        "network     1.2500  0.7500           75.0%",
        "cycle mean  1.5000  1.2500  +33.3%   25.0%  k = 2 cycles",
        "perfect     0.0000  1.2500                  k = 2 cycles",
    ]
    assert lines[-12:-10] == ["series     MSE     MAE   MASE", "s13     1.3000  0.6500  1.000"]
    assert lines[-2:] == ["s4      0.4000  0.2000  1.000", "and 4 more series with smaller errors"]
    table = tables.of_run(rejudged(unsaved(), items=items), "it")["series"]
    assert ([*table.rows[0]], table.caption) == (lines[-11].split(), f"it; {lines[-1]}")
    alone = {**items, "errors": {"s1": errors["s1"]}, "tested": 1}
    said = tables.text(judged(**{**metrics(), "network": None}, items=alone))
    assert "series" not in said
    assert "network" not in said


def test_of_many_columns_the_worst_are_listed():
    def listed(count):
        own = {"mae_units": 1.0, "mse": 1.0, "mae": 1.0, "rmse_units": 1.0}
        found = {f"c{i}": {**own, "mase": i / 100} for i in range(count)}
        return tables.text(judged(**metrics(), columns=found)).splitlines()[-11:]

    assert [line.split()[0] for line in listed(20)] == [f"c{i}" for i in range(9, 20)]
    *worst, more = listed(500)
    assert [line.split()[0] for line in worst] == [f"c{i}" for i in range(499, 489, -1)]
    assert more == "and 490 more columns with smaller errors"


def test_the_parts_of_a_run_are_those_judged_and_those_weighed():
    weighed = {
        name: Weighed(weight=weight, validation_mse=3.0, chosen="this")
        for name, weight in (("network", 0.75), ("late", 0.0))
    }
    record = Record(test=judged(**metrics()), validation_mse=2.0, parts=weighed)
    rows = {row["part"]: row for row in tables.parts(record, "prob")}
    assert list(rows) == ["model", "network", "cycle mean", "perfect", "late"]
    assert [row["weight"] for row in rows.values()] == [1.0, 0.75, 0.25, 0.0, 0.0]
    assert [row["validation_mse"] for row in rows.values()] == [2.0, 3.0, None, None, 3.0]
    assert [row["mse"] for row in rows.values()] == [1.0, 1.25, 1.5, 0.0, None]
    assert rows["network"]["chosen"] == "attention prob"
    assert (rows["late"]["chosen"], rows["cycle mean"]["chosen"]) == ("this", "k = 2 cycles")


def test_intervals_in_words():
    assert tables._interval_lines(judged(**metrics())) == []
    band = {"coverage": 0.7512, "width": 1.25, "interval_score": 2, "by_step": {}, "columns": {}}
    fixed = {"80": band, "95": None, "crps": 0.3456, "verdict": "Too narrow."}
    assert tables._interval_lines(judged(intervals=fixed)) == [
        "intervals  covered  width  score",
        "80 %         75.1%  1.250  2.000",
        "CRPS: 0.346",
        "Too narrow.",
    ]


def test_the_description_is_markdown():
    found = blended(unsaved("informer"), network=0.25, cycle=0.75)
    other = Weighed(weight=0, validation_mse=2.0, chosen="")
    parts = {**found.record.parts, "a | b": other}
    found = replace(found, record=found.record.model_copy(update={"parts": parts}))
    made = tables.made_of(found)
    text = tables.in_markdown(made.head, made.rows, numbers=range(1, 5))
    assert text.replace("&emsp;", "").splitlines() == [
        "| part | weight | validation MSE | test MSE | test MAE | chosen |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        "| model | 100.0% |  | 0.3000 | – |  |",
        "| cycle mean | 75.0% | 0.1250 | 0.7500 | 0.7000 | k = 2 cycles of 4 steps |",
        "| network | 25.0% | 0.1250 | 0.5000 | – | attention prob |",
        "| last value |  | 0.1250 | – | – |  |",
        "| a \\| b |  | 2.0000 | – | – |  |",
    ]


def test_what_each_kind_adds_is_told_the_most_first():
    adds = {
        "ridge": {"mse": -0.0123, "paired_low": -0.02, "paired_high": -0.005},
        "network": {"mse": 0.002, "paired_low": None, "paired_high": None},
        "smoothing": {"mse": -0.5, "paired_low": -0.6, "paired_high": -0.4},
    }
    found = rejudged(unsaved(), adds=adds)
    assert tables.of_run(found, "it")["kinds"].rows == [
        ("smoothing", "+0.5000", "+0.4000", "+0.6000"),
        ("ridge", "+0.0123", "+0.0050", "+0.0200"),
        ("network", "-0.0020", "", ""),
    ]
    assert "without this kind" in tables.text(judged(adds=adds))
    assert len(tables.brief(judged(adds=adds)).splitlines()) <= 3
