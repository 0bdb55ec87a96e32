"""Measurements are of the functions themselves, and what could not be measured is reported."""

import os
import signal

import pytest
import torch

from forecaster.attention import ATTENTIONS
from forecaster.base.errors import ForecasterError, UsageError
from forecaster.base.workers import Worker
from forecaster.study import bench
from forecaster.study.bench import Setup, cells


def row(attn, length, milliseconds, mib):
    return {"attn": attn, "length": length, "milliseconds": milliseconds, "mib": mib}


def test_types_are_chosen_by_name():
    assert bench.choose("all") == [name for name in ATTENTIONS if name != "none"]
    for wanted, words in (
        ("full,porb", "Did you mean 'prob'"),
        ("none", "unknown attention to measure 'none'"),
    ):
        with pytest.raises(UsageError, match=words):
            bench.choose(wanted)


def test_lengths_are_a_range_or_a_list():
    for text, lengths in (
        ("96:1024", [96, 128, 256, 512, 1024]),
        ("64:256", [64, 128, 256]),
        ("96:100", [96, 100]),
        ("7:7", [7]),
        ("336,96,336", [96, 336]),
    ):
        assert bench.read_lengths(text) == lengths
    for text in ("", "0:9", "9:3", "96:", "a", "1,", "-1", "1:2:3", "9" * 10):
        with pytest.raises(UsageError, match="--length: expected a range such as 96:16384"):
            bench.read_lengths(text)


class TestMeasure:
    def test_rows(self):
        threads, reports = torch.get_num_threads(), []
        how = Setup(512, batch=2, heads=2, width=32)
        sdpa, full, mean = bench.measure(
            ["full", "mean"], how, lambda what, done: reports.append((what, done))
        )
        assert [r["attn"] for r in (sdpa, full, mean)] == ["SDPA", "full", "mean"]
        assert 1.0 <= full["memory"] < 3.0, "output and three gradients, of q, k, v and output"
        assert full["mib"] == pytest.approx(full["memory"], rel=0.01), "which are 1 MiB here"
        assert mean["memory"] < full["memory"]
        assert mean["milliseconds"] < full["milliseconds"]
        assert mean["ratio"] == pytest.approx(mean["milliseconds"] / sdpa["milliseconds"], rel=0.01)
        assert full["repetitions"] >= 9
        assert sum(done for _, done in reports) == 6
        assert torch.get_num_threads() == threads

    def test_what_takes_too_long_is_said_and_not_tried_at_longer_lengths(self, monkeypatch):
        tried = []

        class Watched(Worker):
            def ask(self, *arguments):
                tried.append((arguments[0], arguments[1].length))
                return super().ask(*arguments)

        monkeypatch.setattr(cells, "Worker", Watched)
        document = bench.curves(["full"], [2048, 4096], Setup(limit=0.001))
        assert tried == [("SDPA", 2048), ("full", 2048)]
        reasons = [r["skipped"] for r in document["rows"] if r["attn"] == "full"]
        assert reasons == ["took longer than 0.001 s", "at L=2048 it took longer than 0.001 s"]
        assert "not measured: full at L = 2048, 4096: it took longer" in bench.tables(document)

    def test_the_document_says_how_to_measure_it_again(self):
        document = bench.curves(["mean"], [8], Setup(heads=1, width=8, causal=True))
        assert [(r["attn"], r["length"]) for r in document["rows"]] == [("SDPA", 8), ("mean", 8)]
        assert {"hardware", "commit", "load_before", "batch", "dtype", "limit"} <= set(document)
        assert document["causal"]
        assert document["hardware"].startswith(f"{document['processor']}, 1 threads, torch")


@pytest.mark.gpu
def test_on_a_gpu():
    how = Setup(1024, device="cuda", dtype="bfloat16", limit=60)
    sdpa, full = bench.measure(["full"], how)
    assert full["ratio"] == pytest.approx(1, rel=0.5)
    assert 1.0 <= sdpa["memory"] < 3.0


def dies(*arguments):
    yield "full", 1
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_lost_while_timing_ends_the_measurement(monkeypatch):
    monkeypatch.setattr(cells, "_every_call", dies)
    with pytest.raises(ForecasterError, match="L=7: the process that measures time ended"):
        cells._times({"full": 3}, Setup(7), lambda what, done: None)


def test_only_a_type_that_is_clearly_better_in_both_dominates():
    """At the same length; neither the yardstick nor a control, nor what was not measured."""
    full, lsh, prob = row("full", 96, 10, 10), row("lsh", 96, 5, 20), row("prob", 96, 5, 5)
    absent = {"attn": "lsh", "length": 96, "skipped": "took longer"}
    apart = [row("SDPA", 96, 1, 1), row("mean", 96, 1, 1), row("prob", 128, 1, 1), absent]
    for this, others, by in (
        (full, [lsh, prob], ["prob"]),
        (lsh, [full, prob], []),
        (prob, [full, lsh], []),
        (full, [row("prob", 96, 9.2, 5), row("prob", 96, 5, 8.5)], []),  # what is near is equal
        (full, [row("prob", 96, 9, 8)], ["prob"]),
        (full, apart, []),
        (absent, [prob], []),
    ):
        assert cells.dominated_by(this, [this, *others]) == by
