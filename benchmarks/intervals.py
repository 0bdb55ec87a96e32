"""What each factor of the prediction intervals is worth, on every test window (docs/evaluation.md).

    FORECASTER_DATA=... python benchmarks/intervals.py --data all
    FORECASTER_DATA=... python benchmarks/intervals.py --data ETTh1 epf-NP --horizon 96

The forecast is the blend of the closed forms with the configuration of the data set, without a
network. The calibrating half of validation fits the intervals by every rule, from quantiles of the
signed errors of each step and column to the rule that is served; each window is forecast once, and
measured under all rules. A cell whose file exists is not run again. epf-* has one horizon, 24.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit  # type: ignore[import-untyped]
from torch import Tensor
from training import HORIZONS, MARKETS, RESULTS

from forecaster.base.installation import commit
from forecaster.base.machine import hardware
from forecaster.config.run_config import load
from forecaster.datasets.windows import Batch
from forecaster.evaluate.figures import IntervalMetric, shown
from forecaster.evaluate.intervals import SHARES, Calibration, Coverage, fitted, sides
from forecaster.evaluate.metrics import score
from forecaster.forecast.intervals import Intervals
from forecaster.parts import Blend, fit_forms, weigh
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.record import IntervalScores

LEVELS = tuple(sorted(level for share in SHARES for level in sides(share)))
SETS = ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather")


def order_statistics(errors: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """What n errors (n, ...) of a forecast add to it at each level, (..., Q).

    Of the sorted errors, levels above 1/2 take number ceil(a (n + 1)), levels below it number
    floor(a (n + 1)); one that n errors cannot support is infinite. Missing errors do not count.
    """
    errors = np.sort(errors, axis=0)  # nan last
    n = (~np.isnan(errors)).sum(axis=0)
    offsets = np.empty((*errors.shape[1:], len(levels)))
    for q, level in enumerate(levels):
        place = np.round(level * (n + 1), 9)  # 0.7 * 10 is a little more than 7
        number = (np.floor if level < 0.5 else np.ceil)(place).astype(int)
        at = np.clip(number - 1, 0, len(errors) - 1)
        own = np.take_along_axis(errors, at[None], axis=0)[0].astype(float)
        offsets[..., q] = np.where(number < 1, -np.inf, np.where(number > n, np.inf, own))
    return offsets


def signed(found: Calibration) -> Intervals:
    """Quantiles of the signed errors of each step and column."""
    return bare(found, order_statistics(found.errors, LEVELS))


def symmetric(found: Calibration) -> Intervals:
    """Quantiles of the sizes of the errors of each step and column."""
    levels = np.array(LEVELS)
    sizes = order_statistics(np.abs(found.errors), np.abs(2 * levels - 1).tolist())
    return bare(found, sizes * np.sign(levels - 0.5))


def bare(found: Calibration, offsets: np.ndarray) -> Intervals:
    """Intervals of the same width for every window."""
    return Intervals(LEVELS, offsets, np.ones(offsets.shape[:-1]), len(found.chosen))


def factors(*names: str) -> Callable[[Calibration], Intervals]:
    """The served rule with only these of its factors "season", "deviation" and "few horizons"."""

    def rule(found: Calibration) -> Intervals:
        conditions, parts, recent = found.conditions, found.parts, found.recent
        if "season" not in names:
            conditions = replace(conditions, phases=np.ones((1, recent.shape[1])))
            parts = np.zeros_like(parts)
        if "deviation" not in names:  # no deviation is known, so every window has the usual width
            recent = np.full_like(recent, np.nan)
        own = fitted(found.errors, recent, parts, conditions, found.windows.horizons, LEVELS)
        if "few horizons" in names:
            return own
        levels = np.array(LEVELS)
        return replace(
            own, offsets=own.offsets * ndtri(levels) / stdtrit(2 * found.windows.horizons, levels)
        )

    return rule


RULES: dict[str, Callable[[Calibration], Intervals]] = {
    "signed errors, each step and column": signed,
    "their sizes": symmetric,
    "scale by step and column, size by column": factors(),
    "and season": factors("season"),
    "and deviation": factors("season", "deviation"),
    "and few horizons: the rule": factors("season", "deviation", "few horizons"),
}
"""Each with what the one before it lacks; the last one is served."""


def measure(config: str, data: str, horizon: int) -> dict[str, Any]:
    """The row of a cell."""
    begun = time.monotonic()
    loaded = load(config, [], {"data": data, "horizon": horizon})
    splits = make_splits(make_plan(*find_data(loaded, lambda text: None)))
    fold = splits.fold("cpu")
    parts = fit_forms(fold)[0]
    blend = Blend.weighed(parts, weigh(parts, fold.choose)).eval()
    found = Calibration(blend, splits.calibrating("cpu"), LEVELS)
    found.complete()
    names, scaler = splits.schema.targets, splits.schema.target_scaler
    rules = {name: Coverage(blend, rule(found), scaler) for name, rule in RULES.items()}
    test = splits.test("cpu")

    def forecast(batch: Batch) -> Tensor:
        ahead: Tensor = blend(*batch.asked)
        for rule in rules.values():
            rule.take(batch, ahead)
        return ahead

    first = score(forecast, test)
    return {
        "kind": "intervals",
        "command": f"python benchmarks/intervals.py --data {data} --horizon {horizon}",
        "data": data,
        "features": splits.plan.config.data.features,
        "past": splits.plan.config.window.past,
        "horizon": horizon,
        "data_digest": splits.plan.dataset.digest,
        "commit": commit(),
        "hardware": hardware("cpu"),
        "seconds": round(time.monotonic() - begun, 1),
        "mse": first.mse,
        "windows": first.windows,
        "every": test.every,
        "calibration_windows": len(found.chosen),
        "horizons": found.windows.horizons,
        "rules": {name: kept(rule.record(names)) for name, rule in rules.items()},
    }


def kept(found: IntervalScores) -> dict[str, Any]:
    """For each share with intervals: their metrics, and the ends of their coverage by column."""
    rows = {}
    for share, band in found.bands.items():
        columns = [own["coverage"] or 0.0 for own in band.columns.values()]
        rows[share] = {
            **{metric.name: band[metric.name] for metric in shown(IntervalMetric, "tables")},
            "lowest": min(columns),
            "highest": max(columns),
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["all"], help="cards, or all")
    parser.add_argument("--horizon", type=int, nargs="+", default=list(HORIZONS))
    arguments = parser.parse_args()
    markets = [f"epf-{market}" for market in MARKETS]
    RESULTS.mkdir(exist_ok=True)
    for data in [*SETS, *markets] if "all" in arguments.data else arguments.data:
        for horizon in [24] if data in markets else arguments.horizon:
            file = RESULTS / f"intervals-{data}-{horizon}.json"
            if not file.exists():
                row = measure("epf" if data in markets else data, data, horizon)
                file.write_text(json.dumps(row, indent=1) + "\n")
                print(f"{data}, T = {horizon}: {row['seconds']} s", file=sys.stderr)


if __name__ == "__main__":
    main()
