"""A TCP relay with WAN delay, for real engines: `python -m tradewind.emulator.relay --listen ... --target ...`.

The delay, jitter, bandwidth and order are those of `wan`. SIGUSR1 cuts the path (bytes wait, new connections
hang), SIGUSR2 heals it. A target that refuses shows as a reset one round trip after the connection.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from typing import cast

import uvloop

from tradewind.emulator.wan import GIVEN_UP_S, DelayLine, Listener, Path, Wan, reset

CONNECT_TIMEOUT_S = 10.0
MAX_QUEUED_BYTES = 32 * 1024 * 1024  # under way in one direction of one connection; then its sender is paused


class Relay:
    """One listener, one target, one path. Closed by `close`; lives on a running loop."""

    def __init__(
        self, *, listen: str, target: str, wan: Wan, seed: int = 1, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.path = Path(wan=wan, rng=random.Random(seed), loop=self.loop)
        self.target = target
        self.tasks: set[asyncio.Task[None]] = set()
        self.ends: set[_End] = set()
        self._listener = Listener(address=listen, factory=lambda: _Near(self), loop=self.loop)

    @property
    def address(self) -> str:
        """ "ip:port" that it listens on."""
        return self._listener.address

    def set_cut(self, cut: bool, *, reset_after_s: float = GIVEN_UP_S) -> None:
        """Cuts or heals the path; what is open is given up `reset_after_s` after the cut, 0 = never."""
        self.path.set_cut(cut, reset_after_s=reset_after_s)
        self._listener.set_cut(cut)

    def close(self) -> None:
        """Stops listening and drops every connection."""
        self._listener.close()
        for end in self.ends:
            if end.transport is not None:
                end.transport.abort()
        for task in self.tasks:
            task.cancel()


class _End(asyncio.Protocol):
    """One side of a relayed connection; `out` carries what it reads to the other side."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.transport: asyncio.Transport | None = None
        self.out: DelayLine | None = None
        self.other: _End | None = None
        self._early: list[bytes] = []  # arrived before this side was connected; bounded by what its sender may queue
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast("asyncio.Transport", transport)
        self._relay.ends.add(self)
        self.transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        """Bytes to carry."""
        assert self.out is not None
        self.out.send(data)
        if self.out.queued_bytes > MAX_QUEUED_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer has half-closed: so does the other side, later."""
        assert self.out is not None
        self.out.then(self._pass_eof)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone: the other side learns it, later."""
        self.transport = None
        self._lost = True
        self._relay.ends.discard(self)
        if self.out is not None:
            self.out.then(self._pass_end)

    def deliver(self, data: bytes) -> None:
        """Bytes that arrive from the other side."""
        if self.transport is not None:
            self.transport.write(data)
        elif not self._lost:
            self._early.append(data)
        if self.other is not None:
            self.other.resume()

    def resume(self) -> None:
        """Reads on once what is under way has become less."""
        if self.transport is None or self.out is None or self.transport.is_reading():
            return
        if self.out.queued_bytes <= MAX_QUEUED_BYTES // 2:
            self.transport.resume_reading()

    def reset(self) -> None:
        """Closes with a reset, as a refused connection would."""
        reset(self.transport)

    def _pass_eof(self) -> None:
        if self.other is not None and self.other.transport is not None and self.other.transport.can_write_eof():
            self.other.transport.write_eof()

    def _pass_end(self) -> None:
        if self.out is not None:
            self.out.drop()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Near(_End):
    """The gateway's side; it opens the far side when it is connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A gateway has connected."""
        super().connection_made(transport)
        far = _End(self._relay)
        path = self._relay.path
        self.other, far.other = far, self
        self.out = DelayLine(path, far.deliver, direction=0, opens_after_s=1.5 * path.wan.rtt_s)
        self.out.given_up = self.reset
        far.out = DelayLine(path, self.deliver, direction=1, opens_after_s=0.0)
        task = self._relay.loop.create_task(self._open(far))
        self._relay.tasks.add(task)
        task.add_done_callback(self._relay.tasks.discard)

    async def _open(self, far: _End) -> None:
        host, _, port = self._relay.target.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._relay.loop.create_connection(lambda: far, host, int(port))
        except OSError:  # refused, unreachable, timed out
            assert far.out is not None
            far.out.then(lambda: far.out.then(self.reset) if far.out is not None else None)
            return
        if self.transport is None and far.transport is not None:
            far.transport.close()


def run_relay(listen: str, target: str, wan: Wan) -> None:
    """Relays until SIGTERM or SIGINT. Addresses are "ip:port"."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(listen, target, wan))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tradewind.emulator.relay", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--listen", required=True, help="ip:port")
    parser.add_argument("--target", required=True, help="ip:port of the engine")
    parser.add_argument("--rtt-ms", type=float, default=0.0)
    parser.add_argument("--jitter-ms", type=float, default=0.0, help="standard deviation of the round trip")
    parser.add_argument("--mbit-per-s", type=float, default=0.0, help="0 = no limit")
    arguments = parser.parse_args(argv)
    wan = Wan(
        rtt_s=arguments.rtt_ms / 1e3,
        jitter_s=arguments.jitter_ms / 1e3,
        bytes_per_s=arguments.mbit_per_s * 1e6 / 8,
    )
    run_relay(arguments.listen, arguments.target, wan)
    return 0


async def _serve(listen: str, target: str, wan: Wan) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    relay = Relay(listen=listen, target=target, wan=wan)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGINT, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, relay.set_cut, True)
    loop.add_signal_handler(signal.SIGUSR2, relay.set_cut, False)
    await ended.wait()
    relay.close()


if __name__ == "__main__":
    sys.exit(main())
