"""POST /predict."""

import csv
from io import StringIO
from typing import Annotated, Any

import numpy as np
import pandas as pd
from fastapi import APIRouter, Body, Request
from pydantic_core import to_json

from forecaster_service import forecasting
from forecaster_service.batching import Done
from forecaster_service.forecasting import Forecast, Job
from forecaster_service.loading import Served
from forecaster_service.request import ForecastRequest
from forecaster_service.respond import CSV, JSON, PROBLEMS, TEXT, ForecastRoute, Order, model_for
from forecaster_service.response import ForecastResponse

ANSWERS: dict[int | str, dict[str, Any]] = {**PROBLEMS, 200: TEXT}

router = APIRouter(route_class=ForecastRoute, tags=["forecast"])


@router.post(
    "/v1/predict", operation_id="predict_v1", response_model=ForecastResponse, responses=ANSWERS
)
@router.post("/predict", operation_id="predict", response_model=ForecastResponse, responses=ANSWERS)
def predict(body: Annotated[ForecastRequest, Body()], request: Request) -> Order:
    """Forecast what follows each series, in its units.

    The body has one of two forms: one series with everything at the top, or `inputs` with many.
    Requests that arrive at the same time run together, as `timing` shows. A history longer than the
    look-back of the model is cut to its newest part, with a sentence in `warnings`. A history
    shorter than the model needs is refused, or, with `short_history` set to drop, forecast by those
    parts of the model that need less. With `columns`, columns may come in any order. null is a
    missing value: it is masked, and `warnings` counts it. GET /models shows what else a model
    needs, and the model's example contains it. With Accept: text/csv the answer is a table.
    """
    first, _, _ = request.headers.get("accept", "").partition(",")
    media = CSV if first.partition(";")[0].strip().lower() == CSV else JSON
    served = model_for(request, body.model)
    job = forecasting.prepare(body, served.forecaster)
    return served, job, _table if media == CSV else _write, media


def _write(job: Job, done: Done[Forecast], served: Served, request_id: str) -> bytes:
    """The response, a `ForecastResponse`."""
    forecaster, predictions = served.forecaster, []
    for series, forecast, quantiles in job.written(done):
        prediction = {
            "item_id": series.item_id,
            "start": series.first,
            "freq": forecaster.schema.freq,
            "columns": forecaster.schema.targets,
            "mean": forecast,
        }
        predictions.append(prediction | ({"quantiles": quantiles} if quantiles else {}))
    timing = {
        "queue_ms": round(done.queue * 1e3, 3),
        "inference_ms": round(done.inference * 1e3, 3),
        "batch_size": done.batch,
    }
    return to_json({
        "id": request_id, "model": served.identity, "predictions": predictions,
        "warnings": job.warnings, "notices": job.notices, "timing": timing,
    }, inf_nan_mode="null")  # fmt: skip


def _table(job: Job, done: Done[Forecast], served: Served, request_id: str) -> bytes:
    """The response as CSV: a row for each step of each series, in columns such as "load 0.1"."""
    schema, text = served.forecaster.schema, StringIO()
    named = len(job.inputs) > 1 or job.inputs[0].item_id is not None
    suffixes = ["", *(f" {level}" for level in job.levels)]
    table = csv.writer(text, lineterminator="\n")
    names = [name + suffix for name in schema.targets for suffix in suffixes]
    table.writerow([*["item_id"] * named, schema.time, *names])
    for place, (series, (forecast, quantiles, _)) in enumerate(
        zip(job.inputs, done.results, strict=True)
    ):
        item = str(place) if series.item_id is None else series.item_id
        times = pd.date_range(series.first, periods=job.steps, freq=schema.freq)
        values = np.concatenate([forecast[..., None], quantiles], axis=-1)[: job.steps]
        for time, row in zip(times, values.reshape(job.steps, -1).tolist(), strict=True):
            table.writerow([*[item] * named, time.isoformat(), *row])
    return text.getvalue().encode()
