"""The server that somebody writes in an hour, the peer of ours: FastAPI around an exported model,
without batches, limits and notices. It serves one table without covariates, hourly:

    forecaster export --model BUNDLE --format onnx --output FOLDER
    MODEL=FOLDER uvicorn --app-dir benchmarks plain_server:app
"""

import json
import os
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel
from pydantic_core import to_json

folder = Path(os.environ["MODEL"])
sizes = json.loads((folder / "model.json").read_text())
past, horizon = sizes["past"], sizes["horizon"]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(folder / "model.onnx", options)
columns = session.get_inputs()[0].shape[2]
app = FastAPI()


class History(BaseModel):
    start: str
    target: list[list[float | None]]
    quantile_levels: list[float] = []


@app.post("/predict")
def predict(history: History) -> Response:
    values = np.array(history.target[-past:], dtype=float)
    if values.shape != (past, columns):
        raise HTTPException(422, f"expected {past} rows of {columns} values")
    times = pd.date_range(history.start, periods=past + horizon, freq="h")
    calendar = [
        times.hour / 23, times.weekday / 6, (times.day - 1) / 30, (times.dayofyear - 1) / 365,
    ]  # fmt: skip
    levels = history.quantile_levels
    mean, quantiles = session.run(
        None,
        {
            "history": values[None],
            "known": np.stack(calendar, axis=1)[None].astype(np.float32) - np.float32(0.5),
            "levels": np.array(levels or [0.5]),
        },
    )
    found = {str(level): quantiles[0, ..., place].tolist() for place, level in enumerate(levels)}
    answer = {"mean": mean[0].tolist(), "quantiles": found}
    return Response(to_json(answer), media_type="application/json")


@app.get("/readyz")
def readyz() -> str:
    return "ready"
