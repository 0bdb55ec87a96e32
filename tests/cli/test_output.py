from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from forecaster.base.errors import StorageError, UsageError
from forecaster.cli.output import draw, print_json, print_pages, say, write


def test_results_go_to_stdout_and_all_else_to_stderr(capsys):
    print_json({"a": [1]})
    print_pages("runs", "mlflow ui\nhttp://host/")
    say("wait")
    told = '{\n "a": [\n  1\n ]\n}\nruns     mlflow ui\nopen     http://host/\n'
    assert capsys.readouterr() == (told, "wait\n")
    with pytest.raises(ValueError, match="nan"):
        print_json(float("nan"))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.png", "a.svg"])
def test_a_file_is_written_or_what_prevents_it_is_told(name, tmp_path):
    make, made = (draw, Figure()) if "g" in name else (write, pd.DataFrame({"a": [1]}))
    make(made, tmp_path / name)
    assert (tmp_path / name).stat().st_size
    with pytest.raises(StorageError, match=f"where/{name} could not be written"):
        make(made, tmp_path / "no" / "where" / name)
    with pytest.raises(UsageError, match=r"FILE.png or FILE.svg, got a.jpg"):
        draw(None, Path("a.jpg"))
