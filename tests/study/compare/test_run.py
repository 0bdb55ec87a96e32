import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from filelock import FileLock

from forecaster import cli
from forecaster.base.errors import UsageError
from forecaster.base.workers import FailedError
from forecaster.study import compare
from forecaster.tracking import texts
from forecaster.tracking.store import MlflowClient  # which silences MLflow first
from tests.study.compare.grids import small_grid, values

CELLS = 13  # full and the controls; few with and without linear path, many without; the path
FEW = 5


@pytest.fixture
def apart(home, tmp_path, monkeypatch):
    """A separate folder, with the configuration of the grids."""
    (tmp_path / "small.yaml").write_text((home / "small.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(apart, monkeypatch):
    """A separate folder, and cells that run in this process."""

    def each(work, shared, items, processes):
        for item in items:
            try:
                yield item, work(shared, item)
            except Exception as error:
                yield item, FailedError(f"raised {type(error).__name__}: {error}")

    monkeypatch.setattr(compare, "each", each)
    return apart


def run(grid, *, jobs=1, tracked=False, **options):
    said = []
    outcome = compare.run(grid, said.append, jobs=jobs, tracked=tracked, command="it", **options)
    return outcome, "\n".join(said)


def few_of(grid, every=3):
    """The grid with every third cell, for what starts processes; or with its first alone."""
    return replace(grid, cells=grid.cells[::every])


def stamps(outcome):
    return {cell.folder.name: cell.facts.seconds for cell in outcome.cells}


def test_a_grid_and_again(here, capsys):
    outcome, said = run(small_grid())
    first, estimate = said.splitlines()
    assert first == f"grid toy in runs/grids/toy: {CELLS} cells, 0 of them finished; 1 at a time"
    assert re.fullmatch(r"about [1-9]\d* s for 13 cells, by a few steps of three", estimate)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == CELLS
    assert lines[0].startswith("1/13 full-5-few-linear-s0: MSE 0.")
    assert lines[0].endswith(" s")
    assert len(outcome.to_dict()["rows"]) == len(outcome.cells) == CELLS
    assert outcome.failed == {}
    document = json.loads((outcome.folder / "grid.json").read_text())
    assert document["protocol"]["steps"] == 6
    assert document["resolved"]["small-5-few-linear"]["model"]["linear"] is True
    kept = {cell.folder: cell.facts for cell in compare.finished(outcome.folder)}
    assert kept == {cell.folder: cell.facts for cell in outcome.cells}

    missing = outcome.cells[4].folder
    shutil.rmtree(missing)
    again, said = run(small_grid())
    assert f"{CELLS - 1} of them finished" in said
    before, after = stamps(outcome), stamps(again)
    assert {name for name in before if before[name] != after[name]} == {missing.name}


def test_it_ends_in_time_and_goes_on_later(here):
    outcome, said = run(small_grid(), time_limit=1e-9)
    assert (len(outcome.cells), said.splitlines()[-1]) == (
        1, "the time is over; the same command continues with the other cells",
    )  # fmt: skip
    assert len(run(small_grid())[0].cells) == CELLS


def test_another_grid_of_that_name_is_refused_with_the_difference(here):
    def first_of(**changes):
        return few_of(small_grid(**changes), CELLS)

    run(first_of())
    with pytest.raises(UsageError, match=r"protocol\.steps: 6 there, 7 here[^§]* --name"):
        run(first_of(**{"protocol.steps": 7}))
    text = Path("small.yaml").read_text()
    Path("small.yaml").write_text(text.replace("epochs: 2", "epochs: 2\n  clip: 1.0"))
    with pytest.raises(UsageError, match=r"resolved\.small-5-few-linear\.train\.clip: None there"):
        run(first_of())


def test_a_failing_cell_stops_no_other(here, capsys):
    grid, name = small_grid(), "full-5-many-plain-s0"
    outcome, _ = run(
        replace(grid, cells=[replace(c, steps=1) if c.name == name else c for c in grid.cells])
    )
    assert len(outcome.cells) == CELLS - 1
    assert list(outcome.failed) == [name]
    said = f"{name}: FAILED: raised UsageError: 1 steps end before"
    assert said in capsys.readouterr().err
    assert len(run(grid)[0].cells) == CELLS


def test_a_cell_of_other_data_or_configuration_is_refused(here):
    grid = few_of(small_grid(), CELLS)
    (cell,) = run(grid)[0].cells
    for key in ("config_digest", "data_digest"):
        digest = getattr(cell.facts, key)
        cell.note(**{key: "sha256:0"})
        with pytest.raises(UsageError, match=rf"{key} is sha256:0, not sha256:.* Remove it"):
            run(grid)
        cell.note(**{key: digest})


def test_one_process_at_a_time(here):
    Path("runs/grids/toy").mkdir(parents=True)
    with (
        FileLock("runs/grids/toy/.lock"),
        pytest.raises(UsageError, match="another process is using runs/grids/toy"),
    ):
        run(small_grid())


class TestTracking:
    @pytest.fixture
    def runs(self, here, monkeypatch):
        uri = f"sqlite:///{here}/mlflow.db"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)

        def find():
            found = MlflowClient(uri).search_runs(["1"], max_results=100)
            return {run.info.run_name: run for run in found}

        return find

    def test_a_run_with_a_child_for_each_cell(self, runs):
        outcome, _ = run(small_grid(), tracked=True)
        found = runs()
        parent = found.pop("toy")
        varied = {"model.linear", "model.tokens", "model.channels", "model.feed_forward"}
        shown = {*texts.PARAMS, *varied, "regime", "steps"}
        assert set(found) == {f"toy-{cell.folder.name}" for cell in outcome.cells}
        assert {run.info.status for run in [parent, *found.values()]} == {"FINISHED"}
        text = parent.data.tags["mlflow.note.content"]
        for row in compare.table.rows(outcome.cells):
            assert f"| {row.attn}&emsp; | {row['mse']:.4f}" in text
        assert "verdicts.json" in parent.data.tags["mlflow.loggedArtifacts"]
        for cell in outcome.cells:
            child, facts = found[f"toy-{cell.folder.name}"], cell.facts
            assert child.data.tags["forecaster.run"] == facts.mlflow_run_id
            assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
            for name in ("test_mse", "network_test_mse"):
                assert child.data.metrics[name] == pytest.approx(facts["mse"], rel=1e-5)
            assert next(iter(child.data.metrics)) == "network_test_mse"
            assert child.data.params.keys() <= shown
            wanted = {"model.linear": str(facts.linear), "regime": facts.regime, "blend": "none"}
            assert wanted.items() <= child.data.params.items()
            tags = {tag: str(getattr(facts, key)) for key, tag in compare.TAGS.items()}
            assert {**tags, "grid": "toy"}.items() <= child.data.tags.items()
            assert {"attn", "attn.effective", "data.digest", "git.commit"} < tags.keys()
        assert outcome.ui_command.startswith("mlflow ui")

    def test_what_was_not_tracked_is_caught_up_with(self, runs):
        """First without a tracker, then with one and failing cells, then with all cells."""
        grid, first = small_grid(), {}
        for count, tracked in ((2, False), (4, True), (CELLS, True)):
            cells = [c if i < count else replace(c, steps=1) for i, c in enumerate(grid.cells)]
            run(replace(grid, cells=cells), tracked=tracked)
            if tracked:
                found = runs()
                first = first or found
                assert len(found) == 1 + count
        assert found["toy"].info.run_id == first["toy"].info.run_id, "the same run goes on"


class TestCommand:
    def call(self, monkeypatch, *arguments):
        monkeypatch.setattr(sys, "argv", ["forecaster", "compare", "--no-track", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code

    @pytest.fixture(autouse=True)
    def file(self, here):
        import yaml

        (here / "toy.yaml").write_text(yaml.safe_dump(values()))

    def test_a_changed_grid_as_tables_and_again_as_json(self, monkeypatch, capsys):
        arguments = ("--grid", "toy.yaml", "--horizon", "7", "--set", "train.lr=0.02")
        assert self.call(monkeypatch, *arguments, "--jobs", "1") == 0
        shown = capsys.readouterr().out
        assert shown.count("T = 7, few (9 tokens)") == 2
        assert "grid     runs/grids/small-7" in shown
        assert self.call(monkeypatch, *arguments, "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert document["folder"] == "runs/grids/small-7"
        for cell in document["cells"]:
            assert (cell["horizon"], cell["config"]["train"]["lr"]) == (7, 0.02)
        assert "--horizon 7" in document["cells"][0]["command"]

    def test_failed_cells_are_listed(self, monkeypatch, capsys):
        arguments = ("--grid", "toy.yaml", "--steps", "1", "--name", "short")
        assert self.call(monkeypatch, *arguments) == 70
        said = capsys.readouterr().err
        assert f"{CELLS} of {CELLS} cells failed" in said
        assert "  none-5-many-plain-s0: raised UsageError: 1 steps end before" in said


def assert_same(cells, others):
    assert len(cells) == len(others) == FEW
    for first, second in zip(cells, others, strict=True):
        assert first.folder.name == second.folder.name
        np.testing.assert_array_equal(first.by_window(), second.by_window())
        for key in ("mse", "mae", "validation_mse", "best_step", "by_step", "floors"):
            assert first.facts[key] == second.facts[key]
        assert {f.name for f in first.folder.iterdir()} == {f.name for f in second.folder.iterdir()}


@pytest.mark.long
def test_cells_of_ray_are_those_of_one_process(apart, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[2]))
    one, _ = run(few_of(small_grid("one")))
    two, _ = run(few_of(small_grid("two")), jobs=2, ray="local")
    assert two.failed == {}
    assert_same(one.cells, two.cells)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGINT]
)
def test_two_processes_that_are_stopped_and_go_on_end_with_the_cells_of_one(home, here, number):
    """A stop in the middle leaves no half-finished cell; finished ones are not run again."""
    code = (
        "import signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it\n"
        "from pathlib import Path\n"
        "from forecaster.base import installation\n"
        "from forecaster.study import compare\n"
        "from tests.study.compare.test_run import few_of, run, small_grid\n"
        "if __name__ == '__main__':\n"
        "    installation.cards = lambda: Path(sys.argv[2])\n"
        "    run(few_of(small_grid()), jobs=2)\n"
    )
    Path("go.py").write_text(code)
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen([sys.executable, "go.py", root, home / "cards"])
    cells = Path("runs/grids/toy/cells")
    while not list(cells.glob("[!.]*")):
        assert process.poll() is None
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    process.wait()
    psutil.wait_procs(workers, timeout=60)  # a worker finishes its cell, and then ends
    before = {cell.folder.name: cell.facts.seconds for cell in compare.finished(cells.parent)}
    assert 1 <= len(before) < FEW
    outcome, said = run(few_of(small_grid()))
    assert f"{len(before)} of them finished" in said
    after = stamps(outcome)
    assert before.items() <= after.items()
    assert_same(run(few_of(small_grid("one")))[0].cells, outcome.cells)
