"""One HTTP exchange of the load client, as an asyncio protocol: what came, when, and how it ended."""

import asyncio
import time

import httptools
import msgspec
from msgspec.structs import replace

from tradewind.lab.events import StreamReader, has_content, usage_of
from tradewind.measure.record import Failure, Record
from tradewind.workload.plan import Planned

MAX_DETAIL_BYTES = 400
MAX_BODY_BYTES = 16 * 2**20  # of an answer that is read as a whole
OK = 200


def begin(planned: Planned) -> Record:
    """The record of a request that has not been sent."""
    return Record(
        request_id=planned.request_id,
        kind=planned.kind,
        intended_s=planned.at_s,
        prompt_tokens=planned.prompt_tokens,
        output_tokens=planned.output_tokens,
    )


class Exchange(asyncio.Protocol):
    """Feed of one connection that carries one response.

    Times are time.monotonic() less `start_s`: an event loop may cache its clock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, start_s: float) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self.failure = Failure.NONE
        self._start_s = start_s
        self._parser = httptools.HttpResponseParser(self)
        self._reader = StreamReader()
        self._now_s = 0.0
        self._headers_s: float | None = None
        self._content_s: float | None = None
        self._status = 0
        self._is_stream = False
        self._has_length = False
        self._complete = False
        self._body = bytearray()
        self._body_bytes = 0
        self._detail = ""

    def data_received(self, data: bytes) -> None:
        """Bytes of the response."""
        self._now_s = time.monotonic() - self._start_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(Failure.PROTOCOL, f"not HTTP: {error}")
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed or broke the connection."""
        if not self.ended.done():
            self._now_s = time.monotonic() - self._start_s
            self._detail = self._detail or (str(exc) if exc else "the connection was closed")
            self._end()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One response header."""
        lowered = name.lower()
        if lowered == b"content-type":
            self._is_stream = value.startswith(b"text/event-stream")
        elif lowered in {b"content-length", b"transfer-encoding"}:
            self._has_length = True

    def on_headers_complete(self) -> None:
        """Status and headers are in."""
        self._headers_s = self._now_s
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._is_stream and self._status == OK:
            if self._reader.feed(body):
                self._content_s = self._now_s
        elif len(self._body) < MAX_BODY_BYTES:
            self._body += body

    def on_message_complete(self) -> None:
        """The response is whole."""
        self._complete = True
        self._end()

    def fail(self, failure: Failure, detail: str) -> None:
        """Note a failure that only the client knows of; the first one counts."""
        if self.failure is Failure.NONE:
            self.failure, self._detail = failure, detail
            self._now_s = time.monotonic() - self._start_s

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def record(self, base: Record) -> Record:
        """The base record, completed by what was seen."""
        if self._status == OK and not self._is_stream and self._complete and self.failure is Failure.NONE:
            self._read_whole_body()
        failure, detail = self._verdict()
        prompt, cached, completion = self._reader.usage
        return replace(
            base,
            headers_s=self._headers_s,
            content_s=self._content_s,
            end_s=self._now_s,
            status=self._status,
            failure=failure,
            detail=detail,
            usage_prompt_tokens=prompt,
            usage_cached_tokens=cached,
            usage_completion_tokens=completion,
            content_events=self._reader.content_events,
            body_bytes=self._body_bytes,
        )

    def _read_whole_body(self) -> None:
        try:
            answer = msgspec.json.decode(self._body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.fail(Failure.PROTOCOL, f"not JSON: {error}")
            return
        if not isinstance(answer, dict):
            self.fail(Failure.PROTOCOL, "the answer is not an object")
            return
        self._reader.done = True
        choices = answer.get("choices")
        whole = [{"delta": choice.get("message", choice)} for choice in choices or [] if isinstance(choice, dict)]
        if has_content({"choices": whole}):
            self._reader.content_events = 1
            self._content_s = self._now_s
        if isinstance(answer.get("usage"), dict):
            self._reader.usage = usage_of(answer["usage"])

    def _verdict(self) -> tuple[Failure, str]:
        reader = self._reader
        if self.failure is not Failure.NONE:
            return self.failure, self._detail
        if self._status == 0:
            return Failure.RESET, self._detail
        if self._status != OK:
            return Failure.STATUS, self._body[:MAX_DETAIL_BYTES].decode("utf-8", "replace")
        if reader.error:
            return Failure.STREAM_ERROR, reader.error
        if reader.malformed:
            return Failure.PROTOCOL, reader.malformed
        if not self._complete and (self._has_length or not reader.done):
            return (Failure.BYTES_DELIVERED if self._body_bytes else Failure.HEADERS_ONLY), self._detail
        if not reader.content_events:
            return Failure.EMPTY, "a whole answer without content"
        return (Failure.NONE, "") if reader.done else (Failure.TRUNCATED, "the stream ended without [DONE]")
