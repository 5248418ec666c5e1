"""One generation request under way: its sequences, and the bytes it answers, formatted as vLLM does."""

import time
from dataclasses import dataclass, field

import msgspec

from tradewind.emulator.answers import ApiError
from tradewind.emulator.http import Exchange, Header, frame
from tradewind.emulator.prompt import Generation
from tradewind.emulator.words import WORD_BYTES, output_bytes, word
from tradewind.engine.sequence import Sequence

DONE = b"data: [DONE]\n\n"
_MARK = "\u0394\u0394"  # as long as a word in UTF-8, and not to be had in an id that came as Latin-1
assert len(_MARK.encode()) == WORD_BYTES


@dataclass(slots=True)
class Job:
    """State of one request. Streams answer token by token, other requests once all sequences are done."""

    exchange: Exchange
    generation: Generation
    answer_id: str  # with its prefix, e.g. "chatcmpl-1234"
    model: str  # as the client named it
    fingerprint: str
    arrival_s: float
    headers: tuple[Header, ...]
    block_size_tokens: int
    sequences: list[Sequence] = field(default_factory=list)
    unfinished: int = 0
    role_sent: bool = False
    buffer: list[bytes] = field(default_factory=list)
    created: int = field(default_factory=lambda: int(time.time()))
    _heads: list[tuple[bytes, bytes]] = field(default_factory=list)  # per choice: frame up to the text, and after it

    def start(self) -> None:
        """Sends the headers of a stream: at once, whatever the queue."""
        self.unfinished = self.generation.choices
        if self.generation.stream:
            self.exchange.start_stream(self.headers)
            self._heads = [self._prebuilt(index) for index in range(self.generation.choices)]

    def on_token(self, index: int, sequence: Sequence) -> None:
        """One more token of choice `index`."""
        last = sequence.finish_reason is not None
        if last:
            self.unfinished -= 1
        if not self.generation.stream:
            return
        if self.generation.chat and not self.role_sent:
            self.role_sent = True
            self.buffer.extend(self._role_frame(choice) for choice in range(self.generation.choices))
        text = word(self.generation.seed, sequence.generated - 1)
        if last or self.generation.usage_on_each:
            self.buffer.append(self._slow_frame(index, text.decode(), sequence))
        else:
            before, after = self._heads[index]
            self.buffer.append(before + text + after)

    def on_abort(self, index: int, sequence: Sequence) -> None:
        """The engine has dropped choice `index` (pause, sleep)."""
        self.unfinished -= 1
        if self.generation.stream:
            self.buffer.append(self._slow_frame(index, "", sequence))

    def flush(self) -> None:
        """Sends what has gathered; completes the response if all sequences are done."""
        frames = b"".join(self.buffer)
        self.buffer.clear()
        if self.unfinished > 0:
            if frames:
                self.exchange.write_frames(frames)
        elif self.generation.stream:
            if self.generation.include_usage:
                frames += frame(self._usage_event())
            self.exchange.end_stream(frames + frame(DONE))
        else:
            self.respond(200, self._whole_body())

    def fail(self, error: ApiError) -> None:
        """Ends the request with an error: as a response, or as an event inside the stream."""
        if self.generation.stream:
            frames = b"".join(self.buffer)
            self.exchange.end_stream(frames + frame(error.event()) + frame(DONE))
        else:
            self.respond(error.status, error.body())

    def respond(self, status: int, body: bytes) -> None:
        """Sends a whole JSON response."""
        length = (("content-length", str(len(body))), ("content-type", "application/json"))
        orca = [header for header in self.headers if header[0] == "endpoint-load-metrics"]
        rest = [header for header in self.headers if header[0] in ("vary", "x-request-id")]
        self.exchange.respond(status, body, (*orca, *length, *rest))

    # -- bodies -------------------------------------------------------------------------------------------------------

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far, over all choices."""
        return sum(sequence.generated for sequence in self.sequences)

    def _prebuilt(self, index: int) -> tuple[bytes, bytes]:
        """A token's HTTP chunk without the token: every token is as long as the other."""
        before, after = frame(_event(self._chunk(index, _MARK, None))).split(_MARK.encode(), 1)
        return before, after

    def _base(self, kind: str) -> dict[str, object]:
        return {"id": self.answer_id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, index: int, text: str, finish_reason: str | None) -> dict[str, object]:
        choice: dict[str, object] = {"index": index}
        if self.generation.chat:
            choice |= {"delta": {"content": text}, "logprobs": None, "finish_reason": finish_reason}
            if finish_reason is not None:
                choice["stop_reason"] = None
            choice["token_ids"] = None
            return self._base("chat.completion.chunk") | {"choices": [choice]}
        choice |= {"text": text, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        choice |= {"prompt_token_ids": None, "token_ids": None}
        return self._base("text_completion") | {"choices": [choice]}

    def _slow_frame(self, index: int, text: str, sequence: Sequence) -> bytes:
        body = self._chunk(index, text, sequence.finish_reason)
        if self.generation.usage_on_each:
            body["usage"] = _usage(self.generation.prompt_tokens, sequence.generated)
        if sequence.finish_reason is not None and not self.generation.include_usage:
            body["system_fingerprint"] = self.fingerprint
        return frame(_event(body))

    def _role_frame(self, index: int) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        body = self._base("chat.completion.chunk") | {"choices": [choice]}
        if self.generation.usage_on_each:
            body["usage"] = _usage(self.generation.prompt_tokens, 0)
        return frame(_event(body | {"prompt_token_ids": None, "prompt_text": None}))

    def _usage_event(self) -> bytes:
        usage = _usage(self.generation.prompt_tokens, self.completion_tokens)
        details: dict[str, object] = {"cached_tokens": self._cached_tokens()}
        if self.generation.chat:
            details["created_cache_tokens"] = self._created_cache_tokens()
        usage["prompt_tokens_details"] = details
        kind = "chat.completion.chunk" if self.generation.chat else "text_completion"
        return _event(self._base(kind) | {"choices": [], "usage": usage, "system_fingerprint": self.fingerprint})

    def _whole_body(self) -> bytes:
        chat = self.generation.chat
        usage = _usage(self.generation.prompt_tokens, self.completion_tokens)
        usage["prompt_tokens_details"] = {
            "cached_tokens": self._cached_tokens(),
            "created_cache_tokens": self._created_cache_tokens() if chat else None,
            "multimodal_tokens": None,
        }
        usage["completion_tokens_details"] = None
        body = self._base("chat.completion" if chat else "text_completion")
        body["choices"] = [self._whole_choice(index, sequence) for index, sequence in enumerate(self.sequences)]
        body |= {"service_tier": None, "system_fingerprint": self.fingerprint, "usage": usage}
        if chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        body |= {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
        return msgspec.json.encode(body)

    def _whole_choice(self, index: int, sequence: Sequence) -> dict[str, object]:
        text = output_bytes(self.generation.seed, sequence.generated).decode()
        end: dict[str, object] = {"logprobs": None, "finish_reason": sequence.finish_reason, "stop_reason": None}
        if self.generation.chat:
            message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None}
            message |= {"function_call": None, "reasoning": None}
            return {"index": index, "message": message} | end | {"token_ids": None, "routed_experts": None}
        rest = {"token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None}
        return {"index": index, "text": text} | end | rest

    def _cached_tokens(self) -> int:
        return self.sequences[0].cached_tokens if self.sequences else 0

    def _created_cache_tokens(self) -> int:
        size = self.block_size_tokens
        return max(0, self.generation.prompt_tokens // size * size - self._cached_tokens())


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def _event(body: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
