"""What following the values does to the coverage of the 80 % band (`forecaster recalibrate`).

    python benchmarks/adaptive.py

A model of each series is trained with defaults to forecast a day (exchange rates: a week), and
forecasts the test split from the end of every day, as trained and as if `recalibrate` ran every
night. Coverage is over 90 origins: the smallest and the largest, and how many of these quarters
have 75 to 85 %. Then the level of the series rises by two standard deviations, or its distance from
the mean of the last 28 days doubles, in the middle of the test split: the coverage over the first
30 origins after it, and over the 90 that follow.
"""

import argparse
import os
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from forecaster.config.run_config import load
from forecaster.evaluate.problem import Problem, find_data, make_problem
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.historical import replay
from forecaster.forecast.predictor import Predictor
from forecaster.record.adapting import by_day, follow
from forecaster.run import experiment

SERIES = {
    "ETTh1": 24, "ETTh2": 24, "epf-NP": 24, "epf-PJM": 24, "epf-BE": 24, "epf-DE": 24,
    "vic_elec": 48, "electricity-mean": 24, "traffic-sensor0": 24, "exchange_rate": 1,
}  # fmt: skip
"""Cards of long series, and the steps of a day."""
QUARTER, AFTER = 90, 30


def quiet(text: object) -> None:
    pass


def rows_of(problem: Problem, bundle: Bundle, day: int, values: np.ndarray) -> pd.DataFrame:
    """What a ledger would have of the test split of a series with other `values`."""
    series, model, horizon = problem.series, Predictor(bundle, "cpu"), bundle.horizon
    table = pd.DataFrame(values, columns=list(series.columns))
    table.insert(0, bundle.schema.time, series.times)
    for place, name in enumerate(series.known_columns if series.known is not None else ()):
        assert series.known is not None
        table[name] = series.known[:, place]
    start = problem.borders.validation
    found = replay(model, table, horizon, day, start=start, levels=(0.1, 0.9))
    count, steps, width = found.came.shape
    ahead = found.origins[:, None] + np.arange(1, steps + 1)
    rows = pd.DataFrame({
        "digest": "trained", "target": np.tile(bundle.schema.targets, count * steps),
        "origin": np.repeat(series.times[found.origins], steps * width),
        "time": np.repeat(series.times[ahead.reshape(-1)], width),
        "value": found.came.reshape(-1),
        **{name: found.forecasts[..., place].reshape(-1)
           for place, name in enumerate(("forecast", "q0.1", "q0.9"))},
    })  # fmt: skip
    return rows.dropna(subset=["value"])


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """By origin, the share of values in the band as trained and as it follows what came before, and
    its width over that as trained."""
    parts = []
    for target, path in follow(rows, {"trained": {t: {} for t in rows["target"].unique()}}).items():
        own = rows[rows["target"] == target]
        width = np.exp(np.append(0.0, path["0.8"].to_numpy())[by_day(own)[2]])
        low = own["forecast"] - (own["forecast"] - own["q0.1"]) * width
        high = own["forecast"] + (own["q0.9"] - own["forecast"]) * width
        trained, follows = (own["value"].between(own["q0.1"], own["q0.9"]),
                            own["value"].between(low, high))  # fmt: skip
        parts.append(pd.DataFrame(
            {"origin": own["origin"], "trained": trained, "follows": follows, "width": width}
        ))  # fmt: skip
    return pd.concat(parts).groupby("origin").mean()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("series", nargs="*", default=[*SERIES])
    names = parser.parse_args().series
    print("| series | origins | as trained: least, most | in 75–85 % | following: least, most "
          "| in 75–85 % | width | level + 2 sd | noise x 2 |")  # fmt: skip
    print("| --- " * 9 + "|")
    for name in names:
        day = SERIES[name]
        flags = {"data": name, "horizon": max(day, 7), "features": "S"}
        if name.startswith("epf"):
            flags.pop("features")
        with TemporaryDirectory() as folder:
            os.chdir(folder)
            loaded = load(flags=flags)
            bundle = experiment.run(loaded, quiet, quiet).bundle
            problem = make_problem(*find_data(loaded, quiet), effects=None)
        values = problem.series.values.astype(float)
        start, steps = problem.borders.validation, len(values)
        middle = start + (steps - start) // 2
        own = [problem.series.columns.index(target) for target in bundle.schema.targets]
        raised, noisy = values.copy(), values.copy()
        raised[middle:, own] += 2 * np.nanstd(values[: problem.borders.train, own], axis=0)
        usual = pd.DataFrame(values[:, own]).rolling(28 * day, min_periods=1).mean().to_numpy()
        noisy[middle:, own] += (values[:, own] - usual)[middle:]
        plain, *others = (
            coverage(rows_of(problem, bundle, day, each)) for each in (values, raised, noisy)
        )
        cells = [name, str(len(plain))]
        for how in ("trained", "follows"):
            quarter = plain[how].rolling(QUARTER).mean().dropna()
            cells += [f"{quarter.min():.0%}, {quarter.max():.0%}",
                      f"{quarter.between(0.75, 0.85).mean():.0%}"]  # fmt: skip
        cells.append(f"{plain['width'].mean():.2f}")
        changed = problem.series.times[middle]
        for each in others:
            later = each["follows"][each.index >= changed]
            cells.append(f"{later[:AFTER].mean():.0%}, {later[AFTER : AFTER + QUARTER].mean():.0%}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
