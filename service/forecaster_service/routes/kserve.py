"""POST /v1/timeseries/forecast, for clients of KServe."""

import re
from functools import partial
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from pydantic_core import to_json

from forecaster.forecast.predictor import Predictor
from forecaster_service import forecasting
from forecaster_service.answering import PROBLEMS, ForecastRoute, Order, model_for
from forecaster_service.batching import Done
from forecaster_service.forecasting import Forecast, Job
from forecaster_service.foreign import TimeSeriesRequest
from forecaster_service.http_errors import Flaw, HttpError, invalid
from forecaster_service.schemas import FullRequest, Parameters, SeriesInput
from forecaster_service.slots import Served

STEPS = {
    "second": "s", "S": "s", "minute": "min", "T": "min", "hour": "h", "H": "h", "day": "D",
    "D": "D", "week": r"W-\w+", "W": r"W-\w+", "month": "M[SE]", "M": "M[SE]",
    "quarter": r"Q[SE]-\w+", "Q": r"Q[SE]-\w+", "year": r"Y[SE]-\w+", "Y": r"Y[SE]-\w+",
}  # fmt: skip
"""KServe's names of time steps, with patterns of the models' own."""
NAMES = {
    "item_id": "name", "start": "start_timestamp", "target": "series", "parameters": "options",
    "prediction_length": "horizon", "quantile_levels": "quantiles",
}  # fmt: skip
"""KServe's names of the keys of /predict."""

router = APIRouter(route_class=ForecastRoute, tags=["kserve"])


@router.post(
    "/v1/timeseries/forecast",
    operation_id="forecast_timeseries",
    response_model=dict[str, Any],
    responses=PROBLEMS,
)
def forecast(body: Annotated[TimeSeriesRequest, Body()], request: Request) -> Order:
    """The forecasts of /predict, with requests and answers in KServe's format (Time Series Forecast
    API), and `warnings` and `notices` as in the answer of /predict.

    The columns of a series are those of the model, in its order. For a model that reads future
    covariates or static attributes use /predict.
    """
    served = model_for(request, body.model)
    job = _prepare(body, served.forecaster)
    asked = [each.model_dump(include={"type", "name", "frequency"}) for each in body.inputs]
    return Order(served, job, partial(_write, asked))


def _prepare(body: TimeSeriesRequest, forecaster: Predictor) -> Job:
    schema, inputs, flaws = forecaster.schema, [], []
    if schema.known.columns or schema.known.attributes:
        message = "it reads future covariates or static attributes, which only /predict accepts"
        raise invalid([Flaw(loc=["model"], msg=message, type="no_covariates")])
    for number, series in enumerate(body.inputs):
        if (series.type == "multivariate_time_series") != forecasting.in_rows(series.series):
            message = f"the series is not what {series.type} means"
            flaws.append(Flaw(loc=["inputs", number, "type"], msg=message, type="rank"))
        pattern = STEPS.get(series.frequency, re.escape(series.frequency))
        if not re.fullmatch(pattern, schema.freq):
            message = f"this model forecasts in steps of {schema.freq}"
            flaws.append(Flaw(loc=["inputs", number, "frequency"], msg=message, type="other_freq"))
        inputs.append(
            SeriesInput.model_construct(
                item_id=series.name, start=series.start_timestamp, target=series.series
            )
        )
    if flaws:
        raise invalid(flaws)
    parameters = Parameters.model_construct(
        prediction_length=body.options.horizon, quantile_levels=body.options.quantiles or []
    )
    request = FullRequest.model_construct(inputs=inputs, parameters=parameters)
    try:
        return forecasting.prepare(request, forecaster)
    except HttpError as error:
        renamed = [
            flaw.model_copy(update={"loc": [NAMES.get(str(part), part) for part in flaw.loc]})
            for flaw in error.errors
        ]
        raise invalid(renamed) from None


def _write(
    asked: list[dict[str, str]], job: Job, done: Done[Forecast], served: Served, request_id: str
) -> bytes:
    """The response."""
    outputs: list[dict[str, Any]] = []
    for given, (series, forecast, quantiles) in zip(asked, job.written(done), strict=True):
        content = {
            **given, "mean_forecast": forecast, "start_timestamp": series.first,
            "quantiles": quantiles or None,
        }  # fmt: skip
        known = {"type": "time_series_forecast", "status": "completed", "error": None}
        outputs.append({**known, "id": f"{request_id}-{len(outputs)}", "content": [content]})
    return to_json({
        "id": request_id, "created_at": int(time()), "status": "completed", "error": None,
        "model": served.identity.name, "outputs": outputs, "warnings": job.warnings,
        "notices": job.notices,
    }, inf_nan_mode="null")  # fmt: skip
