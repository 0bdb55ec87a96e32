"""Whole runs on a simulated GPU, from data to a bundle and its answers."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch.utils._python_dispatch import _pop_mode, _push_mode

from forecaster import Forecaster
from forecaster.evaluate.cutoffs import roll
from forecaster.forecast.predictor import Predictor
from forecaster.plan.splits import Splits
from forecaster.run import train
from forecaster.study.compare.cell import FACTS
from forecaster.study.compare.cell import train as train_cell
from forecaster.train import resume
from tests import small
from tests.gpu_simulated.device import Simulated
from tests.service.toy import start
from tests.study.compare.grids import small_grid

ROWS, HORIZON = 400, 6
SMALL = {"model.width": 4, "model.feed_forward": 4, "train.updates": 4, "train.batch": 16}
INFORMER = {"model.name": "informer", "model.width": 8, "model.heads": 2}


def frame(*, holes: bool = False) -> pd.DataFrame:
    """Hourly load, its covariate known ahead, another column."""
    random, steps = np.random.default_rng(0), np.arange(ROWS)
    noise = random.normal(size=(3, ROWS))
    load = 20 + 3 * np.sin(steps * np.pi / 12) + noise[0] + 2 * noise[1]
    if holes:
        load = np.where(random.random(ROWS) < 0.1, np.nan, load.clip(18, 24))
    times = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    return pd.DataFrame({"ds": times, "load": load, "warm": noise[1], "other": noise[2]})


def panel() -> pd.DataFrame:
    one = frame()[["ds", "load"]]
    parts = [one.assign(unique_id=name, y=one.pop("load") * 1.0) for name in ("north",)]
    return pd.concat([*parts, parts[0].assign(unique_id="south", y=parts[0]["y"] * 10)])


AHEAD = {"target": "load", "future_covariates": "warm"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({"target": "load", "features": "S"}, {}),
    "other columns": ({"target": "load"}, {}),
    "all columns, refitted": ({"features": "M", "refit": True}, {}),
    "known ahead": ({**AHEAD, "holidays": "DE"}, {}),
    "holes and limits": ({"target": "load"}, {"data.min": 18, "data.max": 24}),
    "panel": ({}, {}),
    "informer in bf16": ({"blend": "none"}, {**INFORMER, "train.precision": "bf16"}),
    "mean cycle first": ({"target": "load"}, {"model.prior": True}),
    "long strides": (
        {"attention": "strided", "lookback": 260, "blend": "none"},
        {**INFORMER, "model.distil": False, "window.start": 6},
    ),
    "columns as tokens": (
        {"attention": "full"},
        {"model.tokens": "series", "model.output": "written", "model.queries": "temporal"},
    ),
    "decoder, in parts": (
        {"target": "load"},
        {"model.decoder_layers": 1, "model.tokens": "point", "model.output": "written",
         "train.accumulate": 2, "train.checkpointing": True},
    ),
}  # fmt: skip

USUAL = ("known ahead", "panel", "informer in bf16")
"""What each change is tried with; the others are long proofs."""


def fitted(kind: str) -> Forecaster:
    flags, options = KINDS[kind]
    data = panel() if kind == "panel" else frame(holes=kind.startswith("holes"))
    flags = {"attention": "prob", "horizon": HORIZON, "epochs": 1, **flags}
    return Forecaster(**flags, options={**SMALL, **options}, device="cuda").fit(data)


@pytest.mark.parametrize(
    "kind",
    [kind if kind in USUAL else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS],
)
def test_a_bundle_forecasts_there_what_it_forecasts_on_a_processor(
    kind: str, tmp_path: Path
) -> None:
    with Simulated():
        fitted(kind).save(tmp_path / "bundle")
        there = Predictor.load(tmp_path / "bundle", "cuda")
        computed = there.predict(there.example)
    wanted = Predictor.load(tmp_path / "bundle", "cpu").predict(there.example)
    numbers = wanted.select_dtypes("number").columns
    np.testing.assert_allclose(computed[numbers], wanted[numbers], rtol=1e-3, atol=1e-3)


WAITS_SERVED = 1
"""Of a batch of forecasts: the copy of the answer to the host."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle and its series."""
    folder = tmp_path_factory.mktemp("made")
    with Simulated():
        fitted("other columns").save(folder / "bundle")
    frame().to_csv(folder / "series.csv", index=False)
    return folder


