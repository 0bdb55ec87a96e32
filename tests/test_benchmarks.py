"""The documents agree with the finished measurements."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.attention import ATTENTIONS
from forecaster.base.installation import configs
from forecaster.datasets.card import card_names
from forecaster.study import bench
from tests import small
from tests.study.compare.grids import finished

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
DOCS = BENCHMARKS.parent / "docs"


def script(name, monkeypatch):
    """A file of benchmarks/ as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    specification = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, name, module)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def render(monkeypatch):
    return script("render", monkeypatch)


@pytest.fixture
def pictures(monkeypatch):
    return script("pictures", monkeypatch)


@pytest.fixture
def results(tmp_path, render, monkeypatch):
    """The folder of results of a repository that has none yet."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    return folder


def test_documents_are_as_the_results_say(render):
    marked = []
    for path in [DOCS.parent / "README.md", *DOCS.glob("*.md")]:
        text = path.read_text()
        marked += re.findall(r"^<!-- begin (\w+) -->$", text, re.MULTILINE)
        assert render.render(text) == text, f"{path.name}: run python benchmarks/render.py"
    assert sorted(marked) == sorted(render.TABLES), "each table is in one document"
    for table in [each() for each in render.TABLES.values()]:
        some = len(table.splitlines()) > 2
        assert some or table.endswith("kept here yet."), "a table without rows"


def test_the_package_has_the_evidence_of_the_results(render):
    kept = render.evidence.FILE.read_text()
    assert kept == render.evidence_text(), "run python benchmarks/render.py"


def test_every_measurement_is_written_as_data(render, results, tmp_path, monkeypatch):
    rows = [{"at_once": 1, "cores": 0.5, "all": [1]}, {"at_once": 8, "probes": {"/livez": 2}}]
    for name, row in {
        "one": {"kind": "served", "mse": 1 / 3, "network": {"mse": 0.5, "adds": None}, "sets": []},
        "two": {"kind": "served", "mse": 0.25, "network": {"adds": {"mse": -0.5}}, "sets": ["a"]},
        "six": {"kind": "workers", "command": "a, b", "cores": 2, "rows": rows},
    }.items():
        (results / f"{name}.json").write_text(json.dumps(row))
    monkeypatch.setattr(sys, "argv", ["render.py", "--csv", str(tmp_path / "data")])
    render.main()
    assert (tmp_path / "data" / "served.csv").read_text().splitlines() == [
        "file,kind,mse,network.mse,network.adds,network.adds.mse",
        "one,served,0.3333333333333333,0.5,,",
        "two,served,0.25,,,-0.5",
    ]
    assert (tmp_path / "data" / "workers.csv").read_text().splitlines() == [
        "file,kind,command,cores,at_once,row.cores,probes./livez",
        'six,workers,"a, b",2,1,0.5,',
        'six,workers,"a, b",2,8,,2.0',
    ]


def test_a_grid_is_kept(render, results, tmp_path, monkeypatch):
    cells = tmp_path / "toy" / "cells"
    about = dict.fromkeys(("config_digest", "data_digest", "command", "hardware", "commit"), "x")
    for attn, error in (("full", 0.25), ("none", 0.5), ("prob", 0.25)):
        for seed in (0, 1):
            errors = [error + seed / 100] * 50
            facts = about | {"attn": attn, "seed": seed, "best_step": 3, "validation_mse": 0.5}
            finished(cells, errors, **facts, is_full=attn == "prob").note()
    module = script("compare", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["compare.py", str(tmp_path / "toy"), f"--output={results}"])
    module.main()
    kept = sorted(file.name for file in results.iterdir())
    assert len(kept) == 7
    assert kept[-1] == "comparison-toy.json"
    assert all((results / name).stat().st_size < 8000 for name in kept)
    render.write_csv(tmp_path / "data")
    seeds = pd.read_csv(tmp_path / "data" / "compare.csv").set_index(["attn", "seed"])
    assert seeds.mse["full", 1] == 0.26
    rows = pd.read_csv(tmp_path / "data" / "comparison.csv").set_index("attn")
    assert rows.mse.to_dict() == pytest.approx({"full": 0.255, "none": 0.505, "prob": 0.255})
    assert rows["against.none.verdict"].dropna().to_dict() == {"full": "better"}
    assert rows["against.full.verdict"].dropna().to_dict() == {"none": "worse"}
    assert rows["against.full.low"]["none"] == pytest.approx(0.25)
    assert rows.is_full.to_dict() == {"full": False, "none": False, "prob": True}


class TestStudy:
    """The pictures of docs/comparison.md."""

    def test_the_front_of_a_picture_falls(self, render):
        documents = render.results("comparison")
        for name in render.study.REGIMES:
            for axis in render.study.figure(documents, name).axes:
                for line in axis.get_lines():
                    if line.get_color() == render.study.FRONT:
                        assert (np.diff(line.get_ydata()) < 0).all()
        assert render.study.figure([], "usual") is None

    def test_every_regime_has_a_grid_and_a_picture(self, render):
        kept = {row["grid"].partition(".")[0] for row in render.results("comparison")}
        for name in render.study.REGIMES:
            assert (configs() / "grids" / f"{name}.yaml").is_file()
            assert (name in kept) == (DOCS / "pictures" / f"study-{name}.png").is_file()


class TestTraining:
    """benchmarks/training.py, with the training itself replaced."""

    @pytest.fixture
    def training(self, tmp_path, monkeypatch):
        module = script("training", monkeypatch)
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        return module

    def test_all_cells_name_files_and_cards_that_are_there(self, training):
        cells = training.everything()
        assert len({cell.file(0) for cell in cells}) == len(cells) == 44
        assert {cell.config for cell in cells} <= {path.stem for path in configs().glob("*.yaml")}
        assert {cell.data for cell in cells} <= set(card_names())

    def test_a_cell_that_fails_is_told_and_one_that_is_there_stays(self, training, monkeypatch):
        run = []

        def fail(command, **how):
            run.append(command)
            return subprocess.CompletedProcess(command, 65)

        monkeypatch.setattr(training.subprocess, "run", fail)
        there, missing = training.Cell("ETTh1", "ETTh1", 96), training.Cell("ETTh1", "ETTh1", 192)
        there.file(0).write_text("{}")
        assert training.train(there, 0) == []
        (told,) = training.train(missing, 0)
        assert "--horizon 192 --seed 0" in told
        assert len(run) == 1
        assert not missing.file(0).exists()


class TestIntervals:
    """benchmarks/intervals.py, on the small data set."""

    def test_the_last_rule_is_the_one_that_is_served(self, tmp_path, monkeypatch):
        module, found = script("intervals", monkeypatch), []
        rules = {name: self.kept(rule, found) for name, rule in module.RULES.items()}
        monkeypatch.setattr(module, "RULES", rules)
        with small.at_home(tmp_path):
            row = module.measure("small.yaml", "small", 5)
        own = [intervals.offsets for _, intervals in found]
        np.testing.assert_array_equal(own[-1], found[-1][0].intervals().offsets)
        assert not any(np.allclose(own[-1], other) for other in own[:-1])
        for rule in row["rules"].values():
            assert 0 < rule["80"]["lowest"] <= rule["80"]["coverage"] <= rule["80"]["highest"] <= 1
        assert row["windows"] == small.TEST - small.VALIDATION - 5 + 1

    def kept(self, rule, found):
        def of(calibration):
            found.append((calibration, rule(calibration)))
            return found[-1][1]

        return of


class TestSuite:
    """benchmarks/suite.py, without the packages that it compares with."""

    def test_a_method_is_measured_once_over_the_change_of_each_series(self, tmp_path, monkeypatch):
        module = script("suite", monkeypatch)
        days = pd.date_range("2026-01-01", periods=12, freq="D")
        parts = [
            pd.DataFrame({"unique_id": name, "ds": days, "y": size * np.arange(12.0)})
            for name, size in (("a", 1.0), ("b", 10.0))
        ]
        task = module.Task(pd.concat(parts, ignore_index=True), "D", (2,), 2, (2, 4))
        assert task.before(4)["ds"].max() == days[7]
        assert [*task.after(4)["ds"].unique()] == [*days[8:10]]

        def early(asked):
            """Each value a step too early, with a band that just holds it."""
            ahead = pd.concat([asked.after(origin) for origin in asked.origins])
            size = ahead["unique_id"].map({"a": 1.0, "b": 10.0})
            ahead["forecast"] = ahead["y"] - size
            for level in module.LEVELS:
                ahead[level] = ahead["y"] if level == 0.9 else ahead["forecast"]
            return ahead.drop(columns="y")

        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module, "TASKS", {"made up": lambda: task})
        monkeypatch.setattr(module, "METHODS", {"early": early})
        (said,) = module.measure(["made up"], ["early"])
        assert said.startswith("made up: early: 0.500 in ")
        assert [*module.measure(["made up"], ["early"])] == []
        row = json.loads((tmp_path / "suite-made_up-early.json").read_text())
        assert (row["mase"], row["coverage"], row["share"]) == (0.5, 1.0, 1.0)
        assert row["series"] == 2


class TestPictures:
    @pytest.mark.parametrize("name", bench.choose("all"))
    @pytest.mark.parametrize("causal", [False, True])
    def test_a_pattern_is_what_the_function_does(self, name, causal, pictures):
        weights = pictures.pattern(name, causal)
        assert weights.shape == (48, 48)
        assert weights.isfinite().all()
        assert (weights != 0).any(dim=1).all(), "every step hears something"
        assert bool((weights.triu(1) != 0).any()) is not causal

    def test_they_are_drawn(self, pictures, tmp_path, monkeypatch):
        monkeypatch.setattr(pictures, "PICTURES", tmp_path / "new")
        monkeypatch.setattr(sys, "argv", ["pictures.py", "prob", "full"])
        pictures.main()
        drawn = sorted((tmp_path / "new").iterdir())
        assert [file.name for file in drawn] == ["full.png", "prob.png"]
        for file in drawn:
            assert file.read_bytes().startswith(b"\x89PNG")
            assert file.stat().st_size < 40_000

    def test_the_curves_name_every_line_in_its_family(self, pictures):
        rows = [
            {"attn": name, "length": length, "milliseconds": 1.5, "mib": float(length > 96)}
            for length in (96, 128)
            for name in ("SDPA", *bench.CORES)
        ]
        document = dict.fromkeys(("hardware", "causal", "batch", "heads", "width", "dtype"), 1)
        axes = pictures.curves({**document, "rows": rows}).axes
        for panel, family in zip(axes, pictures.FAMILIES * 2, strict=True):
            named = {text.get_text() for text in panel.get_legend().get_texts()}
            own = {name for name, core in bench.CORES.items() if core.family == family}
            assert named == {"SDPA"} | own
            assert len(panel.lines) == len(bench.CORES) + 1
        assert list(axes[3].lines[0].get_xdata()) == [128], "nothing has no point"

    def test_each_attention_has_its_words_and_its_picture(self):
        text = (DOCS / "attentions.md").read_text()
        sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
        assert set(sections) == set(ATTENTIONS)
        for name in bench.choose("all"):
            assert f"](pictures/{name}.png)" in sections[name]
            assert len(sections[name].split()) > 30
            assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 40_000


def test_every_result_can_be_made_again():
    for file in (BENCHMARKS / "results").glob("*.json"):
        row = json.loads(file.read_text())
        for key in ("kind", "command", "hardware", "commit"):
            assert row[key], f"{file.name} lacks {key}"
        assert "dirty" not in row["commit"], f"{file.name} was measured on uncommitted code"


def test_the_size_of_a_tree_is_told_by_room(tmp_path):
    from benchmarks import size

    for name in ("forecaster/parts/a.py", "forecaster/b.py", "tests/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""A docstring."""\n\nx = 1  # why\n')
    assert size.rooms(tmp_path) == {
        "parts": 3, "b": 3, "tests": 3, "service": 0, "benchmarks": 0
    }  # fmt: skip
    assert size.tokens(tmp_path / "forecaster" / "b.py") == len(["x", "=", "1"])
