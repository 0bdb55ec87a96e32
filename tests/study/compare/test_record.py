"""The documents of a grid."""

import json
from pathlib import Path

import pytest

from forecaster.base.errors import StorageError
from forecaster.study.compare.cell import FACTS, read
from forecaster.study.compare.record import Row
from tests.study.compare.grids import finished

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def test_the_rows_that_are_kept_in_results_are_read():
    documents = [json.loads(file.read_text()) for file in RESULTS.glob("comparison-*.json")]
    rows = [row for document in documents for row in document["rows"]]
    assert len(rows) > 100
    for row in rows:
        found = Row.read(row)
        assert found["mse"] == row["mse"]
        for name, each in row["against"].items():
            assert found.against[name].verdict == each["verdict"]


def test_what_is_no_cell_is_named(tmp_path):
    cell = finished(tmp_path, [1.0, 2.0])
    assert cell.facts.best_floor == ("low", 0.5), "that with the least error"
    for name in ("seed", "mse"):
        (cell.folder / FACTS).write_text(json.dumps({**cell.facts.to_dict(), name: "x"}))
        with pytest.raises(StorageError, match=f"is no cell: {name}: "):
            read(cell.folder)