class TestFaces:
    """What judges and serves a model, each beside the same on a processor."""

    @pytest.mark.usefixtures("home")
    def test_cut_offs(self) -> None:
        def judged(device: str) -> Any:
            splits = small.splits(f"device={device}", "train.epochs=1", blend="none")

            def make(at: Splits) -> Any:
                return train.train_anew(at, device, quiet)

            return roll(splits, 2, make, device, quiet).cutoffs.mse.mean

        with Simulated():
            there = judged("cuda")
        assert there == pytest.approx(judged("cpu"), rel=1e-3)

    @pytest.mark.usefixtures("home")
    def test_a_cell_of_a_grid(self) -> None:
        def errors(device: str) -> Any:
            grid = small_grid(**{"protocol.set": [f"device={device}"]})
            files = train_cell((grid.data, "abc", "forecaster compare"), grid.cells[0])
            return json.loads(files[FACTS])["mse"]

        with Simulated():
            there = errors("cuda")
        assert there == pytest.approx(errors("cpu"), rel=1e-3)

    def test_python(self, folder: Path) -> None:
        def forecasts(device: str) -> Any:
            model = Forecaster.load(folder / "bundle", device=device)
            past = model.historical_forecasts(frame().tail(300), stride=50)
            ahead = model.predict(frame(), level=80)
            return [x.select_dtypes("number").to_numpy() for x in (ahead, past)]

        with Simulated():
            there = forecasts("cuda")
        for gpu, processor in zip(there, forecasts("cpu"), strict=True):
            np.testing.assert_allclose(gpu, processor, rtol=1e-3, atol=1e-3)

    @pytest.mark.usefixtures("untracked")
    def test_the_command_trains(
        self, folder: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(resume, "SPARED", 0)  # a checkpoint after each epoch
        words = ("--data", folder / "series.csv", "--target", "load", "--horizon", HORIZON)
        few = ("train.updates=4", "train.epochs=2", "train.windows=64", "train.batch=16")
        sets = [word for one in few for word in ("--set", one)]
        with Simulated():
            status, _, said = run("train", *words, "--device", "cuda", *sets)
        assert status == 0, said
        assert "on cuda" in said
        assert "train.graphs" not in said
        (bundle,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
        Predictor.load(bundle, "cpu")  # it reproduces what it forecast there

    def test_the_command(self, folder: Path, run: Any) -> None:
        def forecasts(device: str) -> Any:
            file = folder / f"{device}.csv"
            model = ("--model", folder / "bundle", "--input", folder / "series.csv")
            status, _, said = run("predict", *model, "--device", device, "--output", file)
            assert status == 0, said
            return pd.read_csv(file).select_dtypes("number")

        with Simulated():
            there = forecasts("cuda")
        pd.testing.assert_frame_equal(there, forecasts("cpu"), rtol=1e-3, atol=1e-3)

    def test_the_service(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def answer(device: str) -> Any:
            with start(model=str(folder / "bundle"), device=device) as client:
                (name,) = (model["name"] for model in client.get("/models").json()["models"])
                example = client.get(f"/models/{name}/example").json()
                if device == "cuda":
                    gpu.clear()
                body = client.post("/predict", json={**example, "inputs": example["inputs"] * 3})
                assert body.status_code == 200, body.text
                return body.json()["predictions"]

        began = threading.Thread.run
        with Simulated() as gpu:

            def in_thread(thread: threading.Thread) -> None:
                _push_mode(gpu)  # torch keeps its modes by thread
                try:
                    began(thread)
                finally:
                    _pop_mode()

            monkeypatch.setattr(threading.Thread, "run", in_thread)
            there = answer("cuda")
            assert len(gpu.waits) <= WAITS_SERVED, gpu.waits
            assert gpu.rough == gpu.doubles == []
            monkeypatch.undo()
        for gpu_s, processors in zip(there, answer("cpu"), strict=True):
            np.testing.assert_allclose(gpu_s["mean"], processors["mean"], rtol=1e-3)


def quiet(text: str) -> None: ...
