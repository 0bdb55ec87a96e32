import json
import os
from pathlib import Path
from typing import Any

import pytest

from forecaster.base import installation
from forecaster.base.errors import DataError, StorageError, UnavailableError, UsageError
from forecaster.base.machine import hardware, processor
from forecaster.study.advise.budget import advise, read_memory

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"

AT_100 = {  # milliseconds and MiB
    "SDPA": (0.1, 0.1), "mean": (0.1, 0.1), "full": (40.0, 10.0), "prob": (10.0, 20.0),
    "lsh": (20.0, 30.0), "single": (9.5, 25.0), "gau": (100.0, 4.0),
}  # fmt: skip


def document(lengths: dict[int, dict[str, tuple[float, float]]], **changes: Any) -> dict[str, Any]:
    rows = [
        {"attn": attn, "length": length, "milliseconds": ms, "mib": mib}
        for length, figures in lengths.items()
        for attn, (ms, mib) in figures.items()
    ]
    return {
        "kind": "curves", "hardware": hardware("cpu", 1), "processor": processor(),
        "causal": False, "batch": 1, "heads": 8, "width": 64, "dtype": "float32", "device": "cpu",
        "rows": rows, "command": "forecaster bench attention",
    } | changes  # fmt: skip


@pytest.fixture
def curves(tmp_path: Path):
    """Write a document to a file."""

    def write(lengths: Any = None, name: str = "curves.json", **changes: Any) -> Path:
        file = tmp_path / name
        file.write_text(json.dumps(document(lengths or {100: AT_100}, **changes)))
        return file

    return write


def names(candidates: Any) -> list[str]:
    return [candidate.attn for candidate in candidates]


def test_the_fastest_that_nothing_dominates(curves: Any) -> None:
    advice = advise(100, curves=curves())
    assert advice.choice == "prob", "single is not faster by a tenth, and prob is lighter"
    assert names(advice.candidates) == ["prob", "single", "full", "gau", "lsh"], "lsh is dominated"
    assert advice.candidates[-1].dominated_by == ["prob", "single"]
    assert "SDPA" not in advice.text()
    assert "mean" not in names(advice.candidates), "a control is no choice"
    assert advice.length == 100
    assert "prob (10 ms, 20 MiB): the lightest of those within 10% of the fast" in advice.reason()


@pytest.mark.parametrize(
    ("ms", "mib", "choice"),
    [
        (9.9, None, "single"),
        (None, 19.0, "full"),
        (None, 5.0, "gau"),
        (50.0, 10.0, "full"),
        (9.0, None, None),
        (50.0, 5.0, None),
        (25.0, 1000.0, "prob"),
    ],
)
def test_budgets(curves: Any, ms: float | None, mib: float | None, choice: str | None) -> None:
    advice = advise(100, ms, mib, curves=curves())
    assert advice.choice == choice
    for candidate in advice.candidates:
        assert ("time" in candidate.over) == (ms is not None and candidate.milliseconds > ms)
        assert ("memory" in candidate.over) == (mib is not None and (candidate.mib or 0) > mib)


def test_never_a_dominated_one_whatever_the_budget(curves: Any) -> None:
    file = curves()
    for ms in range(1, 120, 3):
        for mib in range(1, 40, 3):
            advice = advise(100, ms, mib, curves=file)
            chosen = [c for c in advice.candidates if c.attn == advice.choice]
            assert all(c.eligible and not c.dominated_by for c in chosen)


def test_between_lengths_the_next_one_counts(curves: Any) -> None:
    advice = advise(200, 25.0, curves=curves({100: AT_100, 400: AT_100, 1600: {}}))
    assert (advice.choice, advice.length) == ("prob", 400)
    assert "\nat 400 tokens, the next length that was measured\n" in advice.text()
    assert advise(400, curves=curves({100: AT_100, 400: AT_100})).length == 400


@pytest.mark.parametrize("length", [99, 401])
def test_nothing_is_said_beyond_what_was_measured(curves: Any, length: int) -> None:
    file = curves({100: AT_100, 400: AT_100})
    with pytest.raises(
        UnavailableError,
        match=rf"covers lengths from 100 to 400, not {length}.*`forecaster bench attention "
        rf"--length 96:{length}`",
    ):
        advise(length, curves=file)


def test_a_type_that_was_given_up_is_named_with_its_reason(curves: Any) -> None:
    file = curves({100: AT_100, 400: AT_100})
    content = json.loads(file.read_text())
    rows = [r for r in content["rows"] if (r["attn"], r["length"]) != ("prob", 400)]
    rows.append({"attn": "prob", "length": 400, "skipped": "took longer than 20 s"})
    file.write_text(json.dumps(content | {"rows": rows}))
    advice = advise(200, curves=file)
    assert advice.choice == "single"
    assert advice.not_measured == {"prob": "took longer than 20 s"}
    assert "not measured: prob: took longer than 20 s" in advice.text()
    assert advise(100, curves=file).choice == "prob", "there it has a figure"


def test_unknown_memory_fits_no_budget_of_memory(curves: Any) -> None:
    file = curves()
    content = json.loads(file.read_text())
    for row in content["rows"]:
        del row["mib"]
    file.write_text(json.dumps(content))
    advice = advise(100, curves=file)
    assert advice.choice == "single"
    assert "single (9.5 ms, unknown MiB)" in advice.reason()
    assert advise(100, memory_mib=1e6, curves=file).choice is None


