"""The instrument sees what attention is for: a value that has to be looked up."""

import pytest

from forecaster.compare import table
from forecaster.compare.cell import Shared, train
from forecaster.compare.grid import define, read, resolve


def small_recall(length, **changes):
    """The grid `recall` at one length, one seed and the references alone."""
    name, values = read("recall")
    said = {"data": [f"recall-{length}"], "attn": [], "seeds": 1} | changes
    return resolve(name, define(values | said, {}, "the test"))


def test_the_grid_holds_all_but_the_type_apart():
    grid = small_recall(64, attn=["prob"])
    cells = {cell.attn: cell for cell in grid.cells}
    assert {"full", "prob", "static", "mean", "none"} <= set(cells)
    for cell in cells.values():
        model = cell.config.model.options
        assert (model["output"], model["positions"], model["linear"]) == ("last", False, False)
        assert cell.config.window.past == 64


@pytest.mark.slow
def test_full_attention_looks_values_up_and_the_controls_cannot(tmp_path):
    grid = small_recall(64)
    shared = Shared(grid.data, tmp_path / "cells", "", "")
    rows = {row["attn"]: row for row in table.rows([train(shared, cell) for cell in grid.cells])}
    assert rows["full"]["mse"] < 0.05, "it looks the value up"
    for control in ("static", "mean", "none"):
        assert rows[control]["mse"] > 0.9, f"{control} knows the mean of a sample at most"
        assert rows[control]["against"]["full"]["verdict"] == "worse"
