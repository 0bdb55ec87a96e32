"""GET /metrics."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool

from forecaster_service.store import store_of

router = APIRouter(tags=["health"])


@router.get("/metrics", operation_id="get_metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counts and times of requests and batches, for Prometheus."""
    store = store_of(request)
    request.state.gauges.update()
    figures = store.process.figures(store.metrics.registry)
    text = await run_in_threadpool(generate_latest, figures)  # reads files of several processes
    return Response(text, media_type=CONTENT_TYPE_LATEST)