def test_the_text(curves: Any) -> None:
    file = curves()
    lines = advise(100, 45.0, 22.0, curves=file).text().splitlines()
    assert lines == [
        "attention over 100 tokens: forward and backward, batch 1, 8 heads of 64, float32",
        f"measured on {hardware('cpu', 1)}: {file}",
        "budget: 45 ms and 22 MiB",
        "",
        "                         ms      MiB",
        "take prob                10       20",
        "or   full                40       10",
        "     single             9.5       25  over the budget in memory",
        "     lsh                 20       30  over the budget in memory; dominated by prob, "
        "single",
        "     gau                100        4  over the budget in time",
        "",
        "prob (10 ms, 20 MiB): the lightest of those within 10% of the fastest, of the 2 within "
        "the budget that no type beats in time and memory both.",
        "Speed says nothing about accuracy: `forecaster compare --attn prob,full` measures what a "
        "forecast gains from each.",
    ]


def test_when_nothing_fits_the_nearest_are_named(curves: Any) -> None:
    reason = advise(100, 1.0, curves=curves()).reason()
    assert "the fastest is single (9.5 ms, 25 MiB), the lightest gau (100 ms, 4 MiB)" in reason
    assert "model.tokens=cycle or patch" in reason


def test_it_is_plain_json(curves: Any) -> None:
    advice = advise(100, 45.0, curves=curves()).to_dict()
    assert json.loads(json.dumps(advice, allow_nan=False)) == advice
    assert advice["choice"] == "prob"
    assert advice["candidates"][0]["attn"] == "prob"
    assert advice["same_machine"] is True


def test_another_machine_is_said(curves: Any) -> None:
    advice = advise(100, curves=curves(processor="Abacus 9", hardware="Abacus 9, torch 2"))
    assert advice.same_machine is False
    assert "measured on Abacus 9, torch 2: " in advice.text()
    assert "which is not this machine: measure here" in advice.text()


def test_a_gpu_that_is_not_here_is_another_machine(
    curves: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert advise(100, curves=curves(device="cuda")).same_machine is False


def test_curves_that_do_not_name_their_processor() -> None:
    """Older documents have only a sentence, which does not identify the machine."""
    advice = advise(100, curves=RESULTS / "curves-1-threads.json")
    assert advice.choice is not None
    assert advice.same_machine is False
    assert "measured on AMD EPYC, 1 threads, torch 2.13.0+cpu: " in advice.text()
    assert "which is not this machine: measure here" in advice.text()


class TestCache:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(installation, "cache", lambda: tmp_path)
        (tmp_path / "bench").mkdir()
        return tmp_path / "bench"

    def test_the_command_is_named_when_there_are_none(self) -> None:
        with pytest.raises(
            UnavailableError,
            match=r"no curves measured on this machine .*`forecaster bench attention --length "
            r"96:4096`, or name a file with --curves",
        ):
            advise(4096)

    @pytest.mark.parametrize(
        "changes",
        [{"processor": "Abacus 9"}, {"causal": True}, {"device": "cuda"}],
    )
    def test_what_was_measured_otherwise_does_not_count(self, curves: Any, changes: Any) -> None:
        curves(name="bench/other.json", **changes)
        with pytest.raises(UnavailableError, match="no curves measured on this machine"):
            advise(100)

    def test_other_threads_are_the_same_machine(self, curves: Any) -> None:
        curves(name="bench/a.json", hardware=hardware("cpu", 7))
        assert advise(100).same_machine

    def test_the_newest_that_covers_the_length(self, curves: Any) -> None:
        old = curves({50: AT_100, 200: AT_100}, "bench/old.json")
        new = curves({100: AT_100}, "bench/new.json")
        os.utime(old, (1, 1))
        assert advise(100).curves == str(new)
        assert advise(150).curves == str(old)


@pytest.mark.parametrize("text", ["[]", "{}", '{"kind": "attention"}', '{"kind": "curves"}'])
def test_a_file_that_holds_no_curves(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(DataError, match=r"file\.json does not hold curves"):
        advise(100, curves=tmp_path / "file.json")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: No such file"):
        advise(100, curves=tmp_path / "none.json")
    (tmp_path / "file.json").write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        advise(100, curves=tmp_path / "file.json")


def test_a_file_without_figures(curves: Any) -> None:
    with pytest.raises(UnavailableError, match="no figure of any type at length 100"):
        advise(100, curves=curves({100: {"SDPA": (1.0, 1.0)}}))
    file = curves(rows=[])
    with pytest.raises(UnavailableError, match="covers nothing, not 100"):
        advise(100, curves=file)


@pytest.mark.parametrize(
    ("text", "mib"),
    [("2GiB", 2048), ("512MiB", 512), ("1.5 KiB", 1.5 / 1024), ("1GB", 1e9 / 2**20)],
)
def test_memory(text: str, mib: float) -> None:
    assert read_memory(text) == pytest.approx(mib)


@pytest.mark.parametrize("text", ["2", "2G", "GiB", "-1GiB", "0MiB", "2gib", "nanMiB"])
def test_memory_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a size with its unit, as 2GiB"):
        read_memory(text)


def test_the_curves_of_this_project_can_be_read() -> None:
    files = sorted(RESULTS.glob("curves-*.json"))
    assert files
    for file in files:
        advice = advise(4096, curves=file)
        assert advice.choice is not None
        assert len(advice.candidates) + len(advice.not_measured) >= 16
