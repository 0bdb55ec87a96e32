"""Generated series of the shapes that users' small files have: few rows, often growing.

Each function is seeded and returns a frame of two columns, `when` and `value`.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd


def monthly(seed=0):
    """144 months like AirPassengers: growth, and a yearly season that grows with the level."""
    random = np.random.default_rng(seed)
    growth = random.normal(0.009, 0.012, 144).cumsum()
    season = _cycle(random, 144, 12, 0.15)
    value = 120 * np.exp(growth + season + random.normal(0, 0.02, 144))
    return _frame("1990-01-01", "MS", value)


def weekly(seed=0):
    """966 weeks of a count that grows tenfold, with a mild yearly season."""
    random = np.random.default_rng(seed)
    growth = random.normal(0.0025, 0.01, 966).cumsum()
    season = _cycle(random, 966, 52, 0.04)
    value = 150_000 * np.exp(growth + season + random.normal(0, 0.01, 966))
    return _frame("2004-01-05", "W-MON", value.round())


def daily(seed=0):
    """700 days with a weekly season and a level that wanders."""
    random = np.random.default_rng(seed)
    level = 200 + random.normal(0, 2, 700).cumsum()
    value = level + 20 * _cycle(random, 700, 7, 1.0) + random.normal(0, 10, 700)
    return _frame("2022-01-01", "D", value)


def three_years(seed=0):
    """36 months with a yearly season and a little growth."""
    random = np.random.default_rng(seed)
    value = 50 + 0.3 * np.arange(36) + 8 * _cycle(random, 36, 12, 1.0) + random.normal(0, 2, 36)
    return _frame("2021-01-01", "MS", value)


SHAPES: dict[str, tuple[Callable[[int], pd.DataFrame], int]] = {
    "monthly": (monthly, 12),
    "weekly": (weekly, 26),
    "daily": (daily, 28),
    "three_years": (three_years, 3),
}
"""Each shape with a typical horizon."""


def _cycle(random, rows, season, size):
    """A smooth cycle of two waves with random phases and a standard deviation of about `size`."""
    steps = 2 * np.pi * np.arange(rows)[:, None] * [1, 2] / season
    waves = np.sin(steps + random.uniform(0, 2 * np.pi, 2)) @ [1.2, 0.7]
    return np.asarray(size * waves)


def _frame(first, freq, value):
    when = pd.date_range(first, periods=len(value), freq=freq)
    return pd.DataFrame({"when": when, "value": value})
