"""GET /models, and example requests for the models."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from forecaster_service.body import CSV
from forecaster_service.card import example as example_of
from forecaster_service.http_errors import responses
from forecaster_service.request import FullRequest
from forecaster_service.response import ModelCard, Models
from forecaster_service.store import store_of

Name = Annotated[str, Path(description="A name that GET /models lists.")]

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", operation_id="list_models")
async def models(request: Request) -> Models:
    """The models that answer now, the default one first: names, columns, lengths, and the metrics
    of the test split."""
    return Models(models=[slot.served.card for slot in store_of(request).slots if slot.served])


@router.get(
    "/{name:path}/example",
    operation_id="get_example",
    response_model=FullRequest,
    responses=responses(404, 422, 503),
)
async def example(request: Request, name: Name) -> Any:
    """A request to this model, ready to be posted to /predict; with Accept: text/csv a table for
    /read."""
    forecaster = store_of(request).get(name).forecaster
    if request.headers.get("accept", "").startswith(CSV):
        return Response(forecaster.example.to_csv(index=False), media_type=CSV)
    return {**example_of(forecaster), "model": name}


@router.get("/{name:path}", operation_id="get_model", responses=responses(404, 422, 503))
async def model(request: Request, name: Name) -> ModelCard:
    """One of the models that answer now."""
    return store_of(request).get(name).card
