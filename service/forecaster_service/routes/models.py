"""GET /models and a request that works."""

from typing import Annotated, Any

from fastapi import APIRouter, Path

from forecaster_service import forecasting
from forecaster_service.deps import StoreDep
from forecaster_service.problems import responses
from forecaster_service.schemas import FullRequest, Models

router = APIRouter(prefix="/models", tags=["models"])


@router.get("")
async def models(store: StoreDep) -> Models:
    """The models that answer now, the default one first: names, columns, lengths, honest
    figures."""
    return Models(models=[slot.served.card for slot in store.slots if slot.served])


@router.get("/{name:path}/example", response_model=FullRequest, responses=responses(404, 422, 503))
async def example(
    name: Annotated[str, Path(description="A name that GET /models tells.")], store: StoreDep
) -> dict[str, Any]:
    """A request that this model accepts, ready to be posted to /predict."""
    return forecasting.example(store.get(name).forecaster)
