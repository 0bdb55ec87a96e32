"""How often the alarms of `forecaster score` are false, and how soon they see a shift.

    python benchmarks/alarms.py --streams 400

Each stream is a year of hourly values, forecast every day by the mean of the last 28 days at the
same hour, with a band whose width follows the last 28 days; the first 60 days are its test split.
Noise is independent, or remembers hours (autocorrelation 0.9), or its size has a season of a year,
between a half and one and a half; horizons are a day, or three that overlap. With a shift, the
level rises by two standard deviations of the series in the middle of the year.
"""

import argparse
from itertools import product

import numpy as np
import pandas as pd

from forecaster.record.alarms import alarms, origins

BEFORE, TEST, YEAR = 28, 60, 365
SHIFTED = 180
"""The day of the year on which the level rises."""


def stream(
    random: np.random.Generator, remembers: float, seasonal: bool, days: int, shift: float
) -> tuple[pd.DataFrame, float]:
    """The rows of a year's ledger, matched, and the ratio to the naive error on the test split."""
    count = 24 * (BEFORE + TEST + YEAR + days)
    hours = np.arange(count)
    noise = random.normal(size=count) * np.sqrt(1 - remembers**2)
    for hour in range(1, count) if remembers else ():
        noise[hour] += remembers * noise[hour - 1]
    if seasonal:
        noise *= 1 + 0.5 * np.sin(2 * np.pi * (hours / (24 * 365) + random.random()))
    values = 2 * np.sin(2 * np.pi * hours / 24) + noise
    std = values[: 24 * (BEFORE + TEST)].std()
    values[24 * (BEFORE + TEST + SHIFTED) :] += shift * std
    table = values.reshape(-1, 24)
    parts = []
    for day in range(BEFORE, BEFORE + TEST + YEAR):
        past = table[day - BEFORE : day]
        mean, off = past.mean(axis=0), (past - past.mean(axis=0)).std()
        origin = pd.Timestamp("2025-01-01") + pd.Timedelta(hours=24 * day - 1)
        parts.append({
            "origin": origin, "mean": np.tile(mean, days), "off": off,
            "naive": np.tile(table[day - 1], days), "value": table[day : day + days].reshape(-1),
        })  # fmt: skip
    steps = np.arange(1, 24 * days + 1)
    rows = pd.DataFrame({
        "origin": np.repeat([each["origin"] for each in parts], len(steps)),
        "step": np.tile(steps, len(parts)), "scale": std,
        "forecast": np.concatenate([each["mean"] for each in parts]),
        "naive": np.concatenate([each["naive"] for each in parts]),
        "value": np.concatenate([each["value"] for each in parts]),
        "width": np.repeat([each["off"] for each in parts], len(steps)),
    })  # fmt: skip
    rows["time"] = rows["origin"] + pd.to_timedelta(rows["step"], unit="h")
    rows["error"], rows["naive_error"] = (
        rows["forecast"] - rows["value"],
        rows["naive"] - rows["value"],
    )
    test = rows["origin"] < rows["origin"].iloc[0] + pd.Timedelta(days=TEST)
    wide = np.quantile((rows["error"].abs() / rows["width"])[test], 0.8)
    rows["q0.1"] = rows["forecast"] - wide * rows["width"]
    rows["q0.9"] = rows["forecast"] + wide * rows["width"]
    usual = float(rows["error"][test].abs().mean() / rows["naive_error"][test].abs().mean())
    return rows[~test], usual


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=400)
    count = parser.parse_args().streams
    print("| noise | horizon | false alarms in a year | shifts seen | median delay, days |")
    print("| --- | --- | --- | --- | --- |")
    for remembers, seasonal, days in product((0.0, 0.9), (False, True), (1, 3)):
        random, false, delays = np.random.default_rng(0), 0, []
        for number in range(count + count // 4):
            shift = 0.0 if number < count else 2.0
            rows, usual = stream(random, remembers, seasonal, days, shift)
            told = alarms(origins(rows[rows["step"] <= 24], 24), usual, YEAR)
            since = [each.since for each in told if each.since is not None]
            if not shift:
                false += bool(since)
                continue
            begun = rows["origin"].iloc[0] + pd.Timedelta(days=SHIFTED)
            after = [time for time in since if time >= begun]
            delays.append((min(after) - begun).days + 1 if after else np.inf)
        seen = np.isfinite(delays)
        words = " and ".join(
            (["autocorrelated"] if remembers else []) + (["seasonal"] if seasonal else [])
        )
        print(
            f"| {words or 'independent'} | {days} d | {false / count:.1%} | {np.mean(seen):.0%} "
            f"| {np.median(delays):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
