"""The access-log server of one gateway: Envoy's entries in, outcomes out."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import grpc
from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2
from google.protobuf import struct_pb2

from tradewind.model.outcome import Outcome
from tradewind.xds.usage import NAMESPACE

SERVICE = "envoy.service.accesslog.v3.AccessLogService"
MAX_ATTEMPTS_KEPT = 16
MAX_REQUESTS_KEPT = 10_000
_UPSTREAM_END = accesslog_pb2.AccessLogType.UpstreamEnd
_UNNAMED_ERROR_CODE = 500  # an error event without a numeric code


_Entry: TypeAlias = accesslog_pb2.HTTPAccessLogEntry
_CellOf: TypeAlias = Callable[[str], str | None]


class AccessLogServer:
    """Turns each request's entry into an `Outcome`; entries that cannot be read are counted and dropped.

    Envoy tells of failed attempts in entries of their own, which come before the request's.
    """

    def __init__(self, cell_of: _CellOf, on_outcome: Callable[[Outcome], None]) -> None:
        """`cell_of`: "ip:port" -> cell id, None if no cell is there."""
        self._cell_of = cell_of
        self._on_outcome = on_outcome
        self._failed: dict[str, tuple[FailedAttempt, ...]] = {}  # request id -> attempts, until its entry comes
        self.entries = 0
        self.unparseable = 0
        self.forgotten = 0  # failed attempts dropped because too many requests were open

    def handler(self) -> "grpc.GenericRpcHandler[als_pb2.StreamAccessLogsMessage, als_pb2.StreamAccessLogsResponse]":
        """For `AdsServer(handlers=[...])`: one socket serves both."""
        method = grpc.stream_unary_rpc_method_handler(
            self._stream,
            request_deserializer=als_pb2.StreamAccessLogsMessage.FromString,
            response_serializer=als_pb2.StreamAccessLogsResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"StreamAccessLogs": method})

    async def _stream(
        self, messages: AsyncIterator[als_pb2.StreamAccessLogsMessage], context: object
    ) -> als_pb2.StreamAccessLogsResponse:
        async for message in messages:
            for entry in message.http_logs.log_entry:
                self.take(entry)
        return als_pb2.StreamAccessLogsResponse()

    def take(self, entry: _Entry) -> None:
        """Read one entry; a request's makes an outcome, an attempt's waits for it."""
        self.entries += 1
        request_id = entry.request.request_id
        try:
            if entry.common_properties.access_log_type == _UPSTREAM_END:
                self._remember(request_id, read_attempt(entry, self._cell_of))
                return
            outcome = read_entry(entry, self._cell_of, self._failed.pop(request_id, ()))
        except (ValueError, OverflowError):
            self.unparseable += 1
            return
        self._on_outcome(outcome)

    def _remember(self, request_id: str, attempt: "FailedAttempt") -> None:
        attempts = self._failed.pop(request_id, ())
        self._failed[request_id] = (*attempts, attempt)[-MAX_ATTEMPTS_KEPT:]
        if len(self._failed) > MAX_REQUESTS_KEPT:
            self.forgotten += len(self._failed.pop(next(iter(self._failed))))


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that a later one may have made good: the cell, and Envoy's flags or the engine's status."""

    cell_id: str | None
    reason: str  # "UF", "UC", "503", ...


def read_attempt(entry: _Entry, cell_of: _CellOf) -> FailedAttempt:
    """The entry of a failed attempt."""
    flags = _text(entry.common_properties.custom_tags.get("flags"))
    reason = flags or str(entry.response.response_code.value)
    return FailedAttempt(_cell_id(entry.common_properties, cell_of), reason)


