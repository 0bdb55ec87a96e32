"""The promises of docs/reliability.md, with real processes and real signals.

`.ci/long` asks for more of each: FORECASTER_KILLS=20 FORECASTER_SIGNALS=100, and for small disks
of FORECASTER_DISKS KiB.
"""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.base.installation import is_bundle
from forecaster.tracking.store import MlflowClient  # which silences MLflow first

from .forked import Forked, Job, forked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's use of SQLAlchemy
]
SIGNALS = int(os.environ.get("FORECASTER_SIGNALS", "5"))
DISKS = [int(kib) for kib in os.environ.get("FORECASTER_DISKS", "").split()]
KILLS = int(os.environ.get("FORECASTER_KILLS", "2"))
EPOCHS = 12
TRAIN = (
    *("train", "--data", "small.csv", "--horizon", "5", "--lookback", "36", "--no-register"),
    "--details",  # a line for each epoch
    *("--epochs", str(EPOCHS), "--set", "model.name=tokens", "--set", "model.width=4"),
    *("--set", "model.parts=3", "--set", "model.heads=1", "--set", "train.patience=99"),
    *("--set", "train.schedule=halve", "--set", "train.batch=64"),
)
WEIGHTS = ("model.safetensors", "parts.safetensors", "intervals.safetensors", "golden.safetensors")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    steps = np.arange(500)[:, None]
    noise = 0.1 * np.random.default_rng(0).normal(size=(500, 3))
    values = 20 + np.sin(steps * np.pi / 6) * [1, 5, 0.2] + noise
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=500, freq="h"))
    frame.to_csv(folder / "small.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def start(home):
    with forked(home) as processes:
        yield processes


@pytest.fixture(scope="module")
def whole(start: Forked):
    """The files of an undisturbed training, and the seconds that it takes."""
    job = start.start(*TRAIN, "--force")
    assert job.wait() == 0, job.err
    reference = contents(bundle_of(job))
    begun = time.monotonic()
    job = start.start(*TRAIN, "--force", "--set", "seed=1")  # the first made the tracker's tables
    assert job.wait() == 0, job.err
    return reference, time.monotonic() - begun


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in WEIGHTS}


def kill(job: Job) -> None:
    with suppress(ProcessLookupError):  # it may have ended
        os.kill(job.id, signal.SIGKILL)
    assert job.wait() in (-signal.SIGKILL, 0)


def bundle_of(job: Job) -> Path:
    (line,) = [line for line in job.out.splitlines() if line.startswith("bundle ")]
    return job.forked.folder / line.split()[1]


def run_of(job: Job) -> str:
    """The id of its run in the tracker."""
    return json.loads((bundle_of(job) / "about.json").read_text())["run_id"]


def runs(home: Path) -> dict[str, str]:
    """The status of every run in the tracker."""
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    return {run.info.run_id: run.info.status for run in client.search_runs(["1"])}


def check(home: Path, job: Job) -> None:
    """The tracker has all of the run that a command ended, and each point once."""
    assert runs(home)[run_of(job)] == "FINISHED"
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    points = client.get_metric_history(run_of(job), "train_loss")
    assert [point.step for point in points] == list(range(1, EPOCHS + 1))


