"""POST /predict."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from forecaster.predict import Forecaster
from forecaster_service import forecasting
from forecaster_service.answering import PROBLEMS, ForecastRoute, answer
from forecaster_service.batching import Done
from forecaster_service.forecasting import Forecast, Job
from forecaster_service.schemas import (
    ForecastRequest,
    ForecastResponse,
    ModelIdentity,
    Prediction,
    Timing,
)

router = APIRouter(route_class=ForecastRoute, tags=["forecast"])


@router.post(
    "/v1/predict", operation_id="predict_v1", response_model=ForecastResponse, responses=PROBLEMS
)
@router.post(
    "/predict", operation_id="predict", response_model=ForecastResponse, responses=PROBLEMS
)
async def predict(body: Annotated[ForecastRequest, Body()], request: Request) -> Response:
    """Forecast what follows each series, in its units.

    Either form is taken: one series with everything at the top, or `inputs` with many. What is
    asked at the same time runs together, which `timing` tells. A history longer than the model
    looks back is cut to its newest part, which `warnings` tells; one that is shorter than it needs
    is refused, or forecast by some of its parts where `short_history` is drop. Columns
    may come in any order by name. null is a missing value: it is masked, and `warnings` counts it.
    What a model needs besides, GET /models tells, and its example has it.
    """
    return await answer(
        request, body.model, partial(forecasting.prepare, body), partial(_write, body)
    )


def _write(
    body: ForecastRequest,
    job: Job,
    done: Done[Forecast],
    forecaster: Forecaster,
    model: ModelIdentity,
    request_id: str,
) -> bytes:
    """The response as JSON."""
    schema = forecaster.schema
    predictions = []
    for destination, forecast, quantiles in job.written(done):
        numbers: dict[str, Any] = {forecaster.kind: forecast}
        if quantiles:
            numbers["quantiles"] = quantiles
        prediction = Prediction.model_construct(  # ours: checked by the tests, not each time
            item_id=destination.item_id, start=destination.start, freq=schema.freq,
            columns=list(schema.targets), **numbers,
        )  # fmt: skip
        predictions.append(prediction)
    return ForecastResponse.model_construct(
        id=request_id,
        model=model,
        predictions=predictions,
        warnings=job.warnings,
        notices=job.notices,
        timing=Timing(
            queue_ms=round(done.queue * 1e3, 3),
            inference_ms=round(done.inference * 1e3, 3),
            batch_size=done.batch,
        ),
    ).model_dump_json(exclude_unset=True).encode()  # fmt: skip
