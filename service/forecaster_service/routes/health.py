"""Routes that show whether the process lives, whether it can answer, and its version."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from forecaster.base.version import __version__
from forecaster_service.http_errors import responses
from forecaster_service.response import Status, Version
from forecaster_service.store import store_of

router = APIRouter(tags=["health"])


@router.get(
    "/healthz", operation_id="get_health", response_model_exclude_none=True, deprecated=True
)
@router.get("/livez", operation_id="get_liveness", response_model_exclude_none=True)
async def livez() -> Status:
    """The process lives, whatever its model does. /healthz is an older name of /livez."""
    return Status(status="alive")


@router.get(
    "/readyz",
    operation_id="get_readiness",
    response_model_exclude_none=True,
    responses=responses(422, 503),
)
async def readyz(
    request: Request,
    verbose: Annotated[str | None, Query(max_length=8, description="Name the models too.")] = None,
) -> Status:
    """All models are loaded and have forecast their examples, and there is room in the queue.
    Otherwise, and shortly before the service ends, the answer is 503 with the reason."""
    models = store_of(request).whole()
    if verbose is None:
        return Status(status="ready")
    names = (
        f"{model.identity.name} {model.identity.digest} on {model.card.device}" for model in models
    )
    return Status(status="ready", model=", ".join(names))


@router.get("/version", operation_id="get_version")
async def service_version() -> Version:
    """The versions of forecaster and of this interface."""
    return Version(version=__version__, api="v1")
