# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # A panel, future covariates and scenarios
#
# Hourly counts of pedestrians at three places in Melbourne (`pip install
# -e '.[all,sample]'`). One model forecasts all of them. It reads which days are
# public holidays, which is known ahead; then we ask: what if tomorrow were a holiday?

# %%
from importlib.resources import files

import holidays
import pandas as pd

from forecaster import Forecaster
from forecaster.errors import ForecasterError

raw = pd.read_csv(files("tsdata") / "fpp3" / "pedestrian.csv")
free = holidays.country_holidays("AU", subdiv="VIC", years=(2014, 2015, 2016, 2017))
panel = pd.DataFrame(
    {
        "unique_id": raw["Sensor"],
        "ds": pd.to_datetime(raw["Date_Time"]),
        "y": raw["Count"].astype(float),
        "holiday": [float(day in free) for day in raw["Date"]],
    }
)
panel = panel[panel["unique_id"] != "Birrarung Marr"]  # months of its data are missing
panel.groupby("unique_id")["y"].describe().round(0)

# %% [markdown]
# Some hours are missing. Forecaster never fills them in silently: it refuses such gaps until you
# choose what to do about them.

# %%
choices = {
    "attention": "full",
    "horizon": 24,
    "lookback": 168,
    "target": "y",
    "future_covariates": "holiday",
    "epochs": 2,
    "seed": 0,
    "options": {"train.stride": 6},
}
try:
    Forecaster(**choices).fit(panel)
except ForecasterError as error:
    print(error)

# %% [markdown]
# A missing count may stay missing: the model masks it. But whether an hour is on a holiday is
# always known, so the new rows get this value.

# %%
hours = pd.date_range(panel["ds"].min(), panel["ds"].max(), freq="h")
index = pd.MultiIndex.from_product([panel["unique_id"].unique(), hours], names=["unique_id", "ds"])
whole = panel.set_index(["unique_id", "ds"]).reindex(index).reset_index()
local = whole["ds"].dt.tz_convert("Australia/Melbourne").dt.date
whole["holiday"] = local.isin(list(free)).astype(float)
model = Forecaster(**choices).fit(whole)
model

# %% [markdown]
# The last line says whether the model beats the best forecast that needs no training, although the
# training is short. For a real model use more epochs and every window (leave out `epochs` and
# `options`).
#
# The hours after the data, as they will be and as if they were on a public holiday:

# %%
ahead = pd.date_range(hours[-1], periods=25, freq="h")[1:]
usual = pd.DataFrame(
    [(name, hour, 0.0) for name in whole["unique_id"].unique() for hour in ahead],
    columns=["unique_id", "ds", "holiday"],
)
free_day = usual.assign(holiday=1.0)
as_usual, as_holiday = (model.predict(future=each) for each in (usual, free_day))
change = as_holiday["y"] - as_usual["y"]
change.groupby(as_usual["unique_id"]).sum().round(0)

# %%
model.plot(
    future={"a working day": usual, "a public holiday": free_day},
    series="Southern Cross Station",
)

# %% [markdown]
# The railway station loses its commuters. The model learned that from about twenty holidays, so
# the size of the effect is uncertain. How good such a model is at several dates:

# %%
model.cross_validate(whole, cutoffs=2).set_index("first")[["mse", "mae", "best_floor_mse"]].round(3)
