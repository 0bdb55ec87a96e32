"""Many series of unequal length in many files: one process and Ray give the same bytes.

`.ci/long` asks for FORECASTER_SERIES=100000.
"""

import json
import os
import re
import signal
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forecaster.base.machine import processor
from forecaster.base.quota import cores
from tests.test_large_panel import start

SERIES = int(os.environ.get("FORECASTER_SERIES", "1200"))
PARTS, HORIZON = 20, 6
MORE = 64
"""MiB that all files may take beyond one of them: the ids of 100,000 series take about 20."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the files, and a bundle that was trained on the first of them."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "parts").mkdir()
    random = np.random.default_rng(0)
    lengths = random.integers(60, 140, SERIES)
    for part, own in enumerate(np.array_split(np.arange(SERIES), PARTS)):
        steps = np.concatenate([np.arange(each) for each in lengths[own]])
        levels = np.repeat(random.uniform(1, 100, len(own)), lengths[own])
        noise = 0.1 * random.standard_normal(len(steps))
        table = {
            "unique_id": np.repeat([f"s{each:06}" for each in own], lengths[own]),
            "ds": np.datetime64("2026-01-01", "us") + steps * np.timedelta64(1, "h"),
            "y": levels * (1 + 0.3 * np.sin(steps * np.pi / 12) + noise),
        }
        pq.write_table(pa.table(table), folder / "parts" / f"{part:02}.parquet")
    done = start(
        folder, *("train", "--data", "parts/00.parquet", "--horizon", str(HORIZON)),
        *("--lookback", "48", "--epochs", "1", "--set", "train.windows=256", "--no-register"),
    )  # fmt: skip
    out, err = done.communicate()
    assert done.returncode == 0, err
    (bundle,) = re.findall(r"^bundle +(\S+)", out, re.MULTILINE)
    return folder, bundle


def predict(folder, bundle, files, *arguments):
    """The seconds of a prediction, and the peak memory of its process in MiB."""
    begun = time.monotonic()
    done = start(folder, "predict", "--model", bundle, "--input", files, "--output", *arguments)
    _, err = done.communicate()
    assert done.returncode == 0, err
    (peak,) = re.findall(r"^peak (\d+)$", err, re.MULTILINE)
    return time.monotonic() - begun, int(peak)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ray_gives_the_bytes_of_one_process_whose_memory_is_that_of_one_file(home, capsys):
    folder, bundle = home
    files = "parts/*.parquet"
    _, first = predict(folder, bundle, "parts/00.parquet", "alone")
    seconds, peak = predict(folder, bundle, files, "alone")
    assert peak < first + MORE
    alone = {file.name: file.read_bytes() for file in (folder / "alone").glob("[!.]*.parquet")}
    assert len(alone) == PARTS
    frames = [pd.read_parquet(folder / "alone" / name) for name in sorted(alone)]
    ahead = pd.concat(frames, ignore_index=True)
    assert list(ahead["unique_id"].unique()) == [f"s{each:06}" for each in range(SERIES)]
    assert len(ahead) == SERIES * HORIZON
    assert np.isfinite(ahead["y"]).all()

    out = folder / "out"
    stopped = start(folder, "predict", "--model", bundle, "--input", files, "--output", "out",
                    "--ray", "local")  # fmt: skip
    while len(list(out.glob("[!.]*.parquet"))) < 2:
        assert stopped.poll() is None, stopped.communicate()
        time.sleep(0.02)
    stopped.send_signal(signal.SIGTERM)
    _, err = stopped.communicate()
    assert stopped.returncode == 128 + signal.SIGTERM, err
    before = {file.name: file.stat().st_mtime_ns for file in out.glob("[!.]*.parquet")}
    on_ray, _ = predict(folder, bundle, files, "out", "--ray", "local")
    after = {file.name: file.stat().st_mtime_ns for file in out.glob("[!.]*.parquet")}
    assert 2 <= len(before) < PARTS
    assert before.items() <= after.items(), "what was there was forecast again"
    assert {file.name: file.read_bytes() for file in out.glob("[!.]*.parquet")} == alone
    assert not list(out.glob(".*"))

    rows = [pq.read_metadata(each).num_rows for each in sorted((folder / "parts").iterdir())]
    figures = {
        "series": SERIES, "files": PARTS, "rows": sum(rows), "hardware": processor(),
        "cores": cores(), "seconds": round(seconds, 1),
        "rows_per_second": round(sum(rows[1:]) / seconds), "peak_mib": peak,
        "peak_mib_of_one_file": first, "seconds_on_ray": round(on_ray, 1),
        "files_on_ray": PARTS - len(before),
    }  # fmt: skip
    with capsys.disabled():
        print(f"\n{json.dumps(figures)}")
