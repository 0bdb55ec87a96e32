"""The documents agree with the finished measurements."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.attention import ATTENTIONS
from forecaster.base.installation import configs
from forecaster.datasets.card import card_names
from forecaster.evaluate import Verdict
from forecaster.evaluate.problem import Problem
from forecaster.study import bench
from tests import small
from tests.study.compare.grids import finished

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


@pytest.fixture
def results(tmp_path: Path, render: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of results of a repository that has none yet."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    return folder


def test_documents_are_as_the_results_say(render: ModuleType) -> None:
    marked = []
    for path in DOCS.glob("*.md"):
        text = path.read_text()
        marked += re.findall(r"^<!-- begin (\w+) -->$", text, re.MULTILINE)
        assert render.render(text) == text, f"{path.name}: run python benchmarks/render.py"
    assert sorted(marked) == sorted(render.TABLES), "each table is in one document"
    for table in [each() for each in render.TABLES.values()]:
        some = len(table.splitlines()) > 2
        assert some or table.endswith("kept here yet."), "a table without rows"


def test_the_package_has_the_evidence_of_the_results(render: ModuleType) -> None:
    kept = render.evidence.FILE.read_text()
    assert kept == render.evidence_text(), "run python benchmarks/render.py"


def test_a_changed_figure_shows(render: ModuleType, results: Path) -> None:
    row = {"kind": "fit", "by_threads": [{"ratio": 1.25}, {"ratio": 1.5}]}
    about = {"command": "c", "hardware": "h", "commit": "abc"}
    (results / "one.json").write_text(json.dumps(row | about))
    before = render.render("<!-- begin performance -->\n<!-- end performance -->")
    for ratio in ("1.250", "1.500"):
        assert (
            f"| `fit()` against a bare training loop | {ratio} times its time | `c`, h, abc |"
            in before
        )
    (results / "one.json").write_text(json.dumps(row | about | {"by_threads": [{"ratio": 1.25}]}))
    assert render.render(before).count("times its time") == 1


def test_every_measurement_is_written_as_data(
    render: ModuleType, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_grid_is_kept(
    render: ModuleType, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    """The table and the pictures of docs/comparison.md, from made-up verdicts."""

    def documents(self) -> list[dict[str, Any]]:
        def row(attn: str, data: str, mse: float, **verdicts: str) -> dict[str, Any]:
            against = {name: {"verdict": verdict} for name, verdict in verdicts.items()}
            return {
                "data": data, "horizon": 16, "regime": "points", "linear": False, "attn": attn,
                "seeds": [0, 1, 2], "mse": mse, "is_full": False, "against": against,
                "best_floor": "cycle mean", "floor_mse": 0.5, "train_seconds": 10 * mse + 1,
                "inference_ms": 1.5, "peak_mib": None, "tokens": int(data.partition("-")[2] or 9),
            }  # fmt: skip

        wins, loses, ties = Verdict.BETTER, Verdict.WORSE, Verdict.SAME
        return [
            {"grid": "recall", "rows": [
                row("full", "recall-256", 0.125, none=wins, static=wins),
                row("aft-simple", "recall-256", 0.25, none=wins, static=ties),
                row("static", "recall-256", 0.5, none=ties),
                row("none", "recall-256", 0.75, static=ties),
                row("full", "recall-64", 0.0625, none=wins, static=wins),
                row("none", "recall-64", 0.75, static=loses),
            ]},
            {"grid": "known.europe", "rows": [
                row("full", "x", 0.5, none=loses, static=ties),
                {**row("prob", "x", 0.5), "is_full": True},
            ]},
            {"grid": "small", "rows": [row("topk", "ETTh1", 0.5, none=wins)]},
        ]  # fmt: skip

    def test_the_matrix_counts_verdicts(self, render: ModuleType) -> None:
        lines = render.study.matrix(self.documents()).splitlines()
        assert lines[0] == "| attention | recall (2 tables) | known future (1 table) |"
        assert lines[2:] == [
            "| full | **better** 2 (2) of 2 | **worse** 1 of 1 |",
            "| prob |  | (full) |",
            "| aft-simple | **better** 1 (0) of 1 |  |",
            "| static | = of 1 |  |",
        ]

    def test_a_table_of_few_seeds_has_no_verdict(self, render: ModuleType) -> None:
        study, documents = render.study, self.documents()
        for row in documents[0]["rows"]:
            if row["data"] == "recall-64":
                row["seeds"] = [0]
        heads, *_ = study.matrix(documents).splitlines()
        assert heads.startswith("| attention | recall (1 table) |")

    def test_a_row_of_fewer_seeds_joins_a_table_of_more(self, render: ModuleType) -> None:
        study, documents = render.study, self.documents()
        full, none = (
            {**row, "mse": 0.25, "seeds": [0]}
            for row in documents[0]["rows"]
            if row["data"] == "recall-64"
        )
        joined = [{"grid": "recall.more", "rows": [{**full, "attn": "gau"}, none]}, *documents]
        assert study.matrix(joined) == study.matrix(documents)
        names = [text.get_text() for text in study.figure(joined, "recall").axes[0].texts]
        assert {"gau*", "none"} <= set(names)

    def test_the_front_of_a_picture_falls(self, render: ModuleType) -> None:
        drawn = render.study.figure(self.documents(), "recall")
        assert len(drawn.axes) == 3, "a panel for each table, and the error by the length"
        lines = drawn.axes[1].get_lines()
        (front,) = [line for line in lines if line.get_color() == render.study.FRONT]
        assert list(front.get_ydata()) == [0.125], "what costs more and errs more is not on it"
        assert render.study.figure(self.documents(), "usual") is None

    def test_every_regime_has_a_grid_and_a_picture(self, render: ModuleType) -> None:
        kept = {row["grid"].partition(".")[0] for row in render.results("comparison")}
        for name in render.study.REGIMES:
            assert (configs() / "grids" / f"{name}.yaml").is_file()
            assert (name in kept) == (DOCS / "pictures" / f"study-{name}.png").is_file()


def served(**changes: object) -> dict[str, object]:
    """A row in the form that benchmarks/training.py keeps."""
    floor = {"mse": 0.5, "mae": 0.25, "paired_low": -0.125, "paired_high": -0.0625, "weight": 0.75}
    network = {"mse": 0.75, "mae": 0.5, "weight": 0.25, "adds": None}
    covered = {"coverage": 0.75, "width": 1.0, "interval_score": 2.0}
    return {
        "kind": "served", "command": "forecaster train --seed 0 --json", "config": "ETTh1",
        "data": "ETTh1", "features": "M", "past": 504, "horizon": 96, "attn": "prob", "seed": 0,
        "hardware": "Chip", "commit": "abc", "train_seconds": 9.0, "windows": 99, "mse": 0.4,
        "mae": 0.2, "network": network, "intervals": {"80": covered, "95": covered},
        "floors": {"last value": {**floor, "mse": 0.75, "weight": 0.0}, "ridge, 504": floor},
        **changes,
    }  # fmt: skip


class TestServed:
    """Tables of the served blends, from however many rows there are."""

    def keep(self, folder: Path, **changes: object) -> None:
        name = f"{len(list(folder.iterdir()))}.json"
        (folder / name).write_text(json.dumps(served(**changes)))

    def test_a_mean_waits_for_its_horizons(self, results: Path, render: ModuleType) -> None:
        for horizon in render.HORIZONS:
            assert render.means() == render.NONE
            self.keep(results, horizon=horizon)
        (line,) = render.means().splitlines()[2:]
        assert line.startswith("| ETTh1 | 504 | **0.4000 / 0.2000** | 1 | 0.7500 / 0.5000 |")
        assert line.endswith("| 0.388, LightGTS | +3.1% |"), "a miss is told"

    def test_markets(self, results: Path, render: ModuleType) -> None:
        of = {"config": "epf", "features": "MS", "horizon": 24}
        for market in render.MARKETS[:-1]:
            self.keep(results, data=market, **of)
        assert "**served** | 0.4000 / 0.2000 |" in render.prices()
        assert "0.4000 / 0.2000 | – | – | 0 |" in render.prices(), "no mean of four"
        for seed in (0, 1):
            self.keep(results, data=render.MARKETS[-1], seed=seed, **of)
        assert "0.4000 / 0.2000 | 1 |" in render.prices(), "the seed that all have"
        assert "0.238 / 0.223 |" in render.prices()

    def test_counts(self, results: Path, render: ModuleType) -> None:
        ends = {"paired_low": 0.1, "paired_high": 0.2}
        worse = {"ridge, 504": {"mse": 0.3, "mae": 0.2, "weight": 0.0, **ends}}
        adds = {"mse": 0.1, "paired_low": None, "paired_high": None}
        network = {"mse": 0.75, "mae": 0.5, "weight": 0.25, "adds": adds}
        self.keep(results)
        self.keep(results, horizon=192, floors=worse, network=network)
        one, other = render.counts().splitlines()[2:]
        assert one.endswith("| 2 | 1 | 0 | 1 | ETTh1, ETTh1, T = 192 |")
        assert other.endswith("| 1 | 0 | 1 | 0 | nowhere |"), "too few windows are no measure"

    def test_best_parts(self, results: Path, render: ModuleType) -> None:
        own = {"kind": "best-part", "best": "ridge, 504", "parts": {"ridge, 504": {"mse": 0.3}}}
        self.keep(results, **own, paired_low=0.1, paired_high=0.2)
        self.keep(results, **own, horizon=192, paired_low=None, paired_high=None)
        (count,) = render.counts().splitlines()[2:]
        assert count.endswith(
            "served against its best part | 2 | 0 | 1 | 1 | ETTh1, ETTh1, T = 96 |"
        )


class TestTraining:
    """benchmarks/training.py, with the training itself replaced."""

    @pytest.fixture
    def training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        module = script("training", monkeypatch)
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        return module

    def test_all_cells_name_files_and_cards_that_are_there(self, training: ModuleType) -> None:
        cells = training.everything()
        assert len({cell.file(0) for cell in cells}) == len(cells) == 44
        assert {cell.config for cell in cells} <= {path.stem for path in configs().glob("*.yaml")}
        assert {cell.data for cell in cells} <= set(card_names())

    def test_a_cell_that_fails_is_told_and_one_that_is_there_stays(
        self, training: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = []

        def fail(command: list[str], **how: object) -> subprocess.CompletedProcess[bytes]:
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

    def test_the_last_rule_is_the_one_that_is_served(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    def kept(self, rule: Any, found: list[Any]) -> Any:
        def of(calibration: Any) -> Any:
            found.append((calibration, rule(calibration)))
            return found[-1][1]

        return of


class TestBestPart:
    """benchmarks/best_part.py, on the small data set."""

    @pytest.fixture
    def best_part(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
        module = script("best_part", monkeypatch)
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
        with small.at_home(tmp_path):
            yield module

    def run(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch, *data: str) -> None:
        cells = [module.Cell("small.yaml", "small", horizon) for horizon in (5, 80)]
        monkeypatch.setattr(module, "shipped", lambda: cells)
        monkeypatch.setattr(sys, "argv", ["best_part.py", "--data", *data])
        module.main()

    def test_it_is_measured_on_the_calibrating_half(
        self, best_part: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(SystemExit, match=r"1 cells failed:\n.* T = 80.* no calibrating half"):
            self.run(best_part, monkeypatch, "small")
        (file,) = best_part.RESULTS.iterdir()
        assert file.name.startswith("best-part-small.yaml-small-5-prob-s0")
        row = json.loads(file.read_text())
        assert row["windows"] == (small.VALIDATION - small.TRAIN) // 2 - 5 + 1
        errors = {name: part["mse"] for name, part in row["parts"].items()}
        assert row["best"] == min(errors, key=lambda name: errors[name])
        assert row["paired_low"] < row["mse"] - errors[row["best"]] < row["paired_high"]
        assert sum(part["weight"] for part in row["parts"].values()) == pytest.approx(1)
        assert errors["seasonal naive, 12"] == pytest.approx(self.naive(), rel=1e-4)

    def naive(self) -> float:
        """The mean squared error of the last cycle repeated, on the second half of validation."""
        values = pd.read_csv(Path("data") / "small.csv")[[*small.COLUMNS]].to_numpy()
        values = (values - values[: small.TRAIN].mean(0)) / values[: small.TRAIN].std(0)
        half = (small.TRAIN + small.VALIDATION) // 2
        starts = range(half, small.VALIDATION - 5 + 1)
        off = [values[at : at + 5] - values[at - 12 : at - 7] for at in starts]
        return float(np.square(off).mean())

    def test_the_test_rows_are_not_read(
        self, best_part: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def read(*_: object) -> None:
            raise AssertionError("the test windows were asked for")

        monkeypatch.setattr(Problem, "test", read)
        assert best_part.measure(best_part.Cell("small.yaml", "small", 5), 0)["windows"] == 26

    def test_a_cell_that_is_there_stays_and_an_unknown_card_is_refused(
        self,
        best_part: ModuleType,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(best_part, "measure", lambda cell, seed: {"horizon": cell.horizon})
        self.run(best_part, monkeypatch, "all")
        monkeypatch.setattr(best_part, "measure", None)
        self.run(best_part, monkeypatch, "small")
        with pytest.raises(SystemExit):
            self.run(best_part, monkeypatch, "small", "smell")
        assert "no card smell" in capsys.readouterr().err

    def test_every_card_has_a_cell(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = script("best_part", monkeypatch)
        assert {cell.data for cell in module.shipped()} == set(card_names())
        files = [cell.file(0) for cell in module.shipped()]
        assert len(files) == len(set(files))


class TestBlending:
    """The rules of benchmarks/blending.py."""

    def test_their_weights(self, monkeypatch: pytest.MonkeyPatch) -> None:
        blending = script("blending", monkeypatch)
        errors = torch.diag(torch.tensor([1.0, 1.1, 2.0, 9.0], dtype=torch.float64))
        families = ["ridge", "ridge", "network", "repeats"]
        found = {name: of(errors, families) for name, of in blending.RULES.items()}
        for name, weights in found.items():
            assert (weights >= 0).all(), name
            assert weights.sum() > 0, name
        assert found["the network alone"].tolist() == [0, 0, 1, 0]
        assert found["parts within 1.2 x of the best evenly"].tolist() == [0.5, 0.5, 0, 0]
        even = blending.even(torch.ones(4), families)
        torch.testing.assert_close(even, torch.tensor([1, 1, 2, 2], dtype=torch.float64) / 6)
        strong, weak = found["pull 1 to families evenly"], found["pull 0.1 to families evenly"]
        assert (strong - even).norm() < (weak - even).norm()


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
            assert f"](pictures/{name}.png)" in sections[name]
            assert len(sections[name].split()) > 30
            assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 40_000


def test_every_result_can_be_made_again() -> None:
    for file in (BENCHMARKS / "results").glob("*.json"):
        row = json.loads(file.read_text())
        for key in ("kind", "command", "hardware", "commit"):
            assert row[key], f"{file.name} lacks {key}"
        assert "dirty" not in row["commit"], f"{file.name} was measured on uncommitted code"


def test_the_size_of_a_tree_is_told_by_room(tmp_path: Path) -> None:
    from benchmarks import size

    for name in ("forecaster/parts/a.py", "forecaster/b.py", "tests/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""A docstring."""\n\nx = 1  # why\n')
    assert size.rooms(tmp_path) == {
        "parts": 3, "b": 3, "tests": 3, "service": 0, "benchmarks": 0
    }  # fmt: skip
    assert size.tokens(tmp_path / "forecaster" / "b.py") == len(["x", "=", "1"])
