"""How right the effects of inputs known ahead are: series whose effects are known.

    python -m benchmarks.effects                       seed 0, models with the default recipe
    python -m benchmarks.effects --seeds 6 --estimate  the estimates alone, without training

Each series is a load with a daily cycle and one input: weather that acts linearly, below a bend, or
late; a promotion that multiplies; an input that only moves with the clock; and one that is
constant. The model learns all rows but the last horizon, and forecasts that with the input as it
was and changed. Printed are the mean change of its forecast and the true one, or that the data do
not say.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from forecaster.datasets.dataset import Items
from forecaster.plan import effects as estimates
from forecaster.plan.effects import Shift


class Case(NamedTuple):
    """`change` of the input over the horizon moves the target by `truth`; None: nobody can know."""

    name: str
    frame: pd.DataFrame
    day: int
    horizon: int
    change: float
    truth: float | None


def slow(values: np.ndarray, half_life: float) -> np.ndarray:
    return pd.Series(values).ewm(halflife=half_life).mean().to_numpy()


def cases(seed: int) -> Iterator[Case]:
    for name, day, days in (("90 days of half-hours", 48, 90), ("a year of hours", 24, 365)):
        random = np.random.default_rng(seed)
        steps = np.arange(day * days)
        times = pd.date_range("2025-01-01", periods=len(steps), freq=f"{24 * 60 // day}min")
        noise = random.normal(0, 0.8 * (24 / day) ** 0.5, len(steps))
        weather = (
            9 + 6 * np.sin(2 * np.pi * (steps / day - 100) / 365) + 30 * (slow(noise, day / 5))
        )
        weather += 3 * np.sin(2 * np.pi * (steps / day - 0.4))
        base = 800 + 120 * np.sin(2 * np.pi * (steps / day - 0.3)) + 50 * (times.day_of_week < 5)
        base += random.normal(0, 8, len(steps))
        warmer = weather.copy()
        warmer[-day:] += 4
        clock = np.cos(2 * np.pi * steps / day)

        def case(kind: str, values: np.ndarray, of: np.ndarray, to: np.ndarray | None) -> Case:
            frame = pd.DataFrame({"time": times, "load": base + of, "input": values})  # noqa: B023
            truth = None if to is None else float((to - of)[-day:].mean())  # noqa: B023
            return Case(f"{kind}, {name}", frame, day, day, 4.0, truth)  # noqa: B023

        yield case("line", weather, -7 * weather, -7 * warmer)
        cold, less = (12 * np.maximum(0, 12 - each) for each in (weather, warmer))
        yield case("bend", weather, cold, less)
        late, later = (-7 * slow(each, day / 4) for each in (weather, warmer))
        yield case("delay", weather, late, later)
        yield case("clock", clock, -20 * clock, None)
    random = np.random.default_rng(seed)
    promotion = (random.random(1000) < 0.1) * 1.0
    season = 80 * (1 + 0.3 * np.sin(2 * np.pi * np.arange(1000) / 7))
    frame = pd.DataFrame({"time": pd.date_range("2023-01-01", periods=1000), "input": promotion})
    frame["load"] = season * (1 + 0.5 * promotion) + random.normal(0, 4, 1000)
    yield Case("promotion, 1000 days", frame, 7, 14, 1.0, float(0.5 * season[-14:].mean()))
    yield Case("constant, 1000 days", frame.assign(input=0.0), 7, 14, 1.0, None)


def answer(case: Case) -> tuple[float, bool]:
    """The change of the forecast of a model, and whether it knows the effect."""
    from forecaster import Forecaster

    past, ahead = case.frame[: -case.horizon], case.frame[-case.horizon :].drop(columns="load")
    model = Forecaster("prob", horizon=case.horizon, target="load", future_covariates="input")
    model.fit(past)
    other = ahead.assign(input=ahead["input"] + case.change)
    first, second = (model.predict(past, future=each)["load"] for each in (ahead, other))
    return float((second - first).mean()), not model.bundle.schema.known.unclear


def estimate(case: Case) -> tuple[float, bool]:
    """The same of the effects alone, from the first 70 % of the rows."""
    target, known = (case.frame[[name]].to_numpy() for name in ("load", "input"))
    rows = int(0.7 * len(target))
    std = target[:rows].std(), known[:rows].std() or 1.0
    target, known = (target - target[:rows].mean()) / std[0], (known - known[:rows].mean()) / std[1]
    seasons = (case.day, 7 * case.day) if case.day > 7 else (7,)
    effects = estimates.fit(
        target, known, Items.single(len(target)), [rows], seasons, 4 * case.horizon
    )
    if not effects.terms:
        return 0.0, effects.determined[0]
    other = known.copy()
    other[-case.horizon :] += case.change / std[1]
    shift = Shift(effects)
    change = (shift(torch.from_numpy(other)) - shift(torch.from_numpy(known)))[-case.horizon :, 0]
    return float(change.mean() * std[0]), effects.determined[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 to SEEDS - 1")
    parser.add_argument("--estimate", action="store_true", help="without training models")
    options = parser.parse_args()
    for seed in range(options.seeds):
        for case in cases(seed):
            found, known = (estimate if options.estimate else answer)(case)
            said = "known" if known else "the data do not say"
            truth = (
                ""
                if case.truth is None
                else f"true {case.truth:8.1f} {found / case.truth - 1:+.0%}"
            )
            print(f"{seed}  {case.name:30} {found:8.1f}  {truth:20} {said}", flush=True)


if __name__ == "__main__":
    main()
