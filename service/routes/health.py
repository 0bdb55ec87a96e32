"""Whether the process lives, whether it can answer, and what it is."""

from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Query

from service.deps import StoreDep
from service.problems import responses
from service.schemas import Status, Version

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model_exclude_none=True, deprecated=True)
@router.get("/livez", response_model_exclude_none=True)
async def livez() -> Status:
    """The process lives, whatever its model does. /healthz is an older name of /livez."""
    return Status(status="alive")


@router.get("/readyz", response_model_exclude_none=True, responses=responses(422, 503))
async def readyz(
    store: StoreDep,
    verbose: Annotated[str | None, Query(max_length=8, description="Name the model too.")] = None,
) -> Status:
    """The model is loaded and has forecast its example; 503 with the reason otherwise."""
    served = store.ready()
    if verbose is None:
        return Status(status="ready")
    model = f"{served.identity.name} {served.identity.digest} on {served.forecaster.device}"
    return Status(status="ready", model=model)


@router.get("/version")
async def service_version() -> Version:
    """The versions of forecaster and of this interface."""
    return Version(version=version("forecaster"), api="v1")
