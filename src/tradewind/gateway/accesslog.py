"""The access-log server of one gateway: Envoy's entries in, outcomes out."""

from collections.abc import AsyncIterator, Callable, Mapping

import grpc
from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2

from tradewind.model.outcome import Outcome
from tradewind.xds.builder import model_of_cluster
from tradewind.xds.usage import NAMESPACE

SERVICE = "envoy.service.accesslog.v3.AccessLogService"
MAX_ATTEMPTS_KEPT = 16
_UNNAMED_ERROR_CODE = 500  # an error event without a numeric code


class AccessLogServer:
    """Turns each entry into an `Outcome`; entries that cannot be read are counted and dropped."""

    def __init__(self, cell_of: Callable[[str], str | None], on_outcome: Callable[[Outcome], None]) -> None:
        """`cell_of`: "ip:port" -> cell id, None if no cell is there."""
        self._cell_of = cell_of
        self._on_outcome = on_outcome
        self.entries = 0
        self.unparseable = 0

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

    def take(self, entry: accesslog_pb2.HTTPAccessLogEntry) -> None:
        """Read one entry and hand its outcome on."""
        self.entries += 1
        try:
            outcome = read_entry(entry, self._cell_of)
        except (ValueError, OverflowError):
            self.unparseable += 1
            return
        self._on_outcome(outcome)


def read_entry(entry: accesslog_pb2.HTTPAccessLogEntry, cell_of: Callable[[str], str | None]) -> Outcome:
    """One access-log entry as an outcome. Raises ValueError for what our configuration cannot have put there."""
    common, response = entry.common_properties, entry.response
    tags: Mapping[str, str] = common.custom_tags
    flags = _text(tags.get("flags"))
    usage = common.metadata.filter_metadata[NAMESPACE].fields if NAMESPACE in common.metadata.filter_metadata else {}
    return Outcome(
        request_id=entry.request.request_id,
        cell_id=_cell_id(common, cell_of),
        model=model_of_cluster(common.upstream_cluster),
        status=response.response_code.value,
        flags=flags,
        attempts=max(common.upstream_request_attempt_count, 1),
        attempted_cells=_attempted(_text(tags.get("attempted")), cell_of),
        request_bytes=entry.request.request_body_bytes,
        response_bytes=response.response_body_bytes,
        ttft_s=_micros(tags.get("ttft_us")),
        attempt_s=_attempt_s(common),
        duration_s=common.duration.ToNanoseconds() / 1e9,
        prompt_tokens=_count(usage, "prompt_tokens"),
        cached_tokens=_count(usage, "cached_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        stream_error_code=_stream_error(usage),
        retry_after_s=_seconds(response.response_headers.get("retry-after")),
        client_cancelled="DC" in flags.split(","),
    )


def _cell_id(common: accesslog_pb2.AccessLogCommon, cell_of: Callable[[str], str | None]) -> str | None:
    if not common.HasField("upstream_remote_address"):
        return None
    socket = common.upstream_remote_address.socket_address
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    return cell_of(f"{host}:{socket.port_value}")


def _attempt_s(common: accesslog_pb2.AccessLogCommon) -> float | None:
    """Envoy keeps the times of the newest attempt only."""
    if not common.HasField("time_to_first_upstream_tx_byte"):
        return None
    return common.time_to_first_upstream_tx_byte.ToNanoseconds() / 1e9


def _attempted(text: str, cell_of: Callable[[str], str | None]) -> tuple[str, ...]:
    addresses = text.split(",")[:MAX_ATTEMPTS_KEPT] if text else []
    cells = [cell_of(address) for address in addresses]
    return tuple(cell for cell in cells if cell is not None)


def _text(value: str | None) -> str:
    """Envoy writes "-" for nothing."""
    return "" if value in (None, "-") else str(value)


def _micros(value: str | None) -> float | None:
    text = _text(value)
    return int(text) / 1e6 if text else None


def _seconds(value: str | None) -> float | None:
    """Retry-After in seconds; its date form and nonsense are unknown."""
    return float(value) if value and value.isdecimal() and len(value) < 10 else None


def _count(usage: Mapping[str, "object"], name: str) -> int | None:
    field = usage.get(name)
    value = getattr(field, "number_value", None)
    return int(value) if value is not None else None


def _stream_error(usage: Mapping[str, "object"]) -> int | None:
    if "error_code" in usage:
        return _count(usage, "error_code")
    return _UNNAMED_ERROR_CODE if "error_text" in usage else None
