"""The cases through a real Envoy: what the client gets, who served, and what happens when the picker dies."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tradewind.gateway.epp.replies import DESTINATION, LB_NAMESPACE, SERVED
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.engines import SSE_CHUNKS, SSE_GAP_S
from tradewind.lab.epp.envoy_config import MESSAGE_TIMEOUT_S
from tradewind.lab.epp.rig import Reply, Rig
from tradewind.lab.epp.script import Script
from tradewind.lab.epp.tap import Heard
from tradewind.lab.epp.transcript import Transcript

ROUNDS = 8
SLACK_S = 1.0  # for a busy machine, beside every limit of Envoy
_STRANGER = "127.0.0.1:1"


class NotApplicable(Exception):
    """The picker does not do what this case is about; says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyCase:
    """One row of the table. `run` gives the problem, or ""."""

    name: str
    proves: str
    run: Callable[[Rig], Awaitable[str]]


def destinations(heard: Heard) -> list[str]:
    """Where the picker sent this request."""
    return Transcript(Script(), answers=heard.said_by_picker()).destinations


def told_served(heard: Heard) -> list[str]:
    """Who served, as Envoy told the picker with the response's headers."""
    return [
        message.metadata_context.filter_metadata[LB_NAMESPACE].fields[SERVED].string_value
        for message in heard.said_by_proxy()
        if message.HasField("response_headers")
    ]


def _well(reply: Reply, body: bytes) -> str:
    if reply.status != 200:
        return f"the client got {reply.status or 'nothing'} after {reply.took_s:.2f} s"
    intact = reply.body_sha256 == hashlib.sha256(body).hexdigest()
    return "" if intact else "the engine got another body than the client sent"


async def _obeyed(rig: Rig, port: int, body: bytes, **headers: str) -> str:
    for _ in range(ROUNDS):
        reply = await rig.ask(port, body, headers={name.replace("_", "-"): value for name, value in headers.items()})
        problem = _well(reply, body)
        if problem:
            return problem
        wanted = destinations(rig.tap.heard[-1])
        if not wanted or reply.served_by != wanted[0]:
            return f"{reply.served_by} served, the picker said {wanted}"
    return ""


async def _buffered(rig: Rig) -> str:
    return await _obeyed(rig, rig.ports.buffered, chat(rig.pool.model))


async def _duplex(rig: Rig) -> str:
    return await _obeyed(rig, rig.ports.duplex, chat(rig.pool.model))


async def _spoofed(rig: Rig) -> str:
    body = chat(rig.pool.model)
    for port in (rig.ports.buffered, rig.ports.duplex):
        for stranger in (*rig.pool.endpoints, _STRANGER):
            reply = await rig.ask(port, body, headers={DESTINATION: stranger})
            problem = _well(reply, body)
            wanted = destinations(rig.tap.heard[-1])
            if problem or not wanted or reply.served_by != wanted[0]:
                return problem or f"{reply.served_by} served, the client asked for {stranger}, the picker said {wanted}"
    return ""


async def _told(rig: Rig) -> str:
    body = chat(rig.pool.model)
    for port in (rig.ports.buffered, rig.ports.duplex):
        reply = await rig.ask(port, body)
        told = told_served(rig.tap.heard[-1])
        if told != [reply.served_by]:
            return f"{reply.served_by} served, the picker was told {told}"
        if not any(answer.HasField("response_headers") for answer in rig.tap.heard[-1].said_by_picker()):
            return "the response's headers were not answered"
    return ""


async def _large(rig: Rig) -> str:
    body = chat(rig.pool.model, "x" * 3 * 2**20)
    return await _obeyed(rig, rig.ports.buffered, body) or await _obeyed(rig, rig.ports.duplex, body)


async def _get(rig: Rig) -> str:
    for port in (rig.ports.buffered, rig.ports.duplex):
        reply = await rig.ask(port, path="/v1/models")
        if reply.status != 200 or reply.served_by not in destinations(rig.tap.heard[-1])[:1]:
            return f"{reply.status} from {reply.served_by or 'nobody'}, picked {destinations(rig.tap.heard[-1])}"
    return ""


async def _stream(rig: Rig) -> str:
    body = chat(rig.pool.model, stream=True)
    for port in (rig.ports.buffered, rig.ports.duplex):
        reply = await rig.ask(port, body)
        if reply.status != 200 or reply.body != b"".join(SSE_CHUNKS):
            return f"{reply.status}, {len(reply.body)} bytes of a stream of {sum(map(len, SSE_CHUNKS))}"
        if reply.arrivals_s[-1] - reply.arrivals_s[0] < SSE_GAP_S:
            return "the stream arrived all at once: it was held back"
    return ""


