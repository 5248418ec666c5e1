"""What a client reads in an OpenAI stream: first content, error events, usage, the end mark; cheap after the first."""

import msgspec

DONE = b"[DONE]"
MAX_EVENT_BYTES = 1_048_576  # an event that does not end within this is not one

_decoder = msgspec.json.Decoder()


class StreamReader:
    """Fed with pieces of a body, split anywhere. Answers what has been seen so far.

    Only events before the first content, and those that mention an error or usage, are parsed: at hundreds of
    events a second the client must not become the bottleneck that it measures.
    """

    def __init__(self) -> None:
        self.content_events = 0
        self.done = False
        self.error = ""  # the error event's text; "" = none
        self.malformed = ""  # why the stream is not one; "" = it is
        self.usage: tuple[int | None, int | None, int | None] = (None, None, None)  # prompt, cached, completion
        self._pending = b""

    def feed(self, data: bytes) -> bool:
        """Take a piece; True when it brought the first content."""
        before = self.content_events
        pending = self._pending + data if self._pending else data
        *events, rest = pending.split(b"\n\n") if b"\r" not in pending else _split_with_returns(pending)
        for event in events:
            self._event(event)
        if len(rest) > MAX_EVENT_BYTES:
            self.malformed, rest = "an event without an end", b""
        self._pending = rest
        return before == 0 and self.content_events > 0

    def _event(self, event: bytes) -> None:
        if not event.startswith(b"data:"):
            event = _data_of(event)
            if not event:
                return
        payload = event[5:].strip()
        if payload == DONE:
            self.done = True
        elif self.content_events and b'"error":' not in payload and not _has_usage(payload):
            self.content_events += 1
        else:
            self._parsed(payload)

    def _parsed(self, payload: bytes) -> None:
        try:
            event = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.malformed = self.malformed or f"not JSON: {error}"
            return
        if not isinstance(event, dict):
            self.malformed = self.malformed or "an event is not an object"
            return
        if event.get("error") or event.get("object") == "error":
            self.error = self.error or str(event.get("error") or event.get("message"))[:300]
            return
        if isinstance(event.get("usage"), dict):
            self.usage = usage_of(event["usage"])
        if has_content(event):
            self.content_events += 1


def has_content(event: dict[str, object]) -> bool:
    """Whether an event carries text, reasoning or a tool call: a role alone, or usage alone, is no token."""
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        delta = choice.get("delta", choice) if isinstance(choice, dict) else {}
        if not isinstance(delta, dict):
            continue
        if any(delta.get(key) for key in ("content", "reasoning", "reasoning_content", "text", "tool_calls")):
            return True
    return False


def usage_of(usage: dict[str, object]) -> tuple[int | None, int | None, int | None]:
    """(prompt, cached, completion) tokens of a usage object; None where it does not say."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return _count(usage.get("prompt_tokens")), _count(cached), _count(usage.get("completion_tokens"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _has_usage(payload: bytes) -> bool:
    return b'"usage":{' in payload or b'"usage": {' in payload


def _split_with_returns(pending: bytes) -> list[bytes]:
    # A lone CR at the end may be half of a CRLF: it stays in the rest either way.
    return pending.replace(b"\r\n", b"\n").split(b"\n\n")


def _data_of(event: bytes) -> bytes:
    """The data line of an event that begins with a comment, an id or an event name; b"" when it has none."""
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    return next(lines, b"")
