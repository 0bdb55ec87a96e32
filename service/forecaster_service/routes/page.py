"""The page at /: a CSV in, a chart of its forecast out, through the same public routes; the docs.

All addresses are relative, so that both work below the prefix of a proxy, too.
"""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse

from forecaster_service.http_errors import HttpError

WEB = Path(__file__).resolve().parent.parent / "web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FILES = ("page.css", "page.js", "icon.svg")

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> FileResponse:
    """The page; it loads nothing from other hosts and has no inline scripts or styles."""
    return FileResponse(WEB / "index.html", headers=HEADERS)


@router.get("/page/{name}")
async def file(name: Annotated[str, PathParameter(max_length=64)]) -> FileResponse:
    """A file that the page loads."""
    if name not in FILES:
        raise HttpError(404, "the page has no such file")
    return FileResponse(WEB / name, headers=HEADERS)


@router.get("/docs")
async def docs() -> HTMLResponse:
    """Swagger UI for the interface."""
    folder = "static-offline-docs"
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="forecaster - Swagger UI",
        swagger_js_url=f"{folder}/swagger-ui-bundle.js",
        swagger_css_url=f"{folder}/swagger-ui.css",
        swagger_favicon_url=f"{folder}/favicon.png",
        # else it would send this service's description to a public validator
        swagger_ui_parameters={"validatorUrl": None},
    )