@pytest.mark.timeout(600 + 300 * KILLS)
def test_the_weights_are_those_of_a_run_that_was_not(start, home, whole):
    """A process that is killed at any moment leaves a run that goes on."""
    reference, seconds = whole
    moments, resumed = random.Random(0), 0
    for number in range(KILLS):
        job = start.start(*TRAIN, "--force")
        if number % 2:
            time.sleep(moments.uniform(0.1, 1) * seconds)
            kill(job)
        else:  # in its second epoch, and once more later
            for epoch in (1, moments.randint(2, EPOCHS // 3)):  # before a quick one ends
                job.reach(f"epoch {epoch}/")
                time.sleep(moments.uniform(0, 0.2))
                kill(job)
                job = start.start(*TRAIN, "--force", "--resume", "auto")
            kill(job)
        job = start.start(*TRAIN, "--force", "--resume", "auto")
        assert job.wait() == 0, job.err
        assert contents(bundle_of(job)) == reference, job.err
        resumed += f"resuming {bundle_of(job).name} at epoch" in job.err
        check(home, job)
        assert not (bundle_of(job) / "unfinished").exists()
    assert resumed > 0, "some were killed in the midst of their training"


def test_trainings_at_once_in_one_folder_do_not_mix(start, home, whole):
    reference, _ = whole
    alike = [start.start(*TRAIN, "--force") for _ in range(2)]
    other = start.start(*TRAIN, "--force", "--set", "seed=2")
    jobs = [*alike, other]
    assert [job.wait() for job in jobs] == [0, 0, 0], [job.err for job in jobs]
    assert len({*map(bundle_of, jobs)}) == len({*map(run_of, jobs)}) == 3
    assert [contents(bundle_of(job)) == reference for job in jobs] == [True, True, False]
    for job in jobs:
        check(home, job)
        assert not (bundle_of(job) / "unfinished").exists()


@pytest.mark.timeout(600 + 120 * SIGNALS)
def test_it_ends_within_ten_seconds_and_goes_on(start, home, whole):
    """A signal at any moment ends a run properly."""
    reference, seconds = whole
    moments, told = random.Random(1), 0
    before = runs(home)
    for number in range(SIGNALS):
        which = moments.choice([signal.SIGINT, signal.SIGTERM])
        job = start.start(*TRAIN, "--force")
        job.reach("\n")  # it has begun
        if number % 2:
            job.reach(f"epoch {moments.randint(1, EPOCHS - 2)}/")
        else:
            time.sleep(moments.uniform(0, 1) * seconds)
        begun = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(job.id, which)
        status = job.wait()
        assert time.monotonic() - begun < 10
        assert "Traceback" not in job.err
        new = {id: status for id, status in runs(home).items() if id not in before}
        before |= new
        if status in (0, -which):  # it had done everything, or was ending for that reason
            assert set(new.values()) == {"FINISHED"}
            continue
        assert status == 128 + which, job.err
        assert job.err.splitlines()[-1] == "stopped"
        assert set(new.values()) <= {"KILLED", "FINISHED"}, "there may be none yet"
        for id in (id for id, status in new.items() if status == "FINISHED"):
            (folder,) = (
                file.parent
                for file in (home / "runs").glob("*/about.json")
                if json.loads(file.read_text())["run_id"] == id
            )
            assert contents(folder) == reference, "the signal fell behind its end"
        told += "to continue from its last checkpoint: forecaster train --resume " in job.err
    assert told >= SIGNALS // 2
    for folder in (home / "runs").glob("*/unfinished"):
        assert list(folder.glob(".*")) == [], "nothing half written is left"
    job = start.start(*TRAIN, "--force", "--resume", "auto")
    assert job.wait() == 0
    assert contents(bundle_of(job)) == reference


if DISKS:  # needs a system that lets users mount

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("kib", DISKS)
    def test_a_run_ends_in_order_and_goes_on(kib, home, whole, tmp_path):
        """A disk that is full at any moment of a run loses nothing."""
        reference, _ = whole
        (tmp_path / "disk").mkdir()
        train = shlex.join([sys.executable, "-m", "forecaster", *TRAIN, "--resume", "auto"])
        script = f"""
            export OMP_NUM_THREADS=1  # as the reference
            mount -t tmpfs -o size={kib}k none disk
            cp {shlex.quote(str(home / "small.csv"))} disk && cd disk
            {train}
            echo $? > ../status && cp -r runs ../then
            mount -o remount,size=64m .
            {train} && cp -r runs ../now
        """
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        status = int((tmp_path / "status").read_text())
        assert status in (0, 74), done.stderr
        for folder in (tmp_path / "then").iterdir():
            if is_bundle(folder):
                assert contents(folder) == reference, "what looks whole is whole"
        (folder,) = (tmp_path / "now").iterdir()
        assert contents(folder) == reference
