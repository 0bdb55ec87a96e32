"""The application: `uvicorn --factory forecaster_service.app:create_app`, or `forecaster serve`.

Nothing happens at import. The model is loaded after the server has begun to listen, so /livez
answers at once and /readyz once the model has forecast its example.
"""

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.middleware import Middleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from forecaster.base.version import __version__
from forecaster_service import http_errors
from forecaster_service.gauges import Gauges
from forecaster_service.logs import request_id
from forecaster_service.metrics import Metrics
from forecaster_service.middleware import Access, Watch
from forecaster_service.process import Process
from forecaster_service.protocol import Connections
from forecaster_service.registry import Found
from forecaster_service.routes import health, metrics, models, page, predict, read
from forecaster_service.settings import Settings, from_environment
from forecaster_service.store import Store


def create_app(
    settings: Settings | None = None,
    registry: Found | None = None,
    process: Process | None = None,
) -> FastAPI:
    """The service with `settings`, by default those of the environment. It asks the `registry` for
    models, by default a new `Child`, and closes it at the end. `process` is what it shares with
    other processes of the service, by default nothing."""
    settings, process = settings or from_environment(), process or Process()
    measured, proxies = Metrics(), list(settings.trusted_proxies)
    app: FastAPI = FastAPIOffline(
        title="forecaster",
        summary="Forecasts of long time series by a trained model",
        version=__version__,
        docs_url=None,  # routes/page.py has them
        redoc_url=None,
        servers=[{"url": "."}],  # where the description lies, also below the prefix of a proxy
        middleware=[  # the outermost first
            *([Middleware(ProxyHeadersMiddleware, trusted_hosts=proxies)] if proxies else ()),
            Middleware(CorrelationIdMiddleware, validator=None, transformer=request_id),
            Middleware(Watch, metrics=measured),
            Middleware(Access, settings=settings, metrics=measured),
        ],
        lifespan=_lifespan,
    )
    app.state.settings, app.state.metrics = settings, measured
    app.state.registry, app.state.process = registry, process
    http_errors.install(app)
    keys = [Security(HTTPBearer(scheme_name="key", auto_error=False))]
    guarded = {"dependencies": keys, "responses": http_errors.responses(400, 401)}
    shown = guarded if settings.api_keys else {"responses": http_errors.responses(400)}
    for routes in (predict, read, models, metrics):
        app.include_router(routes.router, **shown)
    app.include_router(health.router, responses=http_errors.responses(400))
    app.include_router(page.router)

    def openapi() -> dict[str, Any]:
        schema = FastAPI.openapi(app)
        http_errors.describe(schema)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    process: Process = app.state.process
    store = app.state.store = Store(
        app.state.settings, app.state.metrics, app.state.registry, process
    )
    store.open()
    await process.begin(lambda: store.status == "loading")
    _announce_end(store)
    _tune_interpreter()
    connections = Connections(app.state.settings, app.state.metrics)
    asyncio.get_running_loop().set_exception_handler(connections.out_of_files)
    gauges = Gauges(store, connections, app.state.metrics.registry)
    watching = [connections.watch(), *([gauges.watch()] if process.number > 1 else ())]
    tasks = [asyncio.create_task(watch) for watch in watching]
    yield {"connections": connections, "gauges": gauges}
    for task in tasks:
        task.cancel()
    store.close()


def _tune_interpreter() -> None:
    """Switch threads more often, and run the garbage collector less often.

    The device's thread needs the interpreter again for each of hundreds of operations. By default
    the thread that reads requests may hold it for 5 ms each time: a forecast beside it then took
    two to four times as long as with the 0.5 ms set here. And the rows of a single body are enough
    new objects to trigger the collector by default, though they contain no cycles: with this
    threshold it runs after about twenty requests, not within each.
    """
    sys.setswitchinterval(5e-4)
    gc.set_threshold(20_000)


def _announce_end(store: Store) -> None:
    """On SIGTERM, let /readyz announce the end for a while before the server stops listening.

    A second SIGTERM stops it at once. The handler of the server, which it puts back at the end,
    does the stopping.
    """
    stop, loop = signal.getsignal(signal.SIGTERM), asyncio.get_running_loop()

    def announce(number: int, frame: FrameType | None) -> None:
        assert callable(stop)
        if store.draining:
            stop(number, frame)
        else:
            store.draining = True
            seconds = store.settings.drain_seconds
            loop.call_soon_threadsafe(loop.call_later, seconds, stop, number, frame)

    if callable(stop) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, announce)
