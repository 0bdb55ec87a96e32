# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Choosing an attention for a long series
#
# The cost of an attention depends on the number of tokens; its benefit depends on the data. First
# the cost, then the benefit, then a rule that follows from both.

# %%
import subprocess
from importlib.resources import files
from time import perf_counter

import pandas as pd
import torch

from forecaster import Forecaster
from forecaster.attention import (
    aft_simple_attention,
    full_attention,
    lsh_attention,
    prob_sparse_attention,
)

# %% [markdown]
# The functions take and return plain tensors (batch, heads, length, width). Here is one forward
# pass of each, at lengths from 256 to 4,096 (`forecaster bench attention` measures all of them
# more carefully).

# %%
functions = {
    "full": full_attention,
    "prob": prob_sparse_attention,
    "lsh": lambda q, k, v: lsh_attention(q, v),
    "aft-simple": aft_simple_attention,
}
lengths = [256, 1024, 4096]


def milliseconds(function, length, repeat=3):
    q, k, v = torch.randn(3, 1, 4, length, 16)
    function(q, k, v)
    begun = perf_counter()
    for _ in range(repeat):
        function(q, k, v)
    return 1e3 * (perf_counter() - begun) / repeat


with torch.no_grad():
    cost = pd.DataFrame(
        {
            name: [milliseconds(each, length) for length in lengths]
            for name, each in functions.items()
        },
        index=pd.Index(lengths, name="length"),
    )
cost.round(2)

# %%
axes = cost.plot(loglog=True, marker="o", ylabel="ms of one forward pass", figsize=(6, 3.5))

# %% [markdown]
# Now the benefit. The same recipe with four attentions and the control `none`, in which no
# information passes between tokens. Data, windows and seed are the same.

# %%
raw = pd.read_csv(files("tsdata") / "fpp3" / "vic_elec.csv", parse_dates=["Time"])
demand = raw.set_index("Time")[["Demand"]].resample("h").mean().tail(8760)
rows = {}
for name in ("none", "full", "prob", "lsh", "aft-simple"):
    begun = perf_counter()
    model = Forecaster(
        attention=name, horizon=24, lookback=504, epochs=2, seed=0, blend="none",
        options={"train.stride": 8},
    ).fit(demand)  # fmt: skip
    rows[name] = {
        "mse": model.evaluate().loc["model", "mse"],
        "what it amounts to": model.bundle.about["attn_effective"],
        "seconds": perf_counter() - begun,
    }
pd.DataFrame.from_dict(rows, orient="index").round(4)

# %% [markdown]
# One seed and two epochs are not enough for a verdict. `forecaster compare --data FILE --seeds 3`
# gives one, with equal parameters and paired intervals. `forecaster advise` shows which of the
# regimes that this project measured a series resembles, and what was found there:

# %%
advice = subprocess.run(
    ["forecaster", "advise", "--data", "vic_elec"], check=True, capture_output=True, text=True
)
print(advice.stdout)
