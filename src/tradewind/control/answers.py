"""Reading requests of the admin API and writing its replies."""

from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

MAX_BODY_BYTES = 4_096
MAX_DIGITS = 18

Body = TypeVar("Body", bound=msgspec.Struct)


class BadRequest(Exception):
    """A request that cannot be served as it stands; the text says what to write."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def json_reply(row: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(row), media_type="application/json")


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Read a small JSON body; an empty one means all defaults. Raises BadRequest."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            raise BadRequest(413, "body_too_large", f"write a body of at most {MAX_BODY_BYTES} bytes")
    try:
        return msgspec.json.decode(bytes(raw) or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        names = ", ".join(kind.__struct_fields__)
        needed = any(field.required for field in msgspec.structs.fields(kind))
        what = "a JSON object" if needed else "no body, or a JSON object"
        raise BadRequest(400, "bad_body", f"write {what} with: {names}") from None


def natural(request: Request, name: str, *, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise BadRequest(400, "bad_query", f"write {name} as a whole number, e.g. {name}=10")
    return int(text)
