"""The notebooks of examples/, kept as text, run from top to bottom.

FORECASTER_EXAMPLES=all runs all of them; otherwise only the first forecast runs.
"""

import os
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "examples").glob("*.py"))
RUN = (
    FILES
    if os.environ.get("FORECASTER_EXAMPLES") == "all"
    else [ROOT / "examples" / "first_forecast.py"]
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_is_a_notebook_without_outputs(file):
    notebook = jupytext.read(file)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    assert {cell.cell_type for cell in notebook.cells} == {"markdown", "code"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", RUN, ids=lambda file: file.stem)
def test_runs_from_top_to_bottom(file, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'service'}")
    notebook = jupytext.read(file)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [each for cell in code for each in cell.outputs]
    assert not [each for each in outputs if each.output_type == "error"]
    if file.stem == "first_forecast":
        assert "fitted to 1 column every h" in str(outputs)
        drawn = {kind for each in outputs for kind in each.get("data", {})}
        assert {"image/png", "application/vnd.jupyter.widget-view+json"} <= drawn, "a bar, too"
    assert not any(tmp_path.iterdir()), "nothing is written beside a notebook"