async def _refused(rig: Rig) -> str:
    body = chat(rig.pool.unknown_model)
    for port in (rig.ports.buffered, rig.ports.duplex):
        reply = await rig.ask(port, body)
        refusal = Transcript(Script(), answers=rig.tap.heard[-1].said_by_picker()).refusal
        if refusal is None:
            raise NotApplicable(f"the picker does not refuse {rig.pool.unknown_model!r}")
        if (reply.status, reply.body) != (refusal.status.code, refusal.body):
            return (
                f"the picker said {refusal.status.code} {refusal.body!r}, the client got {reply.status} {reply.body!r}"
            )
    return ""


async def _fallback(rig: Rig) -> str:
    body = chat(rig.pool.model)
    for port in (rig.ports.buffered, rig.ports.duplex):
        for dead in rig.engines.values():
            async with _stopped(dead.stop, dead.start):
                problem = await _retried(rig, port, body, dead.address)
                if problem:
                    return problem
    return ""


async def _retried(rig: Rig, port: int, body: bytes, dead: str) -> str:
    for _ in range(ROUNDS):
        reply = await rig.ask(port, body)
        wanted = destinations(rig.tap.heard[-1])
        if len(wanted) < 2:
            raise NotApplicable("the picker lists one endpoint, nothing to fall back on")
        alive = [entry for entry in wanted if entry != dead]
        if reply.status != 200 or reply.served_by != alive[0]:
            return f"{dead} refuses, the picker said {wanted}: {reply.status} from {reply.served_by or 'nobody'}"
        if told_served(rig.tap.heard[-1]) != [reply.served_by]:
            return f"{reply.served_by} served, the picker was told {told_served(rig.tap.heard[-1])}"
    return ""


async def _frozen(rig: Rig) -> str:
    rig.tap.freeze()
    try:
        return _open(await rig.ask(rig.ports.buffered, chat(rig.pool.model)), MESSAGE_TIMEOUT_S + SLACK_S)
    finally:
        rig.tap.thaw()


async def _killed(rig: Rig) -> str:
    async with _stopped(rig.tap.kill, rig.tap.start):
        for _ in range(ROUNDS):
            problem = _open(await rig.ask(rig.ports.buffered, chat(rig.pool.model)), SLACK_S)
            if problem:
                return problem
    return ""


async def _killed_duplex(rig: Rig) -> str:
    async with _stopped(rig.tap.kill, rig.tap.start):
        if not await rig.picker_is(healthy=False):
            return "Envoy's health check did not notice"
        return _open(await rig.ask(rig.ports.checked, chat(rig.pool.model)), SLACK_S)


async def _recovered(rig: Rig) -> str:
    async with _stopped(rig.tap.kill, rig.tap.start):
        await rig.ask(rig.ports.buffered, chat(rig.pool.model))
    if not await rig.picker_is(healthy=True):
        return "Envoy does not reach the picker again"
    for _ in range(ROUNDS):  # Envoy's connection to it may still be the broken one
        await rig.ask(rig.ports.buffered, chat(rig.pool.model))
        if rig.tap.heard and destinations(rig.tap.heard[-1]):
            break
    return await _obeyed(rig, rig.ports.buffered, chat(rig.pool.model))


def _open(reply: Reply, limit_s: float) -> str:
    if reply.status != 200:
        return f"the client got {reply.status or 'nothing'} after {reply.took_s:.2f} s, expected 200"
    return "" if reply.took_s <= limit_s else f"200 only after {reply.took_s:.2f} s"


@asynccontextmanager
async def _stopped(stop: Callable[[], Awaitable[None]], start: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    await stop()
    try:
        yield
    finally:
        await start()


ENVOY_CASES = (
    EnvoyCase(name="envoy-buffered", proves="BUFFERED: the endpoint that was picked serves", run=_buffered),
    EnvoyCase(name="envoy-duplex", proves="FULL_DUPLEX_STREAMED: the endpoint that was picked serves", run=_duplex),
    EnvoyCase(name="envoy-served", proves="who served is told to the picker, and it answers that", run=_told),
    EnvoyCase(name="envoy-client-header", proves="a destination that the client wrote is not obeyed", run=_spoofed),
    EnvoyCase(name="envoy-large-body", proves="3 MiB reach the engine byte for byte, in both modes", run=_large),
    EnvoyCase(name="envoy-get", proves="a GET goes where it was picked to", run=_get),
    EnvoyCase(name="envoy-stream", proves="events reach the client as they come", run=_stream),
    EnvoyCase(name="envoy-refusal", proves="a refusal reaches the client unchanged", run=_refused),
    EnvoyCase(name="envoy-fallback", proves="the first endpoint refuses: the next of the list serves", run=_fallback),
    EnvoyCase(name="envoy-frozen", proves="BUFFERED, picker frozen: served after the message timeout", run=_frozen),
    EnvoyCase(name="envoy-killed", proves="BUFFERED, picker dead: served at once", run=_killed),
    EnvoyCase(
        name="envoy-killed-duplex",
        proves="FULL_DUPLEX_STREAMED, picker dead: served, given a health check and no panic threshold",
        run=_killed_duplex,
    ),
    EnvoyCase(name="envoy-recovered", proves="after a restart of the picker its picks count again", run=_recovered),
)
