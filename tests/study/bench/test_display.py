"""Tables, picture and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from forecaster.base.errors import StorageError
from forecaster.study import bench
from forecaster.study.bench import CORES, display


def row(
    attn: str, length: int = 96, milliseconds: float = 1.0, mib: float = 10.0
) -> dict[str, Any]:
    return {"attn": attn, "length": length, "milliseconds": milliseconds, "mib": mib,
            "dominated_by": []}  # fmt: skip


@pytest.fixture
def document() -> dict[str, Any]:
    rows = [
        row(name, length, 0.1 * length, 0.01 * length * (i + 1))
        for length in (96, 128, 16384)
        for i, name in enumerate(("SDPA", *CORES))
    ]
    rows[1]["dominated_by"] = ["prob"]
    rows[2]["dominated_by"] = ["full", "mean"]
    rows[-1] = {"attn": "mean", "length": 16384, "skipped": "failed: X", "dominated_by": []}
    return {
        "hardware": "Chip (R), 2 threads, torch 2", "processor": "Chip (R)", "device": "cpu",
        "threads": 2, "batch": 1, "heads": 8, "width": 64, "causal": True, "dtype": "float32",
        "rows": rows,
    }  # fmt: skip


class TestReport:
    def test_tables(self, document: dict[str, Any]) -> None:
        lines = bench.tables(document).splitlines()
        assert lines[0] == "forward and backward, causal, batch 1, 8 heads of 64, float32"
        assert lines[3].split() == ["milliseconds", "96", "128", "16384"]
        assert lines[5].split() == ["full", "9.6*", "12.8", "1638"]
        assert lines[6].split() == ["prob", "9.6!", "12.8", "1638"]
        assert lines[-1] == "not measured: mean at L = 16384: it failed: X"
        assert max(map(len, lines)) <= 100

    def test_the_picture_names_every_line_in_its_family(self, document: dict[str, Any]) -> None:
        axes = bench.figure(document).axes
        assert len(axes) == 6
        for panel, family in zip(axes, display.FAMILIES * 2, strict=True):
            named = {text.get_text() for text in panel.get_legend().get_texts()}
            assert named == {"SDPA"} | {n for n, core in CORES.items() if core.family == family}
            assert len(panel.lines) == len(CORES) + 1
            assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")

    def test_nothing_has_no_point(self, document: dict[str, Any]) -> None:
        document["rows"][0]["mib"] = 0.0
        memory = bench.figure(document).axes[3]
        (sdpa,) = (line for line in memory.lines if line.get_linestyle() == "--")
        assert list(sdpa.get_xdata()) == [128, 16384]

    def test_files(self, document: dict[str, Any], tmp_path: Path) -> None:
        data, picture = bench.save(document, tmp_path / "new")
        assert data.name == "attention-Chip-R-2-threads-B1-H8-E64-float32-causal.json"
        assert json.loads(data.read_text()) == document
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stem == data.stem
        document |= {"processor": "Card 9", "device": "cuda"}
        data, _ = bench.save(document, tmp_path)
        assert data.name == "attention-Card-9-B1-H8-E64-float32-causal.json"

    def test_a_folder_that_cannot_be_written(
        self, document: dict[str, Any], tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError, match="file could not be written"):
            bench.save(document, tmp_path / "file")
