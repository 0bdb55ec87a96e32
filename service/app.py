"""The application: `uvicorn --factory service.app:create_app`, or `forecaster serve`.

Nothing happens at import. The model is loaded after the server has begun to listen, so /livez
answers at once and /readyz once the model has forecast its example.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from uuid import uuid4

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from service import problems
from service.logs import RequestLog
from service.routes import health, models, predict
from service.settings import Settings, from_environment
from service.store import Store

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service with `settings`, by default those of the environment."""
    settings = from_environment() if settings is None else settings
    app: FastAPI = FastAPIOffline(
        title="forecaster",
        summary="Forecasts of long time series by a trained model",
        version=version("forecaster"),
        redoc_url=None,
        # Swagger UI would ask a public validator about this service's description
        swagger_ui_parameters={"validatorUrl": None},
        middleware=_middleware(settings),
        lifespan=_lifespan,
    )
    app.state.settings = settings
    problems.install(app)
    for routes in (predict, models, health):
        app.include_router(routes.router, responses=problems.responses(400))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.store = Store(app.state.settings)
    app.state.store.open()
    yield
    app.state.store.close()


def _middleware(settings: Settings) -> list[Middleware]:
    """From the outermost in."""
    hosts = [*LOCAL_HOSTS, *settings.allowed_hosts]
    details = {
        400: "the header Host names none of the hosts that this service answers for; "
        "FORECASTER_ALLOWED_HOSTS adds some",
        413: f"the body is longer than {settings.max_body_bytes:,} bytes",
    }
    return [
        Middleware(CorrelationIdMiddleware, validator=None, transformer=_request_id),
        Middleware(RequestLog),
        Middleware(problems.ProblemResponses, details=details),
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        Middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_body_bytes),
    ]


def _request_id(given: str) -> str:
    """The client's id when it is plain, else a new one."""
    return given if REQUEST_ID.fullmatch(given) else uuid4().hex
