"""What became of one request, as its client saw it."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec


class Failure(StrEnum):
    """How a request failed; NONE is a success. The three in the middle are failures that a status of 200 hides."""

    NONE = ""
    REFUSED = "refused"  # no connection to the gateway
    RESET = "reset"  # the connection ended before any response
    STATUS = "status"  # a response, and its status was not 200
    HEADERS_ONLY = "headers_only"  # 200, then the connection ended before any body byte
    BYTES_DELIVERED = "bytes_delivered"  # 200 and some body, then the connection ended
    TRUNCATED = "truncated"  # the stream ended properly, but without [DONE]
    STREAM_ERROR = "stream_error"  # an error event inside a 200 stream
    EMPTY = "empty"  # a complete stream without any content
    TIMEOUT = "timeout"  # the client gave up
    PROTOCOL = "protocol"  # not HTTP, or not JSON where JSON must be
    NOT_SENT = "not_sent"  # the client had too many requests open; the grid never saw it


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Times in seconds from the start of the load; None = it did not come to that."""

    request_id: str
    kind: str = ""
    intended_s: float  # when the plan said to send it
    sent_s: float | None = None
    headers_s: float | None = None
    content_s: float | None = None  # first event with content: role-only and usage-only events do not count
    end_s: float | None = None
    status: int = 0  # 0 = no response
    failure: Failure = Failure.NONE
    detail: str = ""
    prompt_tokens: int = 0  # as planned
    output_tokens: int = 0  # as planned
    usage_prompt_tokens: int | None = None  # as the engine counted
    usage_cached_tokens: int | None = None
    usage_completion_tokens: int | None = None
    content_events: int = 0
    body_bytes: int = 0
    cell: str | None = None  # who served it, where that is known
    attempts: int | None = None
    attempted: tuple[str, ...] = ()  # cells in order, the one that answered last
    attempt_s: float | None = None  # start of the attempt that was served, at the engine

    @property
    def ok(self) -> bool:
        """Served in full."""
        return self.failure is Failure.NONE

    @property
    def ttft_s(self) -> float | None:
        """From the intended sending to the first content: a client that stalls cannot hide a wait."""
        return None if self.content_s is None else self.content_s - self.intended_s

    @property
    def ttft_sent_s(self) -> float | None:
        """From the actual sending to the first content."""
        return None if self.content_s is None or self.sent_s is None else self.content_s - self.sent_s

    @property
    def e2e_s(self) -> float | None:
        """From the intended sending to the end of the stream."""
        return None if self.end_s is None else self.end_s - self.intended_s

    @property
    def itl_s(self) -> float | None:
        """Mean time between two tokens of the output; None below two of them."""
        tokens = self.usage_completion_tokens or self.content_events
        if self.content_s is None or self.end_s is None or tokens < 2:
            return None
        return (self.end_s - self.content_s) / (tokens - 1)

    @property
    def reroute_s(self) -> float | None:
        """From arrival to the start of the attempt that was served; None where not served or not known."""
        if not self.ok or self.attempt_s is None or self.sent_s is None:
            return None
        return max(0.0, self.attempt_s - self.sent_s)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write one JSON object for each line. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.Encoder().encode_lines(list(records)))


def read_records(path: Path) -> Iterator[Record]:
    """Read what `write_records` wrote. Raises OSError, msgspec.DecodeError."""
    decoder = msgspec.json.Decoder(Record)
    with path.open("rb") as lines:
        yield from (decoder.decode(line) for line in lines)
