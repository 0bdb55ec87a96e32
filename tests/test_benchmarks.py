"""The documents say what the finished measurements say."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from forecaster import bench
from forecaster.attention import ATTENTIONS
from tests.compare.grids import finished

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
DOCS = BENCHMARKS.parent / "docs"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
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
def render(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("render", monkeypatch)


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("pictures", monkeypatch)


def test_documents_are_as_the_results_say(render: ModuleType) -> None:
    for name in render.DOCUMENTS:
        text = (render.ROOT / name).read_text()
        assert "<!-- begin " in text
        assert render.render(text) == text, f"{name}: run python benchmarks/render.py"
    for name, table in render.TABLES.items():
        some = len(table().splitlines()) > 2
        assert some or name in ("curves", "comparison"), "a table without rows"


def test_a_changed_figure_shows(
    render: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    row = {
        "kind": "recipe", "data": "x", "past": 9, "horizon": 3, "variant": "default",
        "validation_mse": 0.5, "validation_mae": 0.25, "best_epoch": 1.5, "parameters": 1234,
    }  # fmt: skip
    (results / "one.json").write_text(json.dumps(row))
    before = render.render("<!-- begin recipe -->\n<!-- end recipe -->")
    assert "| x | 9 | 3 | default | 0.5000 / 0.2500 | 1.50 | 1,234 |" in before
    (results / "one.json").write_text(json.dumps({**row, "validation_mse": 0.75}))
    assert render.render(before) == before.replace("0.5000", "0.7500")


def test_curves_are_shown_as_the_command_prints_them(
    render: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    assert render.curves() == "No machine's figures are kept here yet."
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    row = {"attn": "full", "length": 96, "milliseconds": 1.25, "mib": 3, "dominated_by": []}
    document = {
        "kind": "curves", "hardware": "Chip", "batch": 1, "heads": 8, "width": 64,
        "causal": False, "dtype": "float32", "rows": [row],
    }  # fmt: skip
    (results / "curves-2-threads.json").write_text(json.dumps(document))
    shown = render.curves()
    assert shown.startswith("![](pictures/curves-2-threads.png)\n\n```text\nforward and backward")
    assert "1.25" in shown


def test_a_grid_is_kept_and_shown(
    render: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    assert render.comparison() == "No grid's figures are kept here yet."
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
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
    shown = render.comparison()
    assert "few: 9 tokens, without the linear path.** 6 steps, 50 test windows, seeds 0, 1" in shown
    rows = {line.split()[1]: line for line in shown.splitlines() if line.startswith("| ")}
    assert "| 0.2550 ± 0.0071 / 0.5000 ± 0.0000 | 1,000 | 2 s | 100 | 1.2 ms | 3 |" in rows["full"]
    assert "+49.0% | **better** [-0.2500, -0.2500] | – |" in rows["full"]
    assert rows["none"].endswith("| – | **worse** [+0.2500, +0.2500] |")
    assert rows["prob"].startswith("| prob (full) |")
    assert rows["prob"].endswith("| – | – |")


class TestShapes:
    """benchmarks/attention.py, with the measurement itself replaced."""

    @pytest.fixture
    def kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        def measure(names, shape, how, report=None, timed=True, skip=()):  # type: ignore[no-untyped-def]
            figures = {"mib": 1.0, "memory": 1.5} | ({"milliseconds": 2.0} if timed else {})
            return [{"attn": name, "length": shape.length, **figures} for name in ("SDPA", *names)]

        module = script("attention", monkeypatch)
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module.bench, "measure", measure)
        monkeypatch.setattr(module.bench.cells, "measure", measure)
        self.main = module.main
        return tmp_path

    def test_rows(self, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["attention.py", "--threads", "3", "--attn", "full,mean"])
        self.main()
        document = json.loads((kept / "attention-3-threads.json").read_text())
        assert document["command"] == "python attention.py --threads 3 --attn full,mean"
        assert "3 threads" in document["hardware"]
        rows = {(row["attn"], row["shape"], row["causal"]): row for row in document["rows"]}
        assert len(rows) == 24, "two types, six shapes, causal and not"
        assert rows["full", "L=8192", True]["sdpa_milliseconds"] == 2
        assert "milliseconds" not in rows["mean", "L=16384", False]

    def test_curves(self, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        arguments = ["--curves", "--threads", "1", "--attn", "full"]
        monkeypatch.setattr(sys, "argv", ["attention.py", *arguments])
        self.main()
        for name, causal in (("curves-1-threads", False), ("curves-1-threads-causal", True)):
            document = json.loads((kept / f"{name}.json").read_text())
            assert document["causal"] is causal
            assert {row["length"] for row in document["rows"]} >= {96, 128, 8192, 16384}


class TestPictures:
    @pytest.mark.parametrize("name", bench.choose("all"))
    @pytest.mark.parametrize("causal", [False, True])
    def test_a_pattern_is_what_the_function_does(
        self, name: str, causal: bool, pictures: ModuleType
    ) -> None:
        weights = pictures.pattern(name, causal)
        assert weights.shape == (48, 48)
        assert weights.isfinite().all()
        assert (weights != 0).any(dim=1).all(), "every step hears something"
        assert bool((weights.triu(1) != 0).any()) is not causal

    def test_full_attention_is_softmax(self, pictures: ModuleType) -> None:
        _, tensors = pictures.call("full")
        q, k = tensors["q"][0, 0], tensors["k"][0, 0]
        expected = (q @ k.T / 4).softmax(dim=1) * 16  # the features of v are summed
        torch.testing.assert_close(pictures.pattern("full", False), expected)

    def test_the_lazy_rows_of_prob_are_means(self, pictures: ModuleType) -> None:
        weights = pictures.pattern("prob", False) / 16
        lazy = (weights - 1 / 48).abs().amax(dim=1) < 1e-12
        assert int(lazy.sum()) == 48 - 8

    def test_they_are_drawn(
        self, pictures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pictures, "PICTURES", tmp_path / "new")
        monkeypatch.setattr(sys, "argv", ["pictures.py", "prob", "full"])
        pictures.main()
        drawn = sorted((tmp_path / "new").iterdir())
        assert [file.name for file in drawn] == ["full.png", "prob.png"]
        for file in drawn:
            assert file.read_bytes().startswith(b"\x89PNG")
            assert file.stat().st_size < 40_000

    def test_each_attention_has_its_words_and_its_picture(self) -> None:
        text = (DOCS / "attentions.md").read_text()
        sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
        assert set(sections) == set(ATTENTIONS)
        for name in bench.choose("all"):
            assert f"![](pictures/{name}.png)" in sections[name]
            assert len(sections[name].split()) > 30
            assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 40_000


def test_every_result_can_be_made_again() -> None:
    for file in (BENCHMARKS / "results").glob("*.json"):
        row = json.loads(file.read_text())
        for key in ("kind", "command", "hardware", "commit"):
            assert row[key], f"{file.name} lacks {key}"
        assert "dirty" not in row["commit"], f"{file.name} was measured on uncommitted code"
