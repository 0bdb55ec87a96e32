"""A panel of 100,000 series x 1,000 steps, from a Parquet file to a trained model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SERIES, STEPS, TOGETHER = 100_000, 1_000, 1_000
COMMAND = """
import atexit, resource, sys
from forecaster import cli
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
atexit.register(lambda: print("peak", peak(), file=sys.stderr))
cli.main()
"""


def start(folder, *arguments):
    root = Path(__file__).parents[1]
    own = {
        "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{root}:{root / 'service'}",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder, env={**os.environ, **own}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def panel(tmp_path_factory):
    """Daily cycles of very different levels."""
    file = tmp_path_factory.mktemp("panel") / "panel.parquet"
    random = np.random.default_rng(0)
    times = np.datetime64("2020-01-01", "us") + np.arange(STEPS) * np.timedelta64(1, "h")
    cycle = 1 + 0.3 * np.sin(np.arange(STEPS) * np.pi / 12)
    kinds = [("unique_id", pa.string()), ("ds", pa.timestamp("us")), ("y", pa.float32())]
    with pq.ParquetWriter(file, pa.schema(kinds)) as writer:
        for first in range(0, SERIES, TOGETHER):
            levels = random.uniform(1, 100, (TOGETHER, 1)).astype(np.float32)
            noise = random.standard_normal((TOGETHER, STEPS), dtype=np.float32)
            names = [f"s{i}" for i in range(first, first + TOGETHER)]
            columns = [
                pa.array(np.repeat(names, STEPS)),
                pa.array(np.tile(times, TOGETHER)),
                pa.array((levels * (cycle + 0.1 * noise)).astype(np.float32).ravel()),
            ]
            writer.write_table(pa.table(columns, schema=pa.schema(kinds)))
    return file


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_it_trains_in_little_memory(panel, tmp_path):
    done = start(tmp_path, "train", "--data", str(panel), "--horizon", "24", "--epochs", "1",
                 "--set", "train.windows=2048", "--no-register")  # fmt: skip
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert "100,000 series, 100,000,000 rows" in err
    assert "one in 179 of them" in out
    (peak,) = re.findall(r"^peak (\d+)$", err, re.MULTILINE)
    assert int(peak) < 6 * 1024
    left = [file for file in (tmp_path / "cache" / "forecaster").rglob("*") if file.is_file()]
    assert left == []
