"""Plays scripts against a picker over plain gRPC, as a proxy would: in its order, with a limit on every wait."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tradewind.lab.epp.script import BUFFERED, DUPLEX, Script, answer_bodies, answer_headers, request_messages
from tradewind.lab.epp.transcript import Transcript

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
HEALTH = "/grpc.health.v1.Health/Check"
_OPTIONS = (("grpc.max_receive_message_length", 64 * 2**20), ("grpc.enable_retries", 0))
_Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, pb.ProcessingResponse]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the picker listens. With `tls` and no `ca` the certificate that it shows is believed."""

    address: str  # "ip:port", "host:port" or "unix:/path"
    tls: bool = False
    ca: Path | None = None
    server_name: str = "localhost"  # that its certificate must hold

    def channel(self) -> grpc.aio.Channel:
        """A new connection. Raises OSError where the certificate cannot be had."""
        if not self.tls:
            return grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        root = self.ca.read_bytes() if self.ca is not None else self._shown()
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", self.server_name))
        return grpc.aio.secure_channel(self.address, grpc.ssl_channel_credentials(root), options=options)

    def _shown(self) -> bytes:
        host, _, port = self.address.rpartition(":")
        return ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=5.0).encode()


class Talk:
    """One connection to a picker."""

    def __init__(self, channel: grpc.aio.Channel, *, timeout_s: float) -> None:
        self._process = channel.stream_stream(PROCESS, None, pb.ProcessingResponse.FromString)
        self._health = channel.unary_unary(HEALTH, None, None)
        self.timeout_s = timeout_s  # for each answer

    async def health(self, service: str) -> str:
        """What the health service says: "SERVING", "NOT_SERVING", or the name of the error's code."""
        name = service.encode()
        request = bytes([0x0A, len(name)]) + name if name else b""
        try:
            answer = await self._health(request, timeout=self.timeout_s)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}.get(bytes(answer), f"answer {bytes(answer).hex()}")

    async def play(self, script: Script) -> Transcript:
        """The whole exchange; what went wrong is in the transcript."""
        transcript = Transcript(script)
        call: _Call = self._process(None)
        try:
            await self._play(call, transcript)
        except TimeoutError:
            transcript.silent = transcript.silent or "the end of the stream"
        except grpc.aio.AioRpcError as error:
            transcript.error = f"{error.code().name}: {error.details()}"
        except asyncio.InvalidStateError:
            await self._why(call, transcript)  # written to a stream that the picker has ended
        finally:
            call.cancel()
        return transcript

    async def _play(self, call: _Call, transcript: Transcript) -> None:
        script = transcript.script
        if script.raw:
            for message in script.raw:
                await call.write(message)
        else:
            await self._request(call, transcript)
            if script.leave_early:
                return
            if script.answer is not None and transcript.refusal is None:
                await self._answer(call, transcript)
        await call.done_writing()
        while await self._next(call, transcript, "the end of the stream"):
            pass

    async def _request(self, call: _Call, transcript: Transcript) -> None:
        started_s = time.monotonic()
        script = transcript.script
        lockstep = script.mode == BUFFERED
        for message in request_messages(script):
            await call.write(message.SerializeToString())
            if lockstep and not await self._next(call, transcript, f"to {message.WhichOneof('request')}"):
                return
        while not lockstep and not _request_answered(transcript):
            if not await self._next(call, transcript, "to the request"):
                return
        if transcript.header_values or transcript.refusal is not None:
            transcript.decided_s = time.monotonic() - started_s

    async def _answer(self, call: _Call, transcript: Transcript) -> None:
        script, answer = transcript.script, transcript.script.answer
        assert answer is not None
        destination = transcript.destinations[0] if transcript.destinations else ""
        await call.write(answer_headers(answer, destination).SerializeToString())
        if not await self._next(call, transcript, "to the response's headers"):
            return
        bodies = list(answer_bodies(answer, destination))
        if script.answer_mode == DUPLEX:
            await self._all(call, bodies)
            while not transcript.ended("response_body") and transcript.order[-1] != "response_trailers":
                if not await self._next(call, transcript, "to the response's body"):
                    return
            return
        for message in bodies:
            await call.write(message.SerializeToString())
            if not await self._next(call, transcript, f"to {message.WhichOneof('request')}"):
                return

    async def _all(self, call: _Call, messages: Iterable[pb.ProcessingRequest]) -> None:
        for message in messages:
            await call.write(message.SerializeToString())

    async def _next(self, call: _Call, transcript: Transcript, what: str) -> bool:
        """Keep the next answer; False at the end of the stream. Raises TimeoutError, AioRpcError."""
        try:
            async with asyncio.timeout(self.timeout_s):
                answer = await call.read()
        except TimeoutError:
            transcript.silent = what
            raise
        if not isinstance(answer, pb.ProcessingResponse):
            return False
        transcript.answers.append(answer)
        return not answer.HasField("immediate_response")

    async def _why(self, call: _Call, transcript: Transcript) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout_s):
                transcript.error = f"{(await call.code()).name}: {await call.details()}"


def _request_answered(transcript: Transcript) -> bool:
    """FULL_DUPLEX_STREAMED: the decision, and the body's end where there was one, are given back."""
    script = transcript.script
    if not script.chunks:
        return bool(transcript.answers)
    if script.trailers:
        return "request_trailers" in transcript.order
    if script.unfinished:
        return len(transcript.echoed("request_body")) >= len(script.body)
    return transcript.ended("request_body")
