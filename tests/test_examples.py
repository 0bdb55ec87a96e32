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


def texts(cell):
    """What a cell printed or returned, as text."""
    return [each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.outputs]


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
    assert all(cell.execution_count for cell in code)
    assert not [each for cell in code for each in cell.outputs if each.output_type == "error"]
    if file.stem == "first_forecast":
        (fitted,) = [cell for cell in code if "model.fit(demand)" in cell.source]
        assert "fitted to 1 column every h" in texts(fitted)[-1]
        kinds = {kind for each in fitted.outputs for kind in each.get("data", {})}
        assert "application/vnd.jupyter.widget-view+json" in kinds, "a bar while it trained"
        drawn = [kind for cell in code for each in cell.outputs for kind in each.get("data", {})]
        assert "image/png" in drawn
    assert not any(tmp_path.iterdir()), "nothing is written beside a notebook"
