"""GET /metrics."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from forecaster_service.store import store_of

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counts and times of requests and batches, for Prometheus."""
    text = generate_latest(store_of(request).metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
