"""Whether what a run says of its model holds on rows that come later (docs/evaluation.md).

    pip install -e '.[all,peers]'
    FORECASTER_DATA=... OMP_NUM_THREADS=1 python -m benchmarks.verdicts      # 25 minutes
    python -m benchmarks.verdicts --tasks gdp --simulated 1000

The last fifth of each series, at least two horizons, is held back. On the rest a model is trained
with our defaults and judged on its own test split. Then the model, the floors and the intervals
forecast every window of the rows that were held back: are *better* and *worse* true there, and how
many percent of the values does the 80 % band hold, as it was judged and as it is served? Before
that, models that are as good as each of thirteen floors are simulated. A file of benchmarks/results
that exists is not measured again; benchmarks/render.py makes the table.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.suite import RESULTS, TASKS, Task, card
from forecaster.base.installation import commit
from forecaster.base.machine import hardware
from forecaster.datasets.card import Borders
from forecaster.datasets.scaling import Scaler
from forecaster.estimator import Forecaster
from forecaster.evaluate.backtest import Evaluation
from forecaster.evaluate.intervals import Coverage
from forecaster.evaluate.judge import judge, validate
from forecaster.evaluate.metrics import Score, Verdict, paired_interval, score
from forecaster.forecast.intervals import Intervals
from forecaster.parts import Blend
from forecaster.plan.data import take_frame
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits
from forecaster.run.train import train_anew

HELD_BACK = 0.2
SETS: dict[str, Callable[[], Task]] = TASKS | {
    "ETTh2": partial(card, "ETTh2", ("OT",), "h", (24,), 96, 1),
    "ETTm1": partial(card, "ETTm1", ("OT",), "15min", (96,), 96, 1),
    "exchange_rate": partial(card, "exchange_rate", ("OT",), "D", (7,), 30, 1),
    **{
        f"epf-{market}": partial(card, f"epf-{market}", ("OT",), "h", (24, 168), 24, 1)
        for market in ("BE", "DE", "FR", "PJM")
    },
    "electricity-mean": partial(card, "electricity-mean", ("y",), "h", (24, 168), 336, 1),
    "traffic-sensor0": partial(card, "traffic-sensor0", ("y",), "h", (24, 168), 168, 1),
}


def later(splits: Splits, whole: Splits) -> Splits:
    """Windows with the rows of `whole` after those of `splits` as test split, scaled as the latter
    are."""
    before, plan = splits.plan, whole.plan
    first, last = len(before.series.times), len(plan.series.times)
    borders = Borders(before.borders.train, first, last)
    if before.series.items is not None and plan.series.items is not None:
        places, ends = plan.series.items.places, plan.series.items.lengths
        trained = before.borders.each or [(before.borders.train,)] * len(places)
        each = zip(trained, places + before.series.items.lengths, places + ends, strict=True)
        borders = replace(
            borders, each=tuple((train[0], int(begin), int(end)) for train, begin, end in each)
        )
    plan = replace(plan, config=before.config, borders=borders)
    return Splits(plan, plan.fit_schema()).with_effects(splits.schema.known.effects)


def held_back(task: Task) -> tuple[Splits, Splits]:
    """The splits of all rows of a task but the last HELD_BACK of each series, and of all."""
    frame = task.frame.sort_values(["unique_id", "ds"], kind="stable").reset_index(drop=True)
    by = frame.groupby("unique_id")["y"]
    held = np.maximum(by.transform("size") * HELD_BACK, 2 * task.horizon).astype(int)
    front = frame[by.cumcount(ascending=False) >= held].reset_index(drop=True)
    one = frame["unique_id"].nunique() == 1
    frame, front = (rows.drop(columns="unique_id") if one else rows for rows in (frame, front))
    loaded = Forecaster(
        "prob", task.horizon, target="y", id=None if one else "unique_id", time="ds",
        future_covariates=list(task.known) or None, freq=task.freq, device="cpu",
    )._load()  # fmt: skip
    splits = make_splits(make_plan(*take_frame(loaded, front, _quiet)))
    whole = make_splits(make_plan(*take_frame(loaded, frame, _quiet)), known=None)
    return splits, whole


def measure(name: str) -> dict[str, Any]:
    """The row of a set."""
    task = SETS[name]()
    splits, whole = held_back(task)
    tried, model = train_anew(splits, "cpu", _quiet)
    _, intervals, _, done = validate(splits, model, "cpu")
    found = judge(splits, model, "cpu", intervals, tried, done)
    after = later(splits, whole)
    came = judge(after, model, "cpu", None, tried)
    best = found.best_floor
    return {
        "kind": "verdicts", "task": name, "horizon": task.horizon, "freq": task.freq,
        "command": f"python -m benchmarks.verdicts --tasks {name!r}",
        "commit": commit(), "hardware": hardware("cpu"),
        "windows": found.model.windows, "later_windows": came.model.windows,
        "best_floor": best, "outcome": found.outcome, "chosen_there": chosen_there(found),
        "ratio": found.model.mse / found.floors[best].mse,
        "later_ratio": came.model.mse / came.floors[best].mse,
        "covered": covered(splits, model, intervals),
        "later_judged": covered(after, model, intervals),
        "later_served": covered(after, model, found.recalibrated or intervals),
    }  # fmt: skip


def _quiet(sentence: str) -> None:
    pass


def chosen_there(found: Evaluation) -> str:
    """The outcome against the best floor on the windows that chose it."""
    return Verdict.of(*found.paired[found.best_floor])


def covered(splits: Splits, model: Blend, intervals: Intervals | None) -> float | None:
    """The share of the test values that the 80 % band holds."""
    if intervals is None:
        return None
    own = Coverage(model, intervals, splits.schema.target_scaler)
    score(lambda batch: own.take(batch, model(*batch.asked)), splits.test("cpu"))
    band = own.record(splits.schema.targets).band("80")
    return band["coverage"] if band else None


def simulated(count: int) -> str:
    """How often a model that is as good as each of thirteen floors has an outcome."""
    random, horizon, blank = np.random.default_rng(0), 24, np.ones((24, 1))
    rows = ["| horizons of test | better | worse | worse, where the floor was chosen |"]
    rows += ["| --- | --- | --- | --- |"]
    for horizons in (12, 25, 50, 100):
        tally: Counter[str] = Counter()
        for _ in range(count):
            steps = random.gamma(1.0, size=horizons * horizon)  # hard hours are hard for all
            errors = [np.convolve(each, np.ones(horizon) / horizon, "valid")
                      for each in steps * random.gamma(1.0, size=(14, len(steps)))]  # fmt: skip
            model, *floors = (Score(len(each), each.mean() * blank, blank, each) for each in errors)
            named = {str(number): floor for number, floor in enumerate(floors)}
            paired = {
                key: paired_interval(model.by_window - floor.by_window, horizon)
                for key, floor in named.items()
            }
            unit = Scaler(np.zeros(1), np.ones(1))
            found = Evaluation(model, named, {}, ("y",), unit, np.ones(1), paired)
            tally[found.outcome] += 1
            tally["there"] += chosen_there(found) == Verdict.WORSE
        shares = [tally[key] / count for key in (Verdict.BETTER, Verdict.WORSE, "there")]
        rows.append(f"| {horizons} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--simulated", type=int, default=1000)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(simulated(asked.simulated), flush=True)
    for name in asked.tasks:
        file = RESULTS / f"verdicts-{name}.json".replace(" ", "_")
        if not file.exists():
            file.write_text(json.dumps(measure(name), indent=1) + "\n")
            print(f"{name}: {pd.Series(json.loads(file.read_text())).to_dict()}", file=sys.stderr)


if __name__ == "__main__":
    main()
