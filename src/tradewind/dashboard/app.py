"""The live page's HTTP: GET only, static files and one JSON document."""

from importlib import resources
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from tradewind.dashboard.feed import Feed

STATIC = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
SECURITY = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def plotly_js() -> Path:
    """The JavaScript that plotly's wheel ships."""
    return Path(str(resources.files("plotly"))) / "package_data" / "plotly.min.js"


def dashboard_app(feed: Feed) -> Starlette:
    """The application over one feed."""

    async def static(request: Request) -> Response:
        name, media_type = STATIC[request.url.path]
        text = resources.files("tradewind.dashboard").joinpath("static", name).read_text(encoding="utf-8")
        return Response(text, media_type=media_type, headers=SECURITY)

    async def state(request: Request) -> Response:
        after = request.query_params.get("after", "0")
        known = int(after) if after.isascii() and after.isdigit() and len(after) < 16 else 0
        headers = {"cache-control": "no-store", **SECURITY}
        return Response(
            msgspec.json.encode(feed.page_state(after=known)), media_type="application/json", headers=headers
        )

    async def plotly(_request: Request) -> Response:
        headers = {"cache-control": "max-age=86400", **SECURITY}
        return FileResponse(plotly_js(), media_type="text/javascript", headers=headers)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            *(Route(path, static) for path in STATIC),
            Route("/api/state", state),
            Route("/plotly.min.js", plotly),
            Route("/healthz", healthz),
        ]
    )
