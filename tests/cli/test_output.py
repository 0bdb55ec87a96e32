from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from forecaster.base.errors import StorageError, UsageError
from forecaster.cli.output import draw, print_json, print_pages, say, write


def test_results_go_to_stdout_and_all_else_to_stderr(capsys):
    print_json({"a": [1]})
    print_pages("runs", "mlflow ui\nhttp://127.0.0.1:5000/")
    print_pages("runs", "https://host/#/experiments")
    print_pages("runs", "")
    say("wait")
    pages = "runs     mlflow ui\nopen     http://127.0.0.1:5000/\n"
    pages += "runs     https://host/#/experiments\n"
    assert capsys.readouterr() == ('{\n "a": [\n  1\n ]\n}\n' + pages, "wait\n")
    with pytest.raises(ValueError, match="nan"):
        print_json(float("nan"))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.png", "a.svg"])
def test_a_file_is_written_or_what_prevents_it_is_told(name, tmp_path):
    make = draw if name.endswith((".png", ".svg")) else write
    made = Figure() if make is draw else pd.DataFrame({"a": [1]})
    make(made, tmp_path / name)
    assert (tmp_path / name).stat().st_size
    with pytest.raises(StorageError, match=f"where/{name} could not be written"):
        make(made, tmp_path / "no" / "where" / name)
    with pytest.raises(UsageError, match=r"FILE.png or FILE.svg, got a.jpg"):
        draw(None, Path("a.jpg"))
