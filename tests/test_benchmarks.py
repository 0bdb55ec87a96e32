"""The documents say what the finished measurements say."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("render", BENCHMARKS / "render.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "render", module)
    specification.loader.exec_module(module)
    return module


def test_documents_are_as_the_results_say(render: ModuleType) -> None:
    for name in render.DOCUMENTS:
        text = (render.ROOT / name).read_text()
        assert "<!-- begin " in text
        assert render.render(text) == text, f"{name}: run python benchmarks/render.py"
    for name, table in render.TABLES.items():
        assert name == "curves" or len(table().splitlines()) > 2, "a table without rows"


def test_a_changed_figure_shows(
    render: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    row = {
        "kind": "recipe", "data": "x", "horizon": 3, "variant": "default",
        "validation_mse": 0.5, "validation_mae": 0.25, "parameters": 1234,
    }  # fmt: skip
    (results / "one.json").write_text(json.dumps(row))
    before = render.render("<!-- begin recipe -->\n<!-- end recipe -->")
    assert "| x | 3 | default | 0.5000 / 0.2500 | 1,234 |" in before
    (results / "one.json").write_text(json.dumps({**row, "validation_mse": 0.75}))
    assert render.render(before) == before.replace("0.5000", "0.7500")


def test_every_result_can_be_made_again() -> None:
    for file in (BENCHMARKS / "results").glob("*.json"):
        row = json.loads(file.read_text())
        for key in ("kind", "command", "hardware", "commit"):
            assert row[key], f"{file.name} lacks {key}"
        assert "dirty" not in row["commit"], f"{file.name} was measured on uncommitted code"
