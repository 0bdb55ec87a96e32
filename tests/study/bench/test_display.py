"""Tables and files."""

import json

import pytest

from forecaster.base.errors import StorageError
from forecaster.study import bench
from forecaster.study.bench import CORES


@pytest.fixture
def document():
    rows = [
        {"attn": name, "length": length, "dominated_by": []}
        | {"milliseconds": 0.1 * length, "mib": 0.01 * length}
        for length in (96, 128, 16384)
        for name in ("SDPA", *CORES)
    ]
    rows[1]["dominated_by"] = ["prob"]
    rows[2]["dominated_by"] = ["full", "mean"]
    rows[-1] = {"attn": "mean", "length": 16384, "skipped": "failed: X", "dominated_by": []}
    how = {"hardware": "Chip (R), 2 threads, torch 2", "processor": "Chip (R)", "device": "cpu"}
    shape = {"batch": 1, "heads": 8, "width": 64, "causal": True, "dtype": "float32"}
    return {**how, **shape, "threads": 2, "rows": rows}


def test_tables(document):
    lines = bench.tables(document).splitlines()
    assert lines[0] == "forward and backward, causal, batch 1, 8 heads of 64, float32"
    assert lines[3].split() == ["milliseconds", "96", "128", "16384"]
    assert lines[5].split() == ["full", "9.6*", "12.8", "1638"]
    assert lines[6].split() == ["prob", "9.6!", "12.8", "1638"]
    assert lines[-1] == "not measured: mean at L = 16384: it failed: X"
    assert max(map(len, lines)) <= 100


def test_the_file_is_named_by_machine_and_shape(document, tmp_path):
    file = bench.save(document, tmp_path / "new")
    assert file.name == "attention-Chip-R-2-threads-B1-H8-E64-float32-causal.json"
    assert json.loads(file.read_text()) == document
    other = bench.save({**document, "processor": "Card 9", "device": "cuda"}, tmp_path)
    assert other.name == "attention-Card-9-B1-H8-E64-float32-causal.json"
    with pytest.raises(StorageError, match="could not be written"):
        bench.save(document, other)