def read_entry(entry: _Entry, cell_of: _CellOf, failed: Sequence[FailedAttempt] = ()) -> Outcome:
    """A request's entry as an outcome. Raises ValueError for what our configuration cannot have put there.

    `failed`: attempts seen under its id, oldest first; a client may use an id twice, so only the last ones count.
    """
    common, request, response = entry.common_properties, entry.request, entry.response
    tags: Mapping[str, str] = common.custom_tags
    flags = _text(tags.get("flags"))
    usage = _usage(common)
    attempts = max(common.upstream_request_attempt_count, 1)
    cell_id = _cell_id(common, cell_of)
    earlier_cells, reasons = _earlier(failed, attempts) if failed else ((), ())
    return Outcome(
        request_id=request.request_id,
        cell_id=cell_id,
        model=_model(common.route_name),
        status=response.response_code.value,
        flags=flags,
        attempts=attempts,
        attempted_cells=(*earlier_cells, cell_id) if cell_id else earlier_cells,
        attempt_failures=reasons,
        request_bytes=request.request_body_bytes,
        response_bytes=response.response_body_bytes,
        ttft_s=_micros(tags.get("ttft_us")),
        attempt_s=_attempt_s(common),
        duration_s=common.duration.ToNanoseconds() / 1e9,
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        completion_tokens=usage.completion,
        stream_error_code=usage.error_code,
        retry_after_s=_seconds(response.response_headers.get("retry-after")),
        client_cancelled=bool(flags) and "DC" in flags.split(","),
    )


def _earlier(failed: Sequence[FailedAttempt], attempts: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Cells and reasons of the attempts before the last one, where the cell is known."""
    recent = failed[-attempts:]  # the one that answered is among them if it failed too
    pairs = [(attempt.cell_id, attempt.reason) for attempt in recent[: attempts - 1] if attempt.cell_id]
    return tuple(cell_id for cell_id, _ in pairs), tuple(reason for _, reason in pairs)


def _attempt_s(common: accesslog_pb2.AccessLogCommon) -> float | None:
    """Envoy keeps the times of the newest attempt only; None when nothing was sent upstream."""
    if not common.HasField("time_to_first_upstream_tx_byte"):
        return None
    return float(common.time_to_first_upstream_tx_byte.ToNanoseconds() / 1e9)


@lru_cache(maxsize=4096)
def _model(route_name: str) -> str | None:
    """Routes of pools are named pool/<version>/<model>."""
    kind, _, rest = route_name.partition("/")
    return rest.partition("/")[2] or None if kind == "pool" else None


def _cell_id(common: accesslog_pb2.AccessLogCommon, cell_of: _CellOf) -> str | None:
    if not common.HasField("upstream_remote_address"):
        return None
    socket = common.upstream_remote_address.socket_address
    host = socket.address
    return cell_of(f"[{host}]:{socket.port_value}" if ":" in host else f"{host}:{socket.port_value}")


def _text(value: str | None) -> str:
    """Envoy writes "-" for nothing."""
    return value if value and value != "-" else ""


def _micros(value: str | None) -> float | None:
    text = _text(value)
    return int(text) / 1e6 if text else None


def _seconds(value: str | None) -> float | None:
    """Retry-After in seconds; its date form and nonsense are unknown."""
    return float(value) if value and value.isascii() and value.isdecimal() and len(value) < 10 else None


class _Usage(NamedTuple):
    """What the metadata of one response says."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    error_code: int | None = None


_NO_USAGE = _Usage()


def _usage(common: accesslog_pb2.AccessLogCommon) -> _Usage:
    """Counts of a whole JSON answer come as one text ("11,5,"), those of a stream, and its errors, as fields."""
    metadata = common.metadata.filter_metadata
    if NAMESPACE not in metadata:
        return _NO_USAGE
    fields = metadata[NAMESPACE].fields
    if "answer" in fields:
        prompt, completion, cached = [int(n) if n else None for n in fields["answer"].string_value.split(",")]
        return _Usage(prompt, completion, cached)
    error = _number(fields, "error_code")
    return _Usage(
        prompt=_number(fields, "prompt_tokens"),
        completion=_number(fields, "completion_tokens"),
        cached=_number(fields, "cached_tokens"),
        error_code=_UNNAMED_ERROR_CODE if error is None and "error_text" in fields else error,
    )


def _number(fields: Mapping[str, struct_pb2.Value], name: str) -> int | None:
    return int(fields[name].number_value) if name in fields else None
