"""The documents agree with the finished measurements."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.attention import ATTENTIONS, CONTROLS
from forecaster.base.installation import configs
from forecaster.cli.attentions import GROUPS
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


def test_a_grid_is_kept(render, tmp_path, monkeypatch):
    results, cells = tmp_path / "benchmarks" / "results", tmp_path / "toy" / "cells"
    results.mkdir(parents=True)
    about = dict.fromkeys(("config_digest", "data_digest", "command", "hardware", "commit"), "x")
    for attn, error in (("full", 0.25), ("none", 0.5), ("prob", 0.25)):
        for seed in (0, 1):
            errors = [error + seed / 100] * 50
            facts = about | {"attn": attn, "seed": seed, "best_step": 3, "validation_mse": 0.5}
            finished(cells, errors, **facts, is_full=attn == "prob").note()
    module = script("compare", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["compare.py", str(tmp_path / "toy"), f"--output={results}"])
    module.main()
    kept = sorted(results.iterdir())
    assert (len(kept), kept[-1].name) == (7, "comparison-toy.json")
    assert all(file.stat().st_size < 8000 for file in kept)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    render.write_csv(tmp_path / "data")
    seeds = pd.read_csv(tmp_path / "data" / "compare.csv").set_index(["attn", "seed"])
    assert seeds.mse["full", 1] == 0.26
    rows = pd.read_csv(tmp_path / "data" / "comparison.csv").set_index("attn")
    assert rows.mse.to_dict() == pytest.approx({"full": 0.255, "none": 0.505, "prob": 0.255})
    assert rows["against.none.verdict"].dropna().to_dict() == {"full": "better"}
    assert rows["against.full.low"]["none"] == pytest.approx(0.25)
    assert rows.is_full.to_dict() == {"full": False, "none": False, "prob": True}


def test_every_regime_has_a_grid_and_a_picture(render):
    kept = {row["grid"].partition(".")[0] for row in render.results("comparison")}
    for name in render.study.REGIMES:
        assert (configs() / "grids" / f"{name}.yaml").is_file()
        assert (name in kept) == (DOCS / "pictures" / f"study-{name}.png").is_file()


def test_types_are_compared_over_the_sets_that_all_have(render, monkeypatch):
    def table(full, **others):
        return [
            {"attn": name, "mse": mse}
            for name, mse in {"none": 2.0, "full": full, **others}.items()
        ]

    tables = {(str(full), 24, "cross", True): table(full) for full in (1.6, 1.8, 2.025)}
    tables["x", 24, "cross", True] = table(1.8, prob=1.0)
    monkeypatch.setattr(render.study, "_judged", lambda documents, regime: tables)
    lines = render.study.over_sets([]).splitlines()
    assert lines[0].endswith("| cross |")
    # ln(9/8) in the first and third: a deviation of ln(9/8) * sqrt(2/3); t of 3 is 3.182
    assert lines[2:] == ["| full | -10.0 % [-22.8, +4.9] |"]


def test_the_groups_of_attentions_are_those_of_the_tables(render):
    types = set(ATTENTIONS) - set(CONTROLS)
    everyday = types & render.study.unbeaten(render.results("comparison"))
    rest = types - everyday
    quick = {name for name in rest if not ATTENTIONS[name].about.cost.startswith("L·S")}
    found = {group: set(names) - set(CONTROLS) for group, names in GROUPS.items()}
    assert found == {"everyday": everyday, "for long sequences": quick, "for study": rest - quick}


def test_a_method_is_measured_once_over_the_change_of_each_series(tmp_path, monkeypatch):
    """benchmarks/suite.py, without the packages that it compares with."""
    module = script("suite", monkeypatch)
    days = pd.date_range("2026-01-01", periods=12, freq="D")
    sizes = {"a": 1.0, "b": 10.0}
    parts = [
        pd.DataFrame({"unique_id": name, "ds": days, "y": size * np.arange(12.0)})
        for name, size in sizes.items()
    ]
    task = module.Task(pd.concat(parts, ignore_index=True), "D", (2,), 2, (2, 4))

    def early(asked):
        """Each value a step too early, with a band that just holds it."""
        ahead = pd.concat([asked.after(origin) for origin in asked.origins])
        ahead["forecast"] = ahead["y"] - ahead["unique_id"].map(sizes)
        for level in module.LEVELS:
            ahead[level] = ahead["y"] if level == 0.9 else ahead["forecast"]
        return ahead.drop(columns="y")

    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "TASKS", {"made up": lambda: task})
    monkeypatch.setattr(module, "METHODS", {"early": early})
    assert len([*module.measure(["made up"], ["early"])]) == 1
    assert [*module.measure(["made up"], ["early"])] == []
    row = json.loads((tmp_path / "suite-made_up-early.json").read_text())
    assert (row["mase"], row["coverage"], row["share"], row["series"]) == (0.5, 1.0, 1.0, 2)


def test_each_attention_has_its_words_and_its_picture(tmp_path, monkeypatch):
    pictures = script("pictures", monkeypatch)
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pictures.py", "prob"])
    pictures.main()
    assert (tmp_path / "prob.png").read_bytes().startswith(b"\x89PNG")
    text = (DOCS / "attentions.md").read_text()
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(ATTENTIONS)
    for name in bench.choose("all"):
        assert f"](pictures/{name}.png)" in sections[name]
        assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 40_000


def test_every_result_can_be_made_again():
    for file in (BENCHMARKS / "results").glob("*.json"):
        row = json.loads(file.read_text())
        for key in ("kind", "command", "hardware", "commit"):
            assert row[key], f"{file.name} lacks {key}"
        assert "dirty" not in row["commit"], f"{file.name} was measured on uncommitted code"


class TestIntervals:
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
