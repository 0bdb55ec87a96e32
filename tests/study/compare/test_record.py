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
        assert {name: each.verdict for name, each in found.against.items()} == {
            name: each["verdict"] for name, each in row["against"].items()
        }


@pytest.mark.parametrize(("change", "told"), [({"seed": "x"}, "seed: "), ({"mse": "low"}, "mse: ")])
def test_what_is_no_cell_is_named(change, told, tmp_path):
    cell = finished(tmp_path, [1.0, 2.0])
    (cell.folder / FACTS).write_text(json.dumps({**cell.facts.to_dict(), **change}))
    with pytest.raises(StorageError, match=f"is no cell: {told}"):
        read(cell.folder)


def test_the_best_floor_is_that_with_the_least_error(tmp_path):
    assert finished(tmp_path, [1.0]).facts.best_floor == ("low", 0.5)
