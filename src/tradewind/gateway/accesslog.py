"""The access-log server of one gateway: Envoy's lines in, outcomes out."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import grpc

from tradewind.model.outcome import Outcome
from tradewind.wire.pb import accesslog_pb2 as pb
from tradewind.xds.logline import FIELDS, GATE_REFUSES, LEAST_DEATHS, SEPARATOR

SERVICE = "envoy.service.accesslog.v3.AccessLogService"
MAX_ATTEMPTS_KEPT = 16
MAX_REQUESTS_KEPT = 10_000
_ATTEMPT = "UpstreamEnd"
_SEPARATORS = len(FIELDS) - 1
_NO_ANSWER = ("", "", "", "")
_UNNAMED_ERROR_CODE = 500  # an error event without a numeric code

_CellOf: TypeAlias = Callable[[str], str | None]


class AccessLogServer:
    """Turns each request's line into an `Outcome`; lines that cannot be read are counted and dropped.

    Envoy tells of failed attempts in lines of their own, which come before the request's.
    """

    def __init__(self, cell_of: _CellOf, on_outcome: Callable[[Outcome], None]) -> None:
        """`cell_of`: "ip:port" -> cell id, None if no cell is there."""
        self._cell_of = cell_of
        self._on_outcome = on_outcome
        self._failed: dict[str, tuple[FailedAttempt, ...]] = {}  # request id -> attempts, until its line comes
        self.entries = 0
        self.unparseable = 0
        self.forgotten = 0  # failed attempts dropped because too many requests were open

    def handler(self) -> "grpc.GenericRpcHandler[Any, object]":
        """For `AdsServer(handlers=[...])`: one socket serves both."""
        method = grpc.stream_unary_rpc_method_handler(self._stream, request_deserializer=pb.Message.FromString)
        return grpc.method_handlers_generic_handler(SERVICE, {"StreamAccessLogs": method})

    async def _stream(self, messages: AsyncIterator[pb.Message], context: object) -> bytes:
        async for message in messages:
            self.take_message(message)
        return b""  # the empty StreamAccessLogsResponse

    def take_message(self, message: pb.Message) -> None:
        """Read all lines of one message."""
        for entry in message.http_logs.log_entry:
            self.take(entry.common_properties.custom_tags.value)

    def take(self, line: bytes) -> None:
        """Read one line; a request's makes an outcome, an attempt's waits for it."""
        self.entries += 1
        fields = str(line, "utf-8", "replace").split(SEPARATOR, _SEPARATORS)
        try:
            if fields[0] == _ATTEMPT:
                self._remember(fields)
                return
            failed = self._failed.pop(fields[4], ()) if self._failed else ()
            outcome = read_request(fields, self._cell_of, failed)
        except (ValueError, OverflowError, IndexError):
            self.unparseable += 1
            return
        self._on_outcome(outcome)

    def _remember(self, fields: list[str]) -> None:
        _, status, flags, host, request_id, *_ = fields
        attempt = FailedAttempt(self._cell_of(host), status if flags in ("", "-") else flags)
        attempts = self._failed.pop(request_id, ())
        self._failed[request_id] = (*attempts, attempt)[-MAX_ATTEMPTS_KEPT:]
        if len(self._failed) > MAX_REQUESTS_KEPT:
            self.forgotten += len(self._failed.pop(next(iter(self._failed))))


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that a later one may have made good: the cell, and Envoy's flags or the engine's status."""

    cell_id: str | None
    reason: str  # "UF", "UC", "503", ...


def read_request(fields: list[str], cell_of: _CellOf, failed: Sequence[FailedAttempt] = ()) -> Outcome:
    """A request's fields as an outcome. Raises ValueError for what our configuration cannot have put there.

    `failed`: attempts seen under its id, oldest first; a client may use an id twice, so only the last ones count.
    """
    (
        _, status, flags, host, request_id, tries, route, request_bytes, response_bytes, attempt_us, ttft_us, end_us,
        duration_ms, answer, retry_after, deaths, decision,
    ) = fields  # fmt: skip
    prompt, completion, cached, error_code, *stored = answer.split(",", 4) if answer else _NO_ANSWER
    flags = "" if flags == "-" else flags  # "-" is no flag
    attempts = int(tries or 0) or 1
    died = int(deaths) if deaths else 0
    # The gate itself answers a request under which so many engines died: the cell that it was meant for never saw it.
    cell_id = cell_of(host) if host and not (died >= LEAST_DEATHS and int(status) == GATE_REFUSES) else None
    earlier_cells, reasons = _earlier(failed, attempts) if failed else ((), ())
    return Outcome(  # by position, in the order of its fields: names would cost a microsecond per request
        request_id,
        cell_id,
        _model(route),
        int(status),
        flags,
        attempts,
        (*earlier_cells, cell_id) if cell_id else earlier_cells,
        reasons,
        int(request_bytes),
        int(response_bytes),
        int(ttft_us) / 1e6 if ttft_us else None,
        int(attempt_us) / 1e6 if attempt_us else None,
        int(end_us) / 1e6 if end_us else int(duration_ms) / 1e3,
        int(prompt) if prompt else None,
        int(cached) if cached else None,
        int(completion) if completion else None,
        int(error_code) or _UNNAMED_ERROR_CODE if error_code else None,
        _seconds(retry_after) if retry_after else None,
        bool(flags) and "DC" in flags.split(","),
        decision,
        stored[0] if stored else "",
        died,
    )


def _earlier(failed: Sequence[FailedAttempt], attempts: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Cells and reasons of the attempts before the last one, where the cell is known."""
    recent = failed[-attempts:]  # the one that answered is among them if it failed too
    pairs = [(attempt.cell_id, attempt.reason) for attempt in recent[: attempts - 1] if attempt.cell_id]
    return tuple(cell_id for cell_id, _ in pairs), tuple(reason for _, reason in pairs)


@lru_cache(maxsize=4096)
def _model(route_name: str) -> str | None:
    """Routes of pools are named pool/<version>/<model>."""
    kind, _, rest = route_name.partition("/")
    return rest.partition("/")[2] or None if kind == "pool" else None


def _seconds(value: str) -> float | None:
    """Retry-After in seconds; its date form and nonsense are unknown."""
    return float(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None
