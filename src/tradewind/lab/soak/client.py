"""A closed-loop client that reads every token of a stream, so that a mixed or doubled one is found."""

import asyncio
import random
import string
from dataclasses import dataclass
from enum import StrEnum

import aiohttp
import msgspec
import xxhash

from tradewind.emulator.prompt import chat_text
from tradewind.emulator.words import output_bytes

OK = 200
SMALLEST_BYTES, LARGEST_BYTES = 10, 200_000
_LETTERS = string.ascii_lowercase + " " * 6


class End(StrEnum):
    """What became of one request."""

    OK = "ok"
    LOST = "lost before a token"  # 200 and then nothing, or no answer at all
    CUT = "cut after tokens"
    ERROR_STATUS = "error status"  # an answer that is not 200
    ERROR_EVENT = "error event in a 200 stream"
    WRONG = "mixed, doubled or other tokens"
    CANCELLED = "cancelled by the client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of the soak."""

    request_id: str
    text: str
    output_tokens: int
    cancel_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request and its end."""

    request_id: str
    end: End
    status: int = 0
    detail: str = ""


def draw(rng: random.Random, request_id: str, *, output_tokens: int, cancel_share: float) -> Ask:
    """A prompt of 10 B to 200 KB, as many of each order of magnitude."""
    length = round(SMALLEST_BYTES * (LARGEST_BYTES / SMALLEST_BYTES) ** rng.random())
    noise = "".join(rng.choices(_LETTERS, k=min(length, 997)))
    text = (noise * (length // len(noise) + 1))[:length]
    cancelled = rng.random() < cancel_share
    return Ask(
        request_id=request_id,
        text=text,
        output_tokens=output_tokens,
        cancel_after_s=rng.uniform(0.0, 0.5) if cancelled else None,
    )


async def ask(session: aiohttp.ClientSession, address: str, model: str, request: Ask, *, timeout_s: float) -> Answer:
    """Send it and read the answer to its end; a failure is an answer, never an exception."""
    try:
        async with asyncio.timeout(request.cancel_after_s):
            return await _exchange(session, address, model, request, timeout_s=timeout_s)
    except TimeoutError:
        return Answer(request_id=request.request_id, end=End.CANCELLED)


async def _exchange(
    session: aiohttp.ClientSession, address: str, model: str, request: Ask, *, timeout_s: float
) -> Answer:
    messages = [{"role": "user", "content": request.text}]
    body = {"model": model, "messages": messages, "max_tokens": request.output_tokens, "ignore_eos": True}
    status, data, broken = 0, bytearray(), ""
    try:
        async with session.post(
            f"http://{address}/v1/chat/completions",
            json=body | {"stream": True},
            headers={"x-request-id": request.request_id},
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            status = response.status
            async for chunk in response.content.iter_any():
                data += chunk
    except aiohttp.ServerTimeoutError:
        broken = f"no end within {timeout_s:g} s"
    except (aiohttp.ClientError, OSError) as error:
        broken = str(error) or type(error).__name__
    expected = output_bytes(xxhash.xxh3_64_intdigest(chat_text(messages)), request.output_tokens).decode()
    end, detail = judge(status, bytes(data), broken, expected=expected)
    return Answer(request_id=request.request_id, end=end, status=status, detail=detail[:200])


def judge(status: int, data: bytes, broken: str, *, expected: str) -> tuple[End, str]:
    """The end of an answer from what came of it. `broken`: why the connection ended early; "" = it did not."""
    if status not in {0, OK}:
        return End.ERROR_STATUS, data.decode("utf-8", "replace")
    events = [event[6:] for event in data.split(b"\n\n") if event.startswith(b"data: ")]
    done = b"[DONE]" in events
    text, ids, error = "", set[object](), ""
    for event in events:
        try:
            parsed = msgspec.json.decode(event) if event != b"[DONE]" else {}
        except msgspec.DecodeError:
            continue  # the last one of a cut stream
        if parsed.get("error"):
            error = str(parsed["error"])
        ids |= {parsed["id"]} if "id" in parsed else set()
        for choice in parsed.get("choices", ()):
            text += choice["delta"].get("content") or ""
    if not expected.startswith(text) or len(ids) > 1:
        return End.WRONG, f"{len(ids)} ids, {text[:80]!r}"
    if error:
        return End.ERROR_EVENT, error
    if not text:
        return End.LOST, broken or f"{len(data)} bytes, no token"
    if broken or not done or text != expected:
        return End.CUT, broken or f"{len(text)} of {len(expected)} bytes of text"
    return End.OK, ""
