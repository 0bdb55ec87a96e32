from pathlib import Path

import pandas as pd
import pytest

from forecaster.base.errors import StorageError, UsageError
from forecaster.cli.output import draw, print_json, print_pages, say, write


def test_results_go_to_stdout_and_all_else_to_stderr(capsys):
    print_json({"a": [1]})
    say("wait")
    assert capsys.readouterr() == ('{\n "a": [\n  1\n ]\n}\n', "wait\n")


def test_what_to_type_and_what_to_open_then(capsys):
    print_pages("runs", "mlflow ui\nhttp://127.0.0.1:5000/")
    print_pages("runs", "https://host/#/experiments")
    print_pages("runs", "")
    assert capsys.readouterr().out.splitlines() == [
        "runs     mlflow ui",
        "open     http://127.0.0.1:5000/",
        "runs     https://host/#/experiments",
    ]


def test_what_json_does_not_know_is_never_printed():
    with pytest.raises(ValueError, match="nan"):
        print_json(float("nan"))


@pytest.mark.parametrize("name", ["no/where/a.csv", "no/where/a.parquet"])
def test_a_table_that_cannot_be_written(name, tmp_path):
    with pytest.raises(StorageError, match=f"{name} could not be written"):
        write(pd.DataFrame({"a": [1]}), tmp_path / name)


class TestDraw:
    def test_a_picture_has_one_of_two_endings(self):
        with pytest.raises(UsageError, match=r"ending in .png or .svg, got a.jpg"):
            draw(None, Path("a.jpg"))

    def test_it_cannot_be_written(self, tmp_path):
        class Figure:
            def savefig(self, file):
                file.write_bytes(b"")

        draw(Figure(), tmp_path / "a.svg")
        assert (tmp_path / "a.svg").exists()
        with pytest.raises(StorageError, match=r"a.png could not be written"):
            draw(Figure(), tmp_path / "no" / "a.png")
