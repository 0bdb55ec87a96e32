"""How often the alarms of `forecaster score` are false, and how soon they see a shift.

    python benchmarks/alarms.py --years 400

A year has 365 origins, each of 1 to 24 steps, forecast by the mean of the last 28 at the same step,
with a band whose width follows these; 60 origins before it are the test split. Noise is
independent, or remembers steps (autocorrelation 0.9), or has heavy tails (Student's t, 3 degrees of
freedom), or its size has a season of a year, between a half and one and a half. It comes on top of
a season of one origin, and the naive forecast is the origin before; white noise has no season, and
is forecast by one mean and naively by its last value. What is usual is known, as the mean of all
years, or measured on the test split. In the middle of every fourth year, the level rises by two
standard deviations of the series, and the forecast follows, or never learns of it.
"""

import argparse

import numpy as np
import pandas as pd

from forecaster.record.alarms import alarms, origins

BEFORE, TEST, YEAR = 28, 60, 365
SHIFTED = 180
"""The origin of the year at which the level rises."""
STEPS = (1, 2, 3, 7, 24)
WHITE = "white noise"
NOISES = (
    "independent", "autocorrelated", "heavy tails", "seasonal", "autocorrelated, seasonal", WHITE,
)  # fmt: skip
START = pd.Timestamp("2025-01-01")
SAME = 3
"""The years of each kind whose rows go through `origins`, which has to find the same."""


def values(random: np.random.Generator, noise: str, steps: int, years: int) -> np.ndarray:
    """Series (years, origins, steps) without a shift."""
    count = steps * (BEFORE + TEST + YEAR)
    heavy = noise == "heavy tails"
    found = random.standard_t(3, (years, count)) if heavy else random.normal(size=(years, count))
    if "autocorrelated" in noise:
        for step in range(1, count):
            found[:, step] = 0.9 * found[:, step - 1] + np.sqrt(1 - 0.9**2) * found[:, step]
    if "seasonal" in noise:
        phase = np.arange(count) / (steps * YEAR) + random.random((years, 1))
        found *= 1 + 0.5 * np.sin(2 * np.pi * phase)
    if noise != WHITE and steps > 1:
        found += 2 * np.cos(2 * np.pi * np.arange(count) / steps)
    return found.reshape(years, -1, steps)


def errors(
    table: np.ndarray, shift: float, follows: bool, white: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The errors, those of the naive forecast, and the former in standard deviations of the last 28
    origins, each (years, origins, steps)."""
    std = table[:, : BEFORE + TEST].std(axis=(1, 2), keepdims=True)
    later = np.arange(table.shape[1])[:, None] >= BEFORE + TEST + SHIFTED
    came = table + shift * std * later
    mean, square = (
        np.lib.stride_tricks.sliding_window_view(each, BEFORE, axis=1)[:, :-1].mean(axis=-1)
        for past in [came if follows else table]
        for each in (past, past**2)
    )
    off = np.sqrt((square - mean**2).mean(axis=2, keepdims=True))
    naive = came[:, BEFORE - 1 : -1]
    if white:
        mean, naive = mean.mean(axis=2, keepdims=True), naive[..., -1:]
    came = came[:, BEFORE:]
    return mean - came, naive - came, (mean - came) / off


def alarmed(
    off: np.ndarray, naive: np.ndarray, wide: np.ndarray, known: tuple[float, float] | None = None
) -> np.ndarray:
    """The origin of the year after which each year (years,) is first alarmed, inf if never. `known`
    are the usual ratio and width; without them, they are those of the test split."""
    when, steps = np.full(len(off), np.inf), off.shape[2]
    for year in range(len(off)):
        one, other, width = np.abs(off[year]), np.abs(naive[year]), np.abs(wide[year])
        usual, most = known or (
            one[:TEST].mean() / other[:TEST].mean(),
            np.quantile(width[:TEST], 0.8),
        )
        found = pd.DataFrame({
            "error": one.mean(axis=1), "naive": other.mean(axis=1),
            "missed": (width > most).mean(axis=1),
        })[TEST:].set_index(START + pd.to_timedelta(steps * np.arange(YEAR), unit="h"))  # fmt: skip
        if year < SAME:
            rows = served(off[year, TEST:], naive[year, TEST:], wide[year, TEST:] / most)
            same = origins(rows, steps)[[*found]]
            pd.testing.assert_frame_equal(same, found, check_names=False, check_freq=False)
        told = alarms(found, usual, YEAR, steps)
        since = [each.since for each in told if each.since is not None]
        when[year] = (min(since) - START) / pd.Timedelta(hours=steps) if since else np.inf
    return when


def served(off: np.ndarray, naive: np.ndarray, wide: np.ndarray) -> pd.DataFrame:
    """The matched rows of a ledger with a year's errors (origins, steps); the band ends where
    `wide` is 1."""
    count, steps = off.shape
    place = np.arange(count * steps)
    origin, step = START + pd.to_timedelta(place // steps * steps, unit="h"), place % steps + 1
    return pd.DataFrame({
        "origin": origin, "step": step, "time": origin + pd.to_timedelta(step, unit="h"),
        "scale": 1.0, "value": wide.reshape(-1), "q0.1": -1.0, "q0.9": 1.0,
        "error": off.reshape(-1), "naive_error": naive.reshape(-1),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--years", type=int, default=400)
    count = parser.parse_args().years
    head = f"| noise | {' | '.join(map(str, STEPS))} |\n{'| --- ' * (len(STEPS) + 1)}|"
    lasting, followed = [head], [head]
    for noise in NOISES:
        cells: list[list[str]] = [[noise], [noise]]
        for steps in STEPS:
            table = values(np.random.default_rng(0), noise, steps, count)
            same = errors(table, 0.0, True, noise == WHITE)
            one, other, width = (np.abs(each) for each in same)
            known = float(one.mean() / other.mean()), float(np.quantile(width, 0.8))
            false = [100 * np.isfinite(alarmed(*same, each)).mean() for each in (known, None)]
            seen = []
            for follows in (False, True):
                delay = alarmed(*errors(table[::4], 2.0, follows, noise == WHITE)) - SHIFTED + 1
                delay[delay < 1] = np.inf
                seen.append(f"{100 * np.isfinite(delay).mean():.0f}/{np.median(delay):.0f}")
            cells[0].append(f"{false[0]:.1f}/{false[1]:.1f}/{seen[0]}")
            cells[1].append(seen[1])
        for rows, own in zip((lasting, followed), cells, strict=True):
            rows.append(f"| {' | '.join(own)} |")
    print(
        "Of 100 years or shifts: false alarms, the usual known and of a test split, lasting shifts"
    )
    print("that are seen, and after how many origins; by the steps of an origin:\n")
    print("\n".join(lasting), "\nShifts that the forecast follows:\n", *followed, sep="\n")


if __name__ == "__main__":
    main()
