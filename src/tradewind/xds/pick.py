"""What `routing: pick` adds to the chain: the question to the picker, and the first tokens it wants to hear of.

Order: first.lua with answer.lua (adds what it has seen to the question; reads answers) -> buffer -> ext_authz ->
share.lua (obeys the picker's answer, or picks by shares when there is none). A picker that is dead, slow, or answers
5xx leaves the request to share.lua.

The buffer takes the whole body before the question and answers 413 beyond the limit. Without it a body of more than the
limit hangs: while ext_authz waits, Envoy stops reading the client, and share.lua then waits for the rest for ever.
"""

from envoy.config.core.v3 import http_uri_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.matcher.v3 import string_pb2
from google.protobuf import any_pb2, wrappers_pb2

from tradewind.xds.cluster import duration, pack
from tradewind.xds.lua import lua_filter
from tradewind.xds.settings import PICKER_CLUSTER, PickerSettings

AUTHZ_FILTER = "tradewind.pick"
FIRST_FILTER = "tradewind.first"
BUFFER_FILTER = "tradewind.buffer"
METADATA = "envoy.filters.http.ext_authz"  # where ext_authz puts the decision's id, whatever its filter is named
CELL_HEADER, POOL_HEADER, DECISION_HEADER = "x-tw-cell", "x-tw-pool", "x-tw-decision"
# Orders to the router, of the picker alone: until when the first token of this stream must have come, and whether the
# attempt that is late goes on beside the next. The router removes its own; the gate must know the limit too, to tell
# a late engine from a dead one.
FIRST_TOKEN_HEADER, HEDGE_HEADER = "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-hedge-on-per-try-timeout"
GATE_LIMIT_HEADER = "x-tw-first-token-ms"
_TOLD_ROUTER = (CELL_HEADER, POOL_HEADER, FIRST_TOKEN_HEADER, HEDGE_HEADER, GATE_LIMIT_HEADER)
FIRST_HEADER = "x-tw-first"  # "decision:age_ms,...": first tokens seen since the previous question
PARTIAL_HEADER = "x-envoy-auth-partial-body"
EXPLAIN_HEADER = "tradewind-explain"
# What a picker needs to read a body and to know whose it is. Everything else stays in Envoy.
_ASKED = ("content-type", "content-encoding", "x-request-id", "tradewind-model", EXPLAIN_HEADER, FIRST_HEADER)
CREDENTIALS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")
_TOLD_CLIENT = ("tradewind-cell", "tradewind-reason", "tradewind-decision")


def pick_filters(settings: PickerSettings, *, most_bytes: int) -> list[hcm_pb2.HttpFilter]:
    """The filters before share.lua, in chain order; buffer and ext_authz are off but where a route switches them on."""
    return [
        lua_filter(FIRST_FILTER, "first", "answer"),
        hcm_pb2.HttpFilter(name=BUFFER_FILTER, typed_config=pack(_buffer(most_bytes)), disabled=True),
        hcm_pb2.HttpFilter(name=AUTHZ_FILTER, typed_config=pack(_authz(settings)), disabled=True),
    ]


def asks_picker(*, most_bytes: int) -> dict[str, any_pb2.Any]:
    """For `Route.typed_per_filter_config`: requests of this route are shown to the picker."""
    shown = ext_authz_pb2.ExtAuthzPerRoute(check_settings=ext_authz_pb2.CheckSettings())
    whole = buffer_pb2.BufferPerRoute(buffer=_buffer(most_bytes))
    return {
        AUTHZ_FILTER: pack(route_components_pb2.FilterConfig(config=pack(shown))),
        BUFFER_FILTER: pack(route_components_pb2.FilterConfig(config=pack(whole))),
    }


def _buffer(most_bytes: int) -> buffer_pb2.Buffer:
    return buffer_pb2.Buffer(max_request_bytes=wrappers_pb2.UInt32Value(value=most_bytes))


def _authz(settings: PickerSettings) -> ext_authz_pb2.ExtAuthz:
    asked = (*_ASKED, *settings.headers)
    service = ext_authz_pb2.HttpService(
        server_uri=http_uri_pb2.HttpUri(
            uri="http://picker", cluster=PICKER_CLUSTER, timeout=duration(settings.timeout_s)
        ),
        authorization_response=ext_authz_pb2.AuthorizationResponse(
            allowed_upstream_headers=_names(*_TOLD_ROUTER),
            allowed_client_headers=_names("retry-after", "content-type"),
            allowed_client_headers_on_success=_names(*_TOLD_CLIENT),
            dynamic_metadata_from_headers=_names(DECISION_HEADER),
        ),
    )
    return ext_authz_pb2.ExtAuthz(
        http_service=service,
        failure_mode_allow=True,
        with_request_body=ext_authz_pb2.BufferSettings(
            max_request_bytes=settings.max_body_bytes, allow_partial_message=True
        ),
        allowed_headers=_names(*asked),
        disallowed_headers=_names(*CREDENTIALS),  # a key is nobody's business but the engine's
    )


def _names(*names: str) -> string_pb2.ListStringMatcher:
    return string_pb2.ListStringMatcher(
        patterns=[string_pb2.StringMatcher(exact=name, ignore_case=True) for name in names]
    )
