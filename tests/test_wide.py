"""A data set of 862 columns, from a server to a forecast, in little memory."""

import gzip
import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
import yaml

from forecaster.datasets.card import load_card

ROWS, COLUMNS = 17_544, 862
SETTINGS = (
    "window.past=2 cycles", "model.tokens=cycle", "model.parts=1", "train.epochs=1",
    "train.stride=9000", "train.batch=1", "train.checks=1", "train.validation_stride=50",
)  # fmt: skip
COMMAND = """
import atexit, resource, sys
from pathlib import Path
from forecaster import cli
from forecaster.base import installation
cards = Path(sys.argv.pop(1))
installation.cards = lambda: cards
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
atexit.register(lambda: print("peak", peak(), file=sys.stderr))
cli.main()
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_traffic_trains_and_forecasts_by_name(httpserver, tmp_path):
    # a file like traffic.txt.gz: shares of time with a daily cycle, no header, no stamps
    random = np.random.default_rng(0)
    first = random.integers(0, 24, COLUMNS)
    phase = np.arange(ROWS)[:, None] - first
    shares = 0.06 + 0.05 * np.sin(phase * np.pi / 12) + 0.01 * random.random((ROWS, COLUMNS))
    table = pa.table({str(i): column for i, column in enumerate(shares.round(3).T)})
    text = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, text, pyarrow.csv.WriteOptions(include_header=False))
    packed = gzip.compress(text.getvalue(), compresslevel=1)
    httpserver.expect_oneshot_request("/traffic.txt.gz").respond_with_data(packed)
    facts = load_card("traffic").model_dump(mode="json", exclude_none=True)
    blob = hashlib.sha1(b"blob %d\0" % len(packed) + packed).hexdigest()
    facts["sources"] = [
        {**facts["sources"][1], "git_blob": blob, "urls": [httpserver.url_for("/traffic.txt.gz")]}
    ]
    facts["split"] = {"rows": [8_000, 8_400, 8_800]}  # the floors of a full split take minutes
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards/traffic.yaml").write_text(yaml.safe_dump(facts))
    own = {key: value for key, value in os.environ.items() if not key.startswith("FORECASTER_")}
    own |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "NO_PROXY": "*"}

    def forecaster(*arguments):
        """The peak memory of a command in a process of its own, in MiB."""
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, str(tmp_path / "cards"), *arguments],
            cwd=tmp_path, env=own, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return int(re.search(r"^peak (\d+)$", done.stderr, re.MULTILINE)[1])

    wanted = ("--attn", "logsparse", "--data", "traffic", "--horizon", "336", "--no-register")
    peak = forecaster("train", *wanted, *(f"--set={setting}" for setting in SETTINGS))
    copies = (8_000 - 384 + 1) * 384 * COLUMNS * 4 >> 20
    assert peak < 3_000 < 9_000 < copies

    # Again from the cache: the server has no further file.
    [bundle] = (tmp_path / "runs").iterdir()
    forecaster("predict", "--model", str(bundle), "--output", "ahead.csv")
    ahead = pd.read_csv(tmp_path / "ahead.csv", parse_dates=["date"])
    assert ahead.shape == (336, 1 + COLUMNS)
    assert str(ahead["date"][0]) == "2017-01-01 00:00:00"
    truth = 0.065 + 0.05 * np.sin((np.arange(ROWS, ROWS + 336) - first[0]) * np.pi / 12)
    assert np.abs(ahead["0"] - truth).max() < 0.03
    assert len(httpserver.log) == 1
