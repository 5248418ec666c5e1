"""Who may use the admin address: anyone on loopback, elsewhere only who holds the token."""

import hmac
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tradewind.config.addresses import is_ip
from tradewind.control.api import ErrorReply, ErrorRow

TOKEN_VARIABLE = "TRADEWIND_ADMIN_TOKEN"


def error_response(status: int, code: str, message: str) -> Response:
    """An error of the admin API. `message` must say what to write and never repeat what may hold a secret."""
    body = msgspec.json.encode(ErrorReply(error=ErrorRow(code=code, message=message)))
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(body, status_code=status, media_type="application/json", headers=headers)


class Guard:
    """ASGI middleware. `token` "" means none is needed (a loopback address)."""

    def __init__(self, app: ASGIApp, *, token: str, is_open: Callable[[str], bool]) -> None:
        self._app = app
        self._token = token.encode()
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        origin, host = headers.get("origin"), headers.get("host", "")
        # A page in the operator's own browser could otherwise drain cells,
        if origin is not None and _netloc(origin) != host:
            return error_response(403, "foreign_origin", "requests from web pages of another origin are refused")
        # also one whose name its owner lets point here, which makes it a page of this origin.
        if not self._token and not _is_ours(host):
            return error_response(403, "foreign_host", "on loopback, ask by an IP address or localhost, not by a name")
        if self._token and not self._bears_token(headers.get("authorization", "")):
            return error_response(
                401, "unauthorized", f"send 'Authorization: Bearer ...' with the value of {TOKEN_VARIABLE}"
            )
        return None

    def _bears_token(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_ours(host: str) -> bool:
    """Whether a Host header names what nobody else can make point here; none at all comes from no browser."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in ("", "localhost") or name.endswith(".localhost") or is_ip(name)
