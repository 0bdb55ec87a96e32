"""Whether the bands of totals hold on rows that come later, and what paths are worth.

    pip install -e '.[all,peers]'
    FORECASTER_DATA=... OMP_NUM_THREADS=1 python -m benchmarks.totals      # 10 minutes
    python -m benchmarks.totals --tasks nn5 chain
    python -m benchmarks.totals --speed MODEL

The last fifth of each series, at least two horizons, is held back (`benchmarks.verdicts`); `chain`
is made up: 40 shops whose sales share shocks (`benchmarks.newcomers`). The closed forms forecast
every window of what was held back, at most WINDOWS. What share of the totals do their 80 % bands
hold: of each series over the horizon and over its first main season, and of all series? Beside it
stand the bands of single steps added up, and those of independent steps. Paths are measured by
energy and variogram scores (Gneiting and Raftery 2007; Scheuerer and Hamill 2015), relative to
paths whose steps are drawn independently. A file of benchmarks/results that exists is not measured
again.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import newcomers
from benchmarks.suite import RESULTS, Task
from benchmarks.verdicts import SETS, held_back, later
from forecaster.base.installation import commit
from forecaster.base.machine import hardware
from forecaster.evaluate.intervals import Calibration, seen_by
from forecaster.evaluate.joint import spread_of
from forecaster.evaluate.judge import judge, validate
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.paths import middles, paths, standing
from forecaster.forecast.predictor import Predictor, joined
from forecaster.forecast.quantiles import Quantiles
from forecaster.forecast.question import Question
from forecaster.forecast.totals import quantiles_of
from forecaster.parts import blend_forms, fit_forms

WINDOWS, SCORED, PATHS = 6000, 200, 100
LEVELS = [0.9]


def chain() -> Task:
    """A chain of shops with region, format and promotions, whose sales share shocks."""
    frame = newcomers.chain(40, 900, 0).rename(
        columns={"shop": "unique_id", "day": "ds", "sales": "y"}
    )
    columns = ["unique_id", "ds", "y", "promotion"]
    return Task(frame[columns], "D", (7,), 28, (28,), ("promotion",))


TASKS: dict[str, Callable[[], Task]] = SETS | {"chain": chain}


def measure(name: str) -> dict[str, Any]:
    """The row of a set."""
    task = TASKS[name]()
    splits, whole = held_back(task)
    fold = splits.fold("cpu")
    forms = splits.forms or fit_forms(fold)
    model = blend_forms(fold, forms).eval()
    _, intervals, _, done = validate(splits, model, "cpu")
    assert intervals is not None
    served = judge(splits, model, "cpu", intervals, forms[0], done).recalibrated or intervals
    test = later(splits, whole).test("cpu")
    item, _, step = (x.numpy() for x in test.locate(torch.arange(len(test))))
    steps = np.unique(step)
    steps = steps[middles(max(1, WINDOWS * len(steps) // len(step)), len(steps))]
    numbers = torch.from_numpy(np.flatnonzero(np.isin(step, steps)))
    found = Calibration(model, test, served.levels, chosen=numbers).complete()
    item, step = item[numbers], step[numbers]
    series = max(1, len(np.unique(item)))
    std = splits.schema.target_scaler.at(item if series > 1 else None, 3).std
    errors = found.errors[..., 0] * np.reshape(std, (-1, 1))
    spread = spread_of(found, served, np.arange(len(numbers)))[..., 0] * np.reshape(std, (-1, 1))
    assert served.errors is not None
    rows = standing(served.errors.shape[1], max(len(splits.schema.items), 1))[item]
    shapes = served.errors[..., 0].astype(np.float32)[
        :, :, standing(served.errors.shape[2], task.horizon)
    ]
    season = splits.plan.dataset.seasons[0]
    lengths = {"total": task.horizon} | ({"season": season} if 1 < season < task.horizon else {})
    row: dict[str, Any] = {
        "kind": "totals", "task": name, "horizon": task.horizon, "freq": task.freq,
        "command": f"python -m benchmarks.totals --tasks {name!r}",
        "commit": commit(), "hardware": hardware("cpu"), "series": series,
        "calibrating": list(served.errors.shape), "apart": served.apart,
        "windows": len(numbers), "origins": len(steps),
        "independent": series * (int(step.max() - step.min()) + task.horizon) / task.horizon,
        "steps": _held(np.abs(errors), spread),
    }  # fmt: skip
    for what, length in lengths.items():
        sums = np.empty((len(shapes), len(numbers), 1, 1))
        for place in np.unique(rows):
            on = rows == place
            sums[:, on, 0, 0] = shapes[:, place, :length] @ spread[on, :length].T
        total = np.abs(errors[:, :length].sum(axis=1))
        freedom = np.full(1, served.apart * task.horizon / length)
        ends = quantiles_of(np.zeros(sums.shape[1:]), sums, freedom, LEVELS)[:, 0, 0, 0]
        added = spread[:, :length].sum(axis=1)
        apart = np.sqrt((spread[:, :length] ** 2).sum(axis=1))
        row[what] = {
            "length": length, "held": _held(total, ends), "added": _held(total, added),
            "apart": _held(total, apart), "width": float(np.mean(ends) / np.mean(added)),
        }  # fmt: skip
    if series > 1:
        row["all"] = _of_all(errors, spread, step, shapes[:, rows], served.apart)
    return row | _scores(found, served, rows)


def _held(sizes: np.ndarray, ends: np.ndarray) -> float:
    """The share of the errors that are known that their bands hold."""
    known = ~np.isnan(sizes)
    return float((sizes <= ends)[known].mean())


def _of_all(
    errors: np.ndarray, spread: np.ndarray, step: np.ndarray,
    shapes: np.ndarray, apart: float,
) -> dict[str, float]:  # fmt: skip
    """The shares of the totals of all series over the horizon that are held."""
    cells = []
    for begin in np.unique(step):
        on = step == begin
        total = np.abs(errors[on].sum())
        sums = np.einsum("nt,mnt->m", spread[on], shapes[:, on]).reshape(-1, 1, 1, 1)
        ends = quantiles_of(np.zeros((1, 1, 1)), sums, np.full(1, apart), LEVELS)
        single = quantiles_of(
            np.zeros((on.sum(), 1, 1)),
            np.einsum("nt,mnt->mn", spread[on], shapes[:, on])[..., None, None],
            np.full(1, apart), LEVELS,
        )  # fmt: skip
        if not np.isnan(total):
            cells.append((total <= ends.max(), total <= spread[on].sum(),
                          total <= np.sqrt((single**2).sum())))  # fmt: skip
    return dict(zip(("held", "added", "apart"), np.mean(cells, axis=0).tolist(), strict=True))


def _scores(found: Calibration, intervals: Intervals, rows: np.ndarray) -> dict[str, float]:
    """Energy and variogram scores of paths, over those of paths with independent steps."""
    task, windows = found.model.task, found.windows
    chosen = np.linspace(0, len(found.chosen) - 1, SCORED).round().astype(int)
    energy, variogram = np.zeros((2, 2))
    random = np.random.default_rng(0)
    quantiles = Quantiles(intervals)
    for place in chosen:
        batch = windows.batch(found.chosen[[place]])
        truth = batch.target[0, :, 0].double().numpy()
        if batch.target_observed is not None and not batch.target_observed.all():
            continue
        with torch.inference_mode():
            point = found.model(*batch.asked).double()
            past, known, seen, of = seen_by(batch, task)
            ends = quantiles(point, past, known, seen, item=of)
        drawn = paths(point.numpy(), ends.numpy(), intervals, rows[[place]], np.ones(1), PATHS)[
            0, ..., 0
        ]
        for which, ahead in enumerate((drawn, random.permuted(drawn, axis=0))):
            apart = np.linalg.norm(ahead[:, None] - ahead, axis=2).mean()
            energy[which] += np.linalg.norm(ahead - truth, axis=1).mean() - apart / 2
            roots = np.sqrt(np.abs(ahead[:, :, None] - ahead[:, None])).mean(axis=0)
            variogram[which] += ((np.sqrt(np.abs(truth[:, None] - truth)) - roots) ** 2).mean()
    ratios = energy[0] / energy[1], variogram[0] / variogram[1]
    return dict(zip(("energy", "variogram"), map(float, ratios), strict=True))


def speed(source: str) -> str:
    """What 200 paths cost a model, forecast with quantiles included, in plain forecasts."""
    model = Predictor.load(source, "cpu")
    rows, names = model.example[: model.past], list(model.form.columns)
    start = [pd.Timestamp(rows[model.schema.time].iloc[0])]
    question = Question(rows[names].to_numpy(copy=True)[None], start, steps=model.horizon)
    asked = replace(question, samples=200)

    def seconds(call: Callable[[], object]) -> float:
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun

    def drawn() -> object:
        return joined(model, asked, model.answer(question, model.levels))

    drawn()
    ratios = [seconds(drawn) / seconds(lambda: model.answer(question, ())) for _ in range(25)]
    shape = f"{model.horizon} steps of {len(model.schema.targets)} columns"
    return f"200 paths of {shape}: {np.median(ratios):.1f} plain forecasts"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--speed", metavar="MODEL", help="only what paths cost this model")
    asked = parser.parse_args()
    if asked.speed:
        print(speed(asked.speed))
        return
    warnings.filterwarnings("ignore")
    for name in asked.tasks:
        file = RESULTS / f"totals-{name}.json".replace(" ", "_")
        if not file.exists():
            file.write_text(json.dumps(measure(name), indent=1) + "\n")
            print(f"{name}: {json.loads(file.read_text())}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
