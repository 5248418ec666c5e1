"""The OpenAPI document, made from the same route table that serves the requests."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.control.api import ErrorReply

Json = dict[str, object]
Handler = Callable[[Request], Awaitable[Response]]
REFERENCE = "#/components/schemas/{name}"
TOKEN_SCHEME = "token"

ERROR_TEXTS = {
    400: "The request cannot be understood; `message` says what to write.",
    401: "A bearer token is needed on this address.",
    403: "The request comes from a web page of another origin, or asks a loopback address by a name.",
    404: "No such cell, or no tuner.",
    409: "The order does not fit the state of what it is given to; `message` says why.",
    413: "The body is too large.",
    503: "Not ready yet, or the work did not end in time.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value in the path or the query."""

    name: str
    where: str  # "path" | "query"
    text: str
    kind: str = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row of the route table."""

    method: str
    path: str
    handler: Handler
    summary: str
    reply: type[msgspec.Struct] | str  # a document, or a media type for text
    request: type[msgspec.Struct] | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    open: bool = False  # answers without a token: says nothing about the grid

    @property
    def operation_id(self) -> str:
        words = self.path.replace("{", "").replace("}", "").replace(".", "/").split("/")
        return "_".join((self.method.lower(), *(word for word in words if word)))


def openapi_document(endpoints: Sequence[Endpoint], *, version: str) -> Json:
    """Describe endpoints as an OpenAPI 3.1 document."""
    types = _types(endpoints)
    _, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tradewind control",
            "version": version,
            "description": "State of the grid, and the operator's orders. null means unknown, never zero.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {TOKEN_SCHEME: {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(endpoints: Sequence[Endpoint]) -> list[type[msgspec.Struct]]:
    found: dict[str, type[msgspec.Struct]] = {ErrorReply.__name__: ErrorReply}
    for endpoint in endpoints:
        for kind in (endpoint.reply, endpoint.request):
            if kind is not None and not isinstance(kind, str):
                found[kind.__name__] = kind
    return [found[name] for name in sorted(found)]


def _operation(endpoint: Endpoint) -> Json:
    operation: Json = {
        "operationId": endpoint.operation_id,
        "summary": endpoint.summary,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "responses": {"200": _reply(endpoint)} | {str(status): _error(status) for status in sorted(_errors(endpoint))},
        # Without a token on loopback; with one elsewhere.
        "security": [] if endpoint.open else [{TOKEN_SCHEME: []}, {}],
    }
    if endpoint.request is not None:
        operation["requestBody"] = {"required": False, "content": _json_content(endpoint.request)}
    return operation


def _errors(endpoint: Endpoint) -> set[int]:
    return {*endpoint.errors, *(() if endpoint.open else (401, 403))}


def _parameter(parameter: Parameter) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.where == "path",
        "description": parameter.text,
        "schema": {"type": parameter.kind},
    }


def _reply(endpoint: Endpoint) -> Json:
    if isinstance(endpoint.reply, str):
        return {"description": endpoint.summary, "content": {endpoint.reply: {"schema": {"type": "string"}}}}
    return {"description": (endpoint.reply.__doc__ or "").strip(), "content": _json_content(endpoint.reply)}


def _error(status: int) -> Json:
    return {"description": ERROR_TEXTS[status], "content": _json_content(ErrorReply)}


def _json_content(kind: type[msgspec.Struct]) -> Json:
    return {"application/json": {"schema": {"$ref": REFERENCE.format(name=kind.__name__)}}}
