"""Forks the emulator's processes, before any event loop exists, and reaps them; restarts nothing unless told.

One socket pair per child. A child ends when its socket closes, so nothing outlives the supervisor. Messages are JSON,
one per packet: from the API process an Order, to it a Report, to an engine or exporter its whole fault state, from
it APPLIED once that state is in force.
"""

import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

log = logging.getLogger(__name__)

API = "api"
APPLIED = b"applied"
STOP_WAIT_S = 3.0
_PACKET_BYTES = 1 << 20


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the API process asks for."""

    op: str  # "signal" | "start" | "state"
    name: str
    signal: int = 0
    start_delay_s: float | None = None
    state: msgspec.Raw = msgspec.Raw(b"{}")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells the API process."""

    event: str  # "started" | "exited" | "applied"
    name: str
    pid: int
    status: int = 0  # of an exited child: exit code, or minus the signal


@dataclass(slots=True)
class Child:
    """One process; `main` runs in it with its end of the socket and, for a restart, a start delay."""

    name: str
    main: Callable[[socket.socket, float | None], int]
    on_exit: Callable[[], None]
    pid: int = 0
    control: socket.socket | None = None


class Supervisor:
    """Owns the children. Single-threaded, blocking, no event loop."""

    def __init__(self, children: list[Child]) -> None:
        self._children = {child.name: child for child in children}
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)

    def run(self) -> int:
        """Starts every child and serves until SIGTERM or SIGINT, or until the API ends; returns the exit status."""
        previous_fd = signal.set_wakeup_fd(self._wake_write.fileno())
        previous = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        try:
            for child in self._children.values():
                self._start(child, None)
            while not self._stopping and self._children[API].pid:
                self._serve(timeout_s=None)
            return 0 if self._stopping else 1
        finally:
            self._stop_all()
            signal.set_wakeup_fd(previous_fd)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._selector.close()

    def _serve(self, *, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wake_read:
                self._drain_wakeups()
            elif key.data == API:
                self._on_api_packet()
            else:
                self._on_child_packet(self._children[key.data])
        self._reap()

    def _start(self, child: Child, start_delay_s: float | None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            os._exit(self._in_child(child, theirs, start_delay_s))
        theirs.close()
        child.pid, child.control = pid, ours
        self._selector.register(ours, selectors.EVENT_READ, child.name)
        if child.name == API:
            for other in self._children.values():
                self._tell_started(other)
        else:
            self._tell_started(child)

    def _in_child(self, child: Child, control: socket.socket, start_delay_s: float | None) -> int:
        """Lets go of everything that is the supervisor's, then runs; a crash is printed and exits 70."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the group; the supervisor ends its children itself
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
        for other in self._children.values():
            if other.control is not None:
                other.control.close()
        try:
            return child.main(control, start_delay_s)
        except Exception:
            log.exception("event=emulator.crash process=%s", child.name)
            return 70

    def _on_child_packet(self, child: Child) -> None:
        if self._receive(child) == APPLIED:
            self._tell_api(Report(event="applied", name=child.name, pid=child.pid))

    def _receive(self, child: Child) -> bytes:
        """One packet; empty once the child has closed its end."""
        if child.control is None:
            return b""
        try:
            packet = child.control.recv(_PACKET_BYTES)
        except ConnectionResetError:
            packet = b""
        if not packet:
            self._forget_control(child)
        return packet

    def _forget_control(self, child: Child) -> None:
        if child.control is not None:
            self._selector.unregister(child.control)
            child.control.close()
            child.control = None

    def _on_api_packet(self) -> None:
        packet = self._receive(self._children[API])
        if not packet:
            return
        order = msgspec.json.decode(packet, type=Order)
        child = self._children[order.name]
        if order.op == "signal" and child.pid:
            os.kill(child.pid, order.signal)
        elif order.op == "start" and not child.pid:
            self._start(child, order.start_delay_s)
        elif order.op == "state" and child.control is not None and child.pid:
            _send(child.control, bytes(order.state))

    def _reap(self) -> None:
        for child in self._children.values():
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._on_exit(child, os.waitstatus_to_exitcode(status))

    def _on_exit(self, child: Child, status: int) -> None:
        pid, child.pid = child.pid, 0
        self._forget_control(child)
        child.on_exit()
        log.info("event=emulator.exited process=%s pid=%d status=%d", child.name, pid, status)
        self._tell_api(Report(event="exited", name=child.name, pid=pid, status=status))

    def _tell_started(self, child: Child) -> None:
        if child.pid and child.name != API:
            self._tell_api(Report(event="started", name=child.name, pid=child.pid))

    def _tell_api(self, report: Report) -> None:
        api = self._children[API]
        if api.control is not None and api.pid and not self._stopping:
            _send(api.control, msgspec.json.encode(report))

    def _stop_all(self) -> None:
        for child in self._children.values():
            if child.pid:
                os.kill(child.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_WAIT_S
        while any(child.pid for child in self._children.values()) and time.monotonic() < deadline_s:
            self._selector.select(0.05)
            self._drain_wakeups()
            self._reap()
        for child in self._children.values():
            if child.pid:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._stopping = True

    def _drain_wakeups(self) -> None:
        try:
            while self._wake_read.recv(4096):
                pass
        except BlockingIOError:
            return


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def _send(control: socket.socket, packet: bytes) -> None:
    """Sends without waiting; a child that does not read, or has just died, misses it."""
    try:
        control.send(packet, socket.MSG_DONTWAIT)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        log.warning("event=emulator.packet_lost bytes=%d", len(packet))
