import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from forecaster.base.errors import StorageError, UsageError
from forecaster.cli.output import blocks, draw, glance, print_json, print_pages, say, write


def test_results_go_to_stdout_and_all_else_to_stderr(capsys):
    print_json({"a": [1]})
    print_pages("runs", "mlflow ui\nhttp://host/")
    say("wait")
    told = '{\n "a": [\n  1\n ]\n}\nruns     mlflow ui\nopen     http://host/\n'
    assert capsys.readouterr() == (told, "wait\n")
    with pytest.raises(ValueError, match="nan"):
        print_json(float("nan"))


def test_a_glance_at_a_forecast_has_its_next_steps_and_says_what_is_left_out():
    days = [*pd.date_range("2026-01-01", periods=9)]
    ahead = pd.DataFrame({"shop": ["a"] * 9 + ["b"] * 9, "day": days * 2})
    for number, name in enumerate("uvwx"):
        ahead[name] = 1234.5678 * number + ahead.index
        ahead[f"{name} 0.1"], ahead[f"{name} 0.9"] = ahead[name] - 0.5, ahead[name] + 0.25
    head, drawn, first, *others = glance(ahead, "day", [0.1, 0.9], [0.1, 0.9])
    assert head.split() == ["a", "u", "v", "w"]
    assert drawn.split() == ["▁▂▃▄▅▅▆▇█"] * 3
    cells = ["2026-01-01", "0.00 (-0.50 to 0.25)", "1,234.57 (1,234.07 to 1,234.82)"]
    assert re.split("  +", first)[:3] == cells
    assert len(others) == 8
    assert others[-2] == "in brackets the 80 % band"
    assert others[-1] == "2 more steps, 1 more column, 1 more series: --output FILE.csv"


def test_blocks_of_a_constant_and_of_a_long_line():
    assert blocks(np.ones(3)) == "▁▁▁"
    assert blocks(np.arange(720)).startswith("▁▁▁▂")
    assert len(blocks(np.arange(720))) == 36


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.png", "a.svg"])
def test_a_file_is_written_or_what_prevents_it_is_told(name, tmp_path):
    make, made = (draw, Figure()) if "g" in name else (write, pd.DataFrame({"a": [1]}))
    make(made, tmp_path / name)
    assert (tmp_path / name).stat().st_size
    with pytest.raises(StorageError, match=f"where/{name} could not be written"):
        make(made, tmp_path / "no" / "where" / name)
    with pytest.raises(UsageError, match=r"FILE.png or FILE.svg, got a.jpg"):
        draw(None, Path("a.jpg"))
