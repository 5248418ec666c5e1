"""The route table: pools by model, the model list, and what is refused at the edge."""

import json
from collections.abc import Sequence
from urllib.parse import quote

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.type.matcher.v3 import string_pb2
from google.protobuf import wrappers_pb2

from tradewind.xds.cluster import duration, pack
from tradewind.xds.encode import message_field, varint_field
from tradewind.xds.pick import CREDENTIALS, EXPLAIN_HEADER, asks_picker
from tradewind.xds.settings import MULTIPART_PATHS, ROUTES_NAME, ModelInfo, ResidencyRule, XdsSettings

POOL_HEADER = "x-tw-pool"
LUA_FILTER = "tradewind.share"

# Field numbers of envoy.config.route.v3.
_CONFIG_NAME, _CONFIG_VIRTUAL_HOSTS, _CONFIG_MAX_DIRECT_BODY = 1, 2, 11
_HOST_NAME, _HOST_DOMAINS, _HOST_ROUTES = 1, 2, 3
_ROUTE_METADATA, _ROUTE_NAME = 4, 14
_METADATA_FILTERS, _STRUCT_FIELDS, _VALUE_STRING = 1, 1, 3
_MAX_DIRECT_BODY_BYTES = 4_194_304

# 504 is not here: its time is spent, and the engine may still be generating.
_RETRIABLE_STATUSES = (502, 503)
# `reset` stops at the response headers: Envoy never retries what the client has begun to read.
_RETRY_ON = "connect-failure,refused-stream,reset,retriable-status-codes"
# Each attempt is a table look-up of some 50 ns; a dead cell may hold nearly all of the table.
_HOST_SELECTION_ATTEMPTS = 4096


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def error_body(message: str, *, kind: str, code: str, param: str | None = None) -> str:
    """An error in OpenAI's shape."""
    return _dump({"error": {"message": message, "type": kind, "param": param, "code": code}})


def pool_route(model: str, cluster: str, settings: XdsSettings, rule: ResidencyRule | None = None) -> bytes:
    """The serialised route of one pool, without what changes with the weights. `rule`: of its requests only."""
    headers = [_header_is(POOL_HEADER, model)] + ([_header_is(rule.header, rule.value)] if rule else [])
    route = route_pb2.Route(
        match=route_pb2.RouteMatch(prefix="/", headers=headers),
        route=_action(cluster, settings),
        request_headers_to_remove=_removed_headers(settings),
    )
    return bytes(route.SerializeToString(deterministic=True))


def with_shares(route: bytes, *, model: str, version: str, table: str, rule: str = "") -> bytes:
    """A pool's route as a field of its virtual host. `table` empty: Envoy's own policy spreads, Lua picks nothing."""
    mark = f"{version}.{rule}" if rule and table else version if table else ""
    name = message_field(_ROUTE_NAME, f"pool/{mark}/{model}".encode())
    if not table:
        return message_field(_HOST_ROUTES, route + name)
    value = message_field(_VALUE_STRING, table.encode())
    struct = message_field(_STRUCT_FIELDS, message_field(1, b"shares") + message_field(2, value))
    metadata = message_field(_METADATA_FILTERS, message_field(1, LUA_FILTER.encode()) + message_field(2, struct))
    return message_field(_HOST_ROUTES, route + name + message_field(_ROUTE_METADATA, metadata))


def _action(cluster: str, settings: XdsSettings) -> route_pb2.RouteAction:
    # No hash policy: MAGLEV then draws a fresh random number per pick, which no client can choose.
    return route_pb2.RouteAction(
        cluster=cluster,
        timeout=duration(0),  # generations are long; silence is what is limited
        retry_policy=_retry_policy(settings),
    )


def _retry_policy(settings: XdsSettings) -> route_pb2.RetryPolicy:
    predicate = route_pb2.RetryPolicy.RetryHostPredicate(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=pack(previous_hosts_pb2.PreviousHostsPredicate()),
    )
    return route_pb2.RetryPolicy(
        retry_on=_RETRY_ON if settings.retries else "",
        retriable_status_codes=_RETRIABLE_STATUSES,
        num_retries=wrappers_pb2.UInt32Value(value=settings.retries),
        retry_host_predicate=[predicate],
        host_selection_retry_max_attempts=_HOST_SELECTION_ATTEMPTS,
        retry_back_off=route_pb2.RetryPolicy.RetryBackOff(base_interval=duration(0.001), max_interval=duration(0.01)),
    )


def _removed_headers(settings: XdsSettings) -> list[str]:
    internal = [POOL_HEADER, "tradewind-model", EXPLAIN_HEADER]  # its value is a key
    return internal if settings.forward_authorization else [*internal, *CREDENTIALS]


def fixed_routes(models: Sequence[ModelInfo], *, only_model: str, settings: XdsSettings) -> bytes:
    """Serialised routes that follow the pools: entry points of Lua, the model list, refusals."""
    routes = [_entry(path, "json", only_model, settings) for path in settings.json_paths]
    routes += [_entry(path, "multipart", only_model, settings) for path in MULTIPART_PATHS]
    routes.append(_answer(_exact("/v1/models", "GET"), 200, _model_list(models)))
    routes += [_answer(_exact(_model_path(m.model), "GET"), 200, _dump(_model_entry(m))) for m in models]
    routes.append(_answer(_model_prefix(), 404, _MODEL_NOT_FOUND))
    routes += [_answer(_exact(path), 405, _BAD_METHOD) for path in (*settings.json_paths, *MULTIPART_PATHS)]
    routes.append(_answer(_exact("/v1/models"), 405, _BAD_METHOD))
    routes.append(_answer(route_pb2.RouteMatch(prefix="/"), 404, _NOT_FOUND))
    return b"".join([_route_field(route) for route in routes])


