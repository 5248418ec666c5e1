"""Envoy's own errors in OpenAI's shape, with Retry-After where trying again makes sense."""

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from tradewind.xds.routes import error_body

_RETRY_AFTER_S = 1


def local_replies() -> hcm_pb2.LocalReplyConfig:
    """First match wins. Replies of routes and Lua carry no flag and keep their bodies."""
    unavailable = "service_unavailable"
    return hcm_pb2.LocalReplyConfig(
        mappers=[
            _flagged(("UH",), "No cell can serve this model now.", code="no_ready_cell", retry=True),
            _flagged(("UO",), "The pool is at its limit of concurrent requests.", code="overloaded", retry=True),
            _flagged(("UT", "SI"), "The engine was silent for too long.", code="idle_timeout", kind="timeout_error"),
            _flagged(("UF", "UC", "UR", "URX", "NC"), "The engine failed.", code=unavailable, retry=True),
            _status(413, "The request body is too large.", code="request_too_large"),
            _status(431, "The request headers are too large.", code="headers_too_large"),
        ]
    )


def _flagged(
    flags: tuple[str, ...], message: str, *, code: str, kind: str = "server_error", retry: bool = False
) -> hcm_pb2.ResponseMapper:
    condition = accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=flags))
    return _mapper(condition, error_body(message, kind=kind, code=code), retry=retry)


def status_filter(op: int, status: int) -> accesslog_pb2.AccessLogFilter:
    """A condition on the response's status; none yet reads as 0."""
    comparison = accesslog_pb2.ComparisonFilter(
        op=op, value=base_pb2.RuntimeUInt32(default_value=status, runtime_key=f"tradewind.status_{status}")
    )
    return accesslog_pb2.AccessLogFilter(status_code_filter=accesslog_pb2.StatusCodeFilter(comparison=comparison))


def _status(status: int, message: str, *, code: str) -> hcm_pb2.ResponseMapper:
    condition = status_filter(accesslog_pb2.ComparisonFilter.EQ, status)
    return _mapper(condition, error_body(message, kind="invalid_request_error", code=code), retry=False)


def _mapper(condition: accesslog_pb2.AccessLogFilter, body: str, *, retry: bool) -> hcm_pb2.ResponseMapper:
    mapper = hcm_pb2.ResponseMapper(
        filter=condition,
        body=base_pb2.DataSource(inline_string=body),
        headers_to_add=[_header("content-type", "application/json")],
    )
    mapper.body_format_override.text_format_source.inline_string = "%LOCAL_REPLY_BODY%"
    mapper.body_format_override.content_type = "application/json"
    if retry:
        mapper.headers_to_add.append(_header("retry-after", str(_RETRY_AFTER_S)))
    return mapper


def _header(key: str, value: str) -> base_pb2.HeaderValueOption:
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=key, value=value),
        append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )
