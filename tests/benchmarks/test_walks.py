"""The walks of the code: what is on them, and that they do not grow."""

import pytest

from benchmarks import walks
from tests.test_house import WALKS

FILES = {
    "rows": "from typing import NamedTuple\nclass Row(NamedTuple):\n    value: int\nread = Row",
    "base": "def tidy(row): return row",
    "numbers": "def double(value): return 2 * value",
    "table": '"""A table.\n\nAnd more."""\ndef first(rows): return rows["all"][0]',
    "sums": "def total(*rows): return sum(row.value for row in rows)",
    "run": "def start(row):\n    return double(total(tidy(row), first({'all': [row]})))",
}


def test_a_walk_has_the_files_that_records_enter_or_leave(tmp_path):
    (tmp_path / "forecaster").mkdir()
    variables = {}
    for name, text in FILES.items():
        file = tmp_path / "forecaster" / f"{name}.py"
        file.write_text(text)
        variables["__name__"] = f"forecaster.{name}"
        exec(compile(text, file, "exec"), variables)
    trace = walks.Trace(tmp_path)
    with trace.on():
        assert variables["start"](variables["read"](1)) == 4
    walk = trace.walk
    assert walk.files == [f"forecaster/{name}.py" for name in ("run", "table", "sums")]
    assert walk.types == ["forecaster.rows.Row"]
    drawing = [line.split() for line in walks.drawing(tmp_path, walk).splitlines()]
    assert drawing == [
        ["run.py", "Row", "->"],
        ["table.py", "->", "Row", "A", "table."],
        ["sums.py", "Row", "->"],
    ]


@pytest.mark.slow
def test_the_walks_are_drawn_and_do_not_grow():
    both = walks.walks(walks.ROOT)
    counts = {name: (len(walk.files), len(walk.types)) for name, walk in both.items()}
    assert counts == {name: tuple(map(min, counts[name], most)) for name, most in WALKS.items()}
    document = walks.DOCUMENT.read_text()
    assert walks.drawn(document, both) == document, "run python -m benchmarks.walks --draw"