def _route_field(route: route_pb2.Route) -> bytes:
    """One route as a field of its virtual host."""
    return message_field(_HOST_ROUTES, route.SerializeToString(deterministic=True))


def route_configuration(routes: bytes) -> bytes:
    """The serialised RouteConfiguration: one virtual host for every name."""
    host = message_field(_HOST_NAME, b"all") + message_field(_HOST_DOMAINS, b"*") + routes
    limit = message_field(_CONFIG_MAX_DIRECT_BODY, varint_field(1, _MAX_DIRECT_BODY_BYTES))
    return message_field(_CONFIG_NAME, ROUTES_NAME.encode()) + message_field(_CONFIG_VIRTUAL_HOSTS, host) + limit


_MODEL_NOT_FOUND = error_body(
    "The model does not exist.", kind="invalid_request_error", param="model", code="model_not_found"
)
_NOT_FOUND = error_body("This path is not served.", kind="invalid_request_error", code="not_found")
_BAD_METHOD = error_body("This method is not allowed here.", kind="invalid_request_error", code="method_not_allowed")


def residency_refusals(rules: Sequence[ResidencyRule]) -> bytes:
    """Serialised routes that refuse a value no rule knows: a typing error must not open every site."""
    routes = []
    for header in sorted({rule.header for rule in rules}):
        known = [_header_is(header, rule.value) for rule in rules if rule.header == header]
        unknown = [route_pb2.HeaderMatcher(name=header, present_match=True), *map(_not, known)]
        body = error_body(
            f"No residency rule knows this value of {header}.",
            kind="invalid_request_error",
            code="residency_unknown",
            param=header,
        )
        routes.append(_residency(_answer(route_pb2.RouteMatch(prefix="/", headers=unknown), 403, body), header))
    return b"".join([_route_field(route) for route in routes])


def residency_unserved(model: str, rule: ResidencyRule) -> bytes:
    """The serialised route that says that no allowed site serves a model."""
    match = route_pb2.RouteMatch(
        prefix="/", headers=[_header_is(POOL_HEADER, model), _header_is(rule.header, rule.value)]
    )
    body = error_body(
        f"The residency rule {rule.name} leaves no site that serves this model now.",
        kind="service_unavailable",
        code="residency_unserved",
    )
    return _route_field(_residency(_answer(match, 503, body), rule.name))


def _residency(route: route_pb2.Route, name: str) -> route_pb2.Route:
    """Named, so that share.lua leaves it alone."""
    route.name = f"residency/{name}"
    return route


def _not(matcher: route_pb2.HeaderMatcher) -> route_pb2.HeaderMatcher:
    matcher.invert_match = True
    return matcher


def _entry(path: str, kind: str, only_model: str, settings: XdsSettings) -> route_pb2.Route:
    """Where Lua starts reading for the model; the answer given if it finds none is the one for unknown models."""
    route = _answer(_exact(path, "POST"), 404, _MODEL_NOT_FOUND)
    route.name = f"entry/{kind}/{only_model}"
    if settings.picker is not None and kind == "json":
        for name, config in asks_picker(most_bytes=settings.request_buffer_bytes).items():
            route.typed_per_filter_config[name].CopyFrom(config)
    return route


def _answer(match: route_pb2.RouteMatch, status: int, body: str) -> route_pb2.Route:
    header = base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key="content-type", value="application/json"),
        append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )
    return route_pb2.Route(
        match=match,
        direct_response=route_pb2.DirectResponseAction(status=status, body=base_pb2.DataSource(inline_string=body)),
        response_headers_to_add=[header],
    )


def _exact(path: str, method: str = "") -> route_pb2.RouteMatch:
    headers = [_header_is(":method", method)] if method else []
    return route_pb2.RouteMatch(path=path, headers=headers)


def _model_path(model: str) -> str:
    # As clients write it, save for the slash, which Envoy has unescaped by then.
    return "/v1/models/" + quote(model, safe="/!$&'()*+,;=:@")


def _model_prefix() -> route_pb2.RouteMatch:
    return route_pb2.RouteMatch(prefix="/v1/models/", headers=[_header_is(":method", "GET")])


def _header_is(name: str, value: str) -> route_pb2.HeaderMatcher:
    return route_pb2.HeaderMatcher(name=name, string_match=string_pb2.StringMatcher(exact=value))


def _model_entry(info: ModelInfo) -> dict[str, object]:
    entry: dict[str, object] = {"id": info.model, "object": "model", "created": 0, "owned_by": "tradewind"}
    return entry if info.max_model_len is None else {**entry, "max_model_len": info.max_model_len}


def _model_list(models: Sequence[ModelInfo]) -> str:
    return _dump({"object": "list", "data": [_model_entry(info) for info in models]})
