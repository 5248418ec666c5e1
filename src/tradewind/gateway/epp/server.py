"""The Endpoint Picker's socket: connections, TLS, time, and the way out."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tradewind.gateway.epp.calls import Desk, EppLimits
from tradewind.gateway.epp.exchange import EppCounters
from tradewind.gateway.epp.http2 import Http2Connection
from tradewind.gateway.epp.service import PickService
from tradewind.gateway.epp.stream import Handler, Stream

_TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files. With `clients` only proxies whose certificate that authority signed are served."""

    certificate: Path
    key: Path
    clients: Path | None = None


class EppServer:
    """Serves ext_proc and gRPC health on "ip:port", "[ip6]:port" or "unix:/path"."""

    def __init__(
        self,
        address: str,
        service: PickService,
        *,
        ready: Callable[[], bool],
        limits: EppLimits | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._desk = Desk(service=service, limits=limits or EppLimits(), ready=ready)
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._connections: set[_Connection] = set()
        self.port = 0  # once started on TCP
        self.turned_away = 0  # connections beyond the bound
        self.broken = 0  # connections that broke HTTP/2 or a bound of it

    @property
    def counters(self) -> EppCounters:
        """Since the start."""
        return self._desk.counters

    @property
    def open_streams(self) -> int:
        """Requests whose proxy still talks to us."""
        return sum(connection.http2.streams for connection in self._connections)

    @property
    def connections(self) -> int:
        """Of proxies, now."""
        return len(self._connections)

    @property
    def held_bytes(self) -> int:
        """Of request bodies, now."""
        return self._desk.held_bytes

    async def start(self) -> None:
        """Listen. Raises OSError, and ssl.SSLError for files that are no certificate and key."""
        loop = asyncio.get_running_loop()
        context = None if self._tls is None else _context(self._tls)
        if self._address.startswith("unix:"):
            path = self._address.removeprefix("unix:")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._server = await loop.create_unix_server(self._connection, path, ssl=context)
        else:
            host, _, port = self._address.rpartition(":")
            self._server = await loop.create_server(self._connection, host.strip("[]"), int(port), ssl=context)
            self.port = self._server.sockets[0].getsockname()[1]
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self, *, grace_s: float = 0.0) -> None:
        """Take nothing new, let open streams end for `grace_s`, then close."""
        if self._server is None or self._ticker is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._connections:  # noqa: ASYNC110 (streams end one by one, nobody else waits)
                    await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close()
        self._ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticker
        await self._server.wait_closed()

    def _connection(self) -> "_Connection":
        return _Connection(self, self._desk)

    def joined(self, connection: "_Connection") -> bool:
        """Whether one more connection is served."""
        if len(self._connections) >= self._desk.limits.max_connections:
            self.turned_away += 1
            return False
        self._connections.add(connection)
        return True

    def left(self, connection: "_Connection") -> None:
        """A connection has ended."""
        if connection in self._connections:
            self._connections.discard(connection)
            self.broken += bool(connection.http2.broken)

    async def _tick(self) -> None:
        """Now and then: tell changes of health, and ask silent peers for a sign of life."""
        while True:
            await asyncio.sleep(min(_TICK_S, self._desk.limits.keepalive_s))
            for watcher in list(self._desk.watchers):
                watcher.refresh()
            for connection in list(self._connections):
                connection.tick(self._desk.limits.keepalive_s)


class _Connection(asyncio.Protocol):
    """One connection of a proxy."""

    def __init__(self, server: EppServer, desk: Desk) -> None:
        self._server = server
        self._desk = desk
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._heard_s = self._loop.time()
        self._asked_s: float | None = None
        self.http2 = Http2Connection(self._accept, max_streams=desk.limits.max_streams)

    # --- asyncio ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are of no common class
        if self._server.joined(self):
            self._flush()
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Frames."""
        self._heard_s, self._asked_s = self._loop.time(), None
        self.http2.receive(data, self._heard_s)
        self._flush()

    def eof_received(self) -> bool:
        """A proxy that stops writing is gone."""
        return False

    def pause_writing(self) -> None:
        """The proxy does not read: neither do we."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Every stream of it ends."""
        self.http2.lost()
        self._server.left(self)

    # --- the server's side ------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Finish what is open."""
        self.http2.leave()
        self._flush()

    def close(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    def tick(self, keepalive_s: float) -> None:
        """Send what a watcher wrote; ask a silent peer, drop a dead one."""
        now_s = self._loop.time()
        if self._asked_s is not None and now_s - self._asked_s > keepalive_s:
            self.close()
        elif self._asked_s is None and now_s - self._heard_s > keepalive_s:
            self._asked_s = now_s
            self.http2.ping()
        self._flush()

    def _accept(self, stream: Stream, headers: Mapping[bytes, bytes]) -> Handler:
        return self._desk.accept(stream, headers, self._later)

    def _later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, self._call_and_flush, call)

    def _call_and_flush(self, call: Callable[[], None]) -> None:
        call()
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        out = self.http2.take()
        if out and not transport.is_closing():
            transport.write(out)
        if self.http2.closed and not transport.is_closing():
            transport.close()


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    if files.clients is not None:
        context.load_verify_locations(files.clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
