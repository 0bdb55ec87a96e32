"""The instrument sees what attention is for: a value that has to be looked up."""

import hashlib

import numpy as np
import pandas as pd
import pytest
import yaml

from forecaster import resources
from forecaster.compare import table
from forecaster.compare.cell import Shared, train
from forecaster.compare.grid import define, resolve

PAST, ROWS = 16, (4000, 4600, 5400)
PROTOCOL = {
    "config": "default",
    "steps": 800,
    "set": [
        "model.tokens=point", "model.channels=mixed", "model.normalise=none",
        "model.output=written", "model.decoder_layers=1", "model.dropout=0", "model.width=32",
        "attn.cross=none", "data.features=MS", f"window.past={PAST}", f"window.start={PAST}",
        "train.batch=64", "train.stride=1", "train.lr=0.003", "train.checks=1",
        "train.validation_stride=1",
    ],
    "regimes": {"points": {"linear": [False]}},
}  # fmt: skip


def series():
    """Episodes of random length: noise, one step of it marked, a question, and then its answer.

    The answer is the marked value, at a lag that nothing but the mark tells; all else in the target
    is zero. Without looking up it is the best to answer zero.
    """
    random = np.random.default_rng(0)
    rows = []
    answer = 0.0
    while len(rows) < ROWS[-1]:
        length = random.integers(4, 11)
        marked = random.integers(0, length - 1)
        noise = random.normal(size=length)
        for step in range(length):
            asked = step == length - 1
            rows.append((noise[step], float(step == marked), float(asked), answer))
            answer = noise[marked] if asked else 0.0
    return np.array(rows[: ROWS[-1]])


@pytest.fixture
def recall(tmp_path, monkeypatch):
    """The data set `recall`, known by name."""
    frame = pd.DataFrame(series(), columns=["value", "mark", "question", "answer"])
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=len(frame), freq="h"))
    frame.to_csv(tmp_path / "recall.csv", index=False)
    digest = hashlib.sha256((tmp_path / "recall.csv").read_bytes()).hexdigest()
    card = {
        "name": "recall", "title": "recall", "about": "generated",
        "sources": [{"files": ["recall.csv"], "sha256": digest}],
        "time": "date", "timezone": "naive", "freq": "h",
        "columns": list(frame.columns[1:]), "target": "answer", "seasons": [12],
        "split": {"rows": list(ROWS)}, "licence": "none", "citation": "none",
    }  # fmt: skip
    (tmp_path / "recall.yaml").write_text(yaml.safe_dump(card))
    monkeypatch.setattr(resources, "cards", lambda: tmp_path)
    monkeypatch.setenv("FORECASTER_DATA", str(tmp_path))


@pytest.mark.slow
def test_full_attention_beats_the_controls_where_a_value_must_be_looked_up(recall, tmp_path):
    values = {"data": ["recall"], "horizons": [1], "attn": [], "seeds": 1, "protocol": PROTOCOL}
    grid = resolve("recall", define(values, {}, "the test"))
    shared = Shared(grid.data, tmp_path / "cells", "", "")
    rows = {row["attn"]: row for row in table.rows([train(shared, cell) for cell in grid.cells])}
    assert rows["full"]["mse"] < 0.1, "it looks the value up"
    assert rows["mean"]["mse"] > 0.25, "a mean over tokens tells it from the others a little"
    assert rows["none"]["mse"] > 0.7, "as answering zero"
    for control in ("mean", "none"):
        assert rows[control]["against"]["full"]["verdict"] == "worse"
