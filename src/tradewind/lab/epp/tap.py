"""Stands between Envoy and the picker: passes every call on, keeps what was said, and can play dead."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tradewind.lab.epp.talk import PROCESS

MAX_KEPT = 64  # exchanges
_OPTIONS = (("grpc.max_receive_message_length", 64 * 2**20), ("grpc.so_reuseport", 0))
_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


@dataclass(slots=True)
class Heard:
    """One exchange."""

    requests: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)

    def said_by_proxy(self) -> list[pb.ProcessingRequest]:
        """Its messages, read."""
        return [pb.ProcessingRequest.FromString(message) for message in self.requests]

    def said_by_picker(self) -> list[pb.ProcessingResponse]:
        """Its answers, read."""
        return [pb.ProcessingResponse.FromString(message) for message in self.answers]


class _PassOn(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs only
    def __init__(self, tap: "Tap") -> None:
        self._tap = tap

    def service(self, call: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Any method, as bytes."""
        method = str(call.method)

        async def passed(requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
            async for answer in self._tap.passed(method, requests, context):
                yield answer

        return grpc.stream_stream_rpc_method_handler(passed)


class Tap:
    """Listens on a port of its own; `channel` leads to the picker."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._server: grpc.aio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0
        self.heard: deque[Heard] = deque(maxlen=MAX_KEPT)

    async def start(self) -> None:
        """Listen, on the same port as before if it was killed."""
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((_PassOn(self),))
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    async def kill(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def freeze(self) -> None:
        """Take everything, answer nothing."""
        self._open.clear()

    def thaw(self) -> None:
        """Answer again."""
        self._open.set()

    async def passed(self, method: str, requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
        """One call, in both directions."""
        heard = Heard()
        if method == PROCESS:
            self.heard.append(heard)

        async def onward() -> AsyncIterator[bytes]:
            async for request in requests:
                await self._open.wait()
                heard.requests.append(request)
                yield request

        call = self._channel.stream_stream(method, None, None)(onward())
        try:
            async for answer in call:
                await self._open.wait()
                heard.answers.append(answer)
                yield answer
            await self._open.wait()
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                call.cancel()
