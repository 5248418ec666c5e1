"""WAN delay in user space: what is sent over a path arrives half a round trip later, in order, at the path's bandwidth.

`rtt_s` is the median round trip and `jitter_s` its standard deviation: each direction of each piece of data takes
rtt/2 plus a normal draw of jitter/sqrt(2), never less than 0. Order is kept per connection and direction. The
bandwidth is shared by all connections of one listener, each direction on its own. The kernel opens a loopback
connection at once, so the handshake's round trip is charged to the first bytes of a connection instead. A cut path
resets nothing; but a kernel gives up what its peer does not acknowledge, and loopback acknowledges everything: so what
is open when a cut has lasted as long is reset towards the gateway.
"""

import asyncio
import random
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

GIVEN_UP_S = 15.0  # what a gateway's kernel takes by default: `limits.path_timeout_s`
_DUE_TOLERANCE_S = 0.0005  # the loop's timers have a resolution of a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Wan:
    """One path, both ways."""

    rtt_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = 0.0  # 0 = no limit


class Path:
    """The state of one path: its delay now, whether it is cut, and the lines that run over it."""

    def __init__(self, *, wan: Wan, rng: random.Random, loop: asyncio.AbstractEventLoop) -> None:
        self.wan = wan
        self.loop = loop
        self.cut = False
        self.busy_until_s = [0.0, 0.0]  # towards the cell, towards the gateway
        self._rng = rng
        self._lines: dict[int, DelayLine] = {}
        self._given_up: asyncio.TimerHandle | None = None

    def delay_s(self) -> float:
        """One direction's delay for one piece of data."""
        half_s = self.wan.rtt_s / 2
        if not self.wan.jitter_s:
            return half_s
        return max(0.0, half_s + self._rng.gauss(0.0, self.wan.jitter_s / 2**0.5))

    def set_cut(self, cut: bool, *, reset_after_s: float = GIVEN_UP_S) -> None:
        """Cuts the path (bytes wait, nobody is told, until connections are given up) or heals it (what waited goes on).

        `reset_after_s` 0: they never are.
        """
        if cut == self.cut:
            return
        self.cut = cut
        if self._given_up is not None:
            self._given_up.cancel()
        if cut:
            self._given_up = self.loop.call_later(reset_after_s, self._give_up) if reset_after_s else None
        else:
            for line in list(self._lines.values()):
                line.pump()

    def _give_up(self) -> None:
        for line in list(self._lines.values()):
            if line.given_up is not None:
                line.given_up()

    def add(self, line: "DelayLine") -> None:
        """Registers a line, so that healing can wake it."""
        self._lines[id(line)] = line

    def remove(self, line: "DelayLine") -> None:
        """Forgets a line."""
        self._lines.pop(id(line), None)


class DelayLine:
    """One direction of one connection over a path."""

    def __init__(self, path: Path, deliver: Callable[[bytes], None], *, direction: int, opens_after_s: float) -> None:
        self.queued_bytes = 0
        self.given_up: Callable[[], None] | None = None  # what becomes of the connection when the kernel gives it up
        self._path = path
        self._deliver = deliver
        self._direction = direction
        self._last_due_s = path.loop.time() + opens_after_s
        self._queue: deque[tuple[float, bytes | Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        path.add(self)

    def send(self, data: bytes) -> None:
        """Delivers `data` later."""
        path = self._path
        now_s = path.loop.time()
        sent_s = now_s
        if path.wan.bytes_per_s:
            sent_s = max(now_s, path.busy_until_s[self._direction]) + len(data) / path.wan.bytes_per_s
            path.busy_until_s[self._direction] = sent_s
        self.queued_bytes += len(data)
        self._put(sent_s + path.delay_s(), data)

    def then(self, action: Callable[[], None]) -> None:
        """Calls `action` after everything sent so far has been delivered, one more delay included."""
        self._put(self._path.loop.time() + self._path.delay_s(), action)

    def drop(self) -> None:
        """Ends the line; what is under way is lost."""
        if self._timer is not None:
            self._timer.cancel()
        self._queue.clear()
        self._path.remove(self)

    def pump(self) -> None:
        """Delivers what is due and sets the timer for the rest."""
        self._timer = None
        if self._path.cut:
            return
        due_s = self._path.loop.time() + _DUE_TOLERANCE_S
        while self._queue and self._queue[0][0] <= due_s:
            self._hand_over(self._queue.popleft()[1])
        if self._queue and self._timer is None:
            self._arm()

    def _put(self, due_s: float, item: bytes | Callable[[], None]) -> None:
        self._last_due_s = max(self._last_due_s, due_s)
        self._queue.append((self._last_due_s, item))
        if self._timer is None and len(self._queue) == 1:
            self._arm()

    def _arm(self) -> None:
        wait_s = max(0.0, self._queue[0][0] - self._path.loop.time())
        self._timer = self._path.loop.call_later(wait_s, self.pump)

    def _hand_over(self, item: bytes | Callable[[], None]) -> None:
        if isinstance(item, bytes):
            self.queued_bytes -= len(item)
            self._deliver(item)
        else:
            item()


def reset(transport: asyncio.Transport | None) -> None:
    """Closes a connection, if it is open, so that its peer sees a reset."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Listener:
    """A listening socket that can stop answering as a cut path does: new connections hang, nobody is refused."""

    def __init__(
        self, *, address: str, factory: Callable[[], asyncio.BaseProtocol], loop: asyncio.AbstractEventLoop
    ) -> None:
        host, _, port = address.rpartition(":")
        self._loop = loop
        self._factory = factory
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = socket.create_server((host, int(port)), backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._fillers: list[socket.socket] = []
        self._open = True
        loop.add_reader(self._socket.fileno(), self._accept)

    @property
    def address(self) -> str:
        """ "ip:port" as bound."""
        host, port = self._socket.getsockname()[:2]
        return f"{host}:{port}"

    def set_cut(self, cut: bool) -> None:
        """Stops or resumes accepting."""
        if cut is not self._open:
            return
        self._open = not cut
        if cut:
            self._loop.remove_reader(self._socket.fileno())
            # A backlog of 0 holds one connection; once our own fill it, the kernel drops further SYNs unanswered.
            self._socket.listen(0)
            self._fillers = [self._filler() for _ in range(2)]
            return
        for filler in self._fillers:
            filler.close()
        self._fillers = []
        self._socket.listen(_BACKLOG)
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Closes the port: from here on connections are refused."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for filler in self._fillers:
            filler.close()

    def _filler(self) -> socket.socket:
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(self._socket.getsockname())
        return filler

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                connection, _peer = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._attach(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attach(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._factory, connection)


_BACKLOG = 1024
_ACCEPTS_PER_WAKE = 64
