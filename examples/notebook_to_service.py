# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # From the notebook to the service
#
# A model fitted in a notebook answers HTTP requests a few seconds later, with the same numbers.

# %%
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import pandas as pd

from forecaster import Forecaster
from forecaster.client import Client
from forecaster.errors import UnavailableError

raw = pd.read_csv(files("tsdata") / "fpp3" / "vic_elec.csv", parse_dates=["Time"])
demand = raw.set_index("Time")[["Demand"]].resample("h").mean().tail(8760)
model = Forecaster(
    attention="prob", horizon=24, lookback=168, epochs=1, seed=0, options={"train.stride": 8}
).fit(demand)
folder = model.save(Path(tempfile.mkdtemp()) / "demand")
print(*sorted(path.name for path in folder.iterdir()))

# %% [markdown]
# The service needs only the folder. In a terminal: `forecaster serve --model demand`. Here it runs
# beside the notebook, on a free port, and accepts connections from this machine only.

# %%
port = "8765"
service = subprocess.Popen(
    [sys.executable, "-m", "forecaster", "serve", "--model", str(folder), "--port", port],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
client = Client(f"http://127.0.0.1:{port}")
cards = []
while not cards:
    time.sleep(0.5)
    try:
        cards = client.models()
    except UnavailableError:
        assert service.poll() is None, "the service ended"
(card,) = cards
card["name"], card["horizon"], card["attn"]

# %% [markdown]
# One request: a frame in, a frame out. The client needs neither torch nor the model.

# %%
history = demand.tail(504)
served = client.predict(history, levels=(0.1, 0.9))
here = model.predict(history, levels=(0.1, 0.9))
error = (served - here).abs().to_numpy().max() / demand["Demand"].std()
assert error < 1e-5, "the same request, the same forecast"
served.head()

# %% [markdown]
# A wrong request is answered with a plain explanation:

# %%
from forecaster.errors import ForecasterError

try:
    client.predict(history.tail(5))
except ForecasterError as refused:
    print(refused)

# %%
service.terminate()
service.wait(30)
