"""Forecasts of series that training never saw, after few rows or none: a table as Markdown.

    python -m benchmarks.newcomers
    python -m benchmarks.newcomers --nn5 FOLDER/nn5/nn5.csv

Without a file, the panel is a made-up chain: the daily sales of shops, whose level depends on
region and format, with a weekly profile, a trend, shocks that all share, and promotions known
ahead. A third of the series is left out of training, and so are the last eight weeks of all. The
two horizons there are forecast from the newest rows of each series that was left out. Errors are
divided by the mean change from week to week of that series. Alone: with its own scale, by the parts
of the model that need no more rows, as nothing stands in; of fewer than all these need, none.
"""

import argparse
from dataclasses import replace

import numpy as np
import pandas as pd

from forecaster import Forecaster
from forecaster.base.errors import DataError
from forecaster.forecast.history import read
from forecaster.forecast.predictor import BAND, Predictor
from forecaster.forecast.question import Question

WEEK = np.array([-0.35, -0.2, -0.1, 0.0, 0.25, 0.5, -0.1])
"""The logarithm of the sales of each weekday, about their mean."""
ROWS, HORIZON = (0, 1, 7, 28, 90), 28
NAMES = ("all parts", "alone", "seasonal naive", "mean of its group", "band", "band alone")


def chain(shops: int, days: int, seed: int) -> pd.DataFrame:
    """The sales of shops, a row for each day of each."""
    random = np.random.default_rng(seed)
    region, form = random.integers(3, size=shops), random.integers(2, size=shops)
    level = 5 + np.array([0.0, 0.4, -0.5])[region] + np.array([0.0, 0.9])[form]
    level = level + random.normal(0, 0.25, shops)
    day, shock = np.arange(days), random.normal(0, 0.04, days)
    shared = np.convolve(shock, 0.8 ** np.arange(30))[:days] + 0.08 * np.sin(day / 58)
    week = WEEK[day % 7] * (0.7 + 0.6 * form[:, None])
    week = week + random.normal(0, 0.05, (shops, 7))[:, day % 7]
    trend = (0.1 + random.normal(0, 0.1, shops))[:, None] * day / 365
    promotion = random.random((shops, days // 7 + 1)) < 0.15
    promotion = np.repeat(promotion, 7, axis=1)[:, :days]
    noise = random.normal(0, 0.12, (shops, days))
    sales = np.exp(level[:, None] + shared + week + trend + 0.3 * promotion + noise)
    return pd.DataFrame({
        "shop": np.repeat([f"shop{place:03}" for place in range(shops)], days),
        "region": np.repeat(np.array(["north", "south", "west"])[region], days),
        "format": np.repeat(np.array(["city", "large"])[form], days),
        "day": np.tile(pd.date_range("2022-01-01", periods=days), shops),
        "promotion": promotion.reshape(-1).astype(int),
        "sales": sales.round(1).reshape(-1),
    })  # fmt: skip


def machines(file: str) -> pd.DataFrame:
    """The withdrawals of NN5, in the form of a chain without attributes."""
    wide = pd.read_csv(file)
    wide["day"] = pd.date_range("1996-03-18", periods=len(wide))
    return wide.melt("day", var_name="shop", value_name="sales")


def cut(question: Question, rows: int) -> Question:
    """The question about series without a name, of which only the newest rows are there."""
    past = question.values.shape[1]
    values = question.values.copy()
    values[:, : max(past - rows, 0)] = np.nan
    names, counts = [None] * len(question), [min(rows, past)] * len(question)
    return replace(question, values=values, items=names, rows=counts)


def measure(frame: pd.DataFrame, seed: int, time_limit: str) -> np.ndarray:
    """The figures (rows, NAMES) of one panel."""
    static = [name for name in ("region", "format") if name in frame]
    ahead = [name for name in ("promotion",) if name in frame]
    table = frame.pivot(index="day", columns="shop", values="sales")
    names = np.random.default_rng(seed).permutation(table.columns)
    unseen, days = sorted(names[: len(names) // 3]), table.index
    seen = sorted({*names} - {*unseen})
    trained = frame[frame["shop"].isin(seen) & (frame["day"] <= days[-2 * HORIZON - 1])]
    model = Forecaster(
        horizon=HORIZON, target="sales", id="shop", time="day", static=static or None,
        future_covariates=ahead or None, time_limit=time_limit, seed=seed,
    ).fit(trained).fitted  # fmt: skip
    record = model.bundle.record.model_copy(update={"newcomers": None})
    plain = Predictor(replace(model.bundle, record=record), "cpu")
    group = frame.groupby("shop")[static].first().apply(tuple, axis=1) if static else None
    figures = []
    for end in (len(days) - 2 * HORIZON, len(days) - HORIZON):
        rows = frame[
            frame["shop"].isin(unseen) & (frame["day"] < days[end] + pd.Timedelta(days=HORIZON))
        ]
        rows = rows.assign(sales=rows["sales"].where(rows["day"] < days[end]))
        rows = rows if ahead else rows[rows["day"] < days[end]]
        (question,) = read(model.form, rows, levels=BAND).questions()
        before, after = table[unseen].to_numpy()[:end].T, table[unseen].to_numpy()[end:][:HORIZON].T
        scale = np.abs(before[:, 7:] - before[:, :-7]).mean(axis=1)[:, None]
        newest = table[seen].to_numpy()[len(days) - 2 * HORIZON - HORIZON :][:HORIZON]
        weekly = newest.reshape(4, 7, -1).mean(axis=0)
        same = [[group is None or group[a] == group[b] for b in seen] for a in unseen]
        alike = [np.array(row) if any(row) else np.ones(len(seen), bool) for row in same]
        means = np.stack([weekly[:, who].mean(axis=1) for who in alike])
        for count in ROWS:
            asking, nothing = cut(question, count), np.full((*after.shape, 1, 2), np.nan)
            forecasts = {}
            for name, served in (("all parts", model), ("alone", plain)):
                try:
                    forecasts[name] = served.forecast_quantiles(asking, BAND)
                except DataError:
                    forecasts[name] = nothing[..., 0], nothing
            season = 7 if count >= 7 else 1
            last = before[:, -min(count, 7) :] if season == 7 else before[:, -1:]
            naive = np.tile(last, HORIZON)[:, :HORIZON] if count else np.full(after.shape, np.nan)
            points = [forecasts["all parts"][0][..., 0], forecasts["alone"][0][..., 0], naive,
                      np.tile(means, 4)]  # fmt: skip
            line = [(np.abs(after - point) / scale).mean() for point in points]
            for name in ("all parts", "alone"):
                low, high = np.moveaxis(forecasts[name][1][:, :, 0], -1, 0)
                held = ((after >= low) & (after <= high)).mean()
                line.append(np.nan if np.isnan(low).any() else held)
            figures.append(line)
    return np.reshape(figures, (2, len(ROWS), -1)).mean(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shops", type=int, default=60)
    parser.add_argument("--days", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=3, help="panels, or parts that are left out")
    parser.add_argument("--time-limit", default="60s", help="for each training")
    parser.add_argument("--nn5", help="the file of NN5, in place of a chain")
    given = parser.parse_args()
    tables = []
    for seed in range(given.seeds):
        frame = machines(given.nn5) if given.nn5 else chain(given.shops, given.days, seed)
        tables.append(measure(frame, seed, given.time_limit))
    print("| rows | " + " | ".join(NAMES) + " |\n|" + " --- |" * (1 + len(NAMES)))
    for rows, line in zip(ROWS, np.mean(tables, axis=0), strict=True):
        cells = [f"{value:.2f}" for value in line[:4]] + [f"{value:.0%}" for value in line[4:]]
        print(f"| {rows} | " + " | ".join(cells).replace("nan%", "").replace("nan", "") + " |")


if __name__ == "__main__":
    main()
