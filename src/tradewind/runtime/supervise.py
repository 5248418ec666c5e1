"""Own child processes: start them, wait until they are ready, restart those that crash, end them all."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from tradewind.runtime.children import describe_exit, send, spawn, tail, trim_log
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

Ready = Callable[[], Awaitable[str]]  # "" when ready, else what is still missing

POLL_S = 0.05
KEPT_EVENTS = 1_000
LOG_CHECK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One child. `restart`: after any end, or never; `ready`: asked until it answers ""."""

    name: str
    argv: Sequence[str]
    env: tuple[tuple[str, str], ...] = ()  # added to the supervisor's own
    restart: Literal["always", "never"] = "always"
    prepare: Callable[[], None] | None = None  # called before each start; raises OSError when it cannot be started
    ready: Ready | None = None
    ready_timeout_s: float = 30.0
    after: tuple[str, ...] = ()  # names that must be ready before this one is started
    grace_s: float = 5.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Backoff between restarts; a child that stayed up for `calm_s` begins again at `first_s`."""

    first_s: float = 0.2
    factor: float = 2.0
    longest_s: float = 5.0
    calm_s: float = 10.0
    give_up_after: int = 20  # crashes in a row; then the child stays down, and status says so


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """Something that happened to a child; `at_s` is the supervisor's monotonic clock."""

    at_s: float
    process: str
    name: str  # "started", "ready", "ended", "not-started", "gave-up", "stopped"
    detail: str = ""


class StartFailed(Exception):
    """A child did not become ready; the text names its log file."""


@dataclass(slots=True)
class _Child:
    spec: ProcessSpec
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    crashes: int = 0
    restarts: int = 0
    wanted: bool = False
    ready: bool = False
    last_exit: str = ""
    keeper: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Children of one main thread. Use as an async context manager: leaving it ends every child."""

    def __init__(self, state_dir: Path, *, policy: RestartPolicy | None = None) -> None:
        self.state_dir = state_dir
        self.policy = policy or RestartPolicy()
        self.events: deque[ProcessEvent] = deque(maxlen=KEPT_EVENTS)
        self._children: dict[str, _Child] = {}
        self._tidy: asyncio.Task[None] | None = None
        self._disk_refuses = ""  # why the disk takes no status or log, "" while it does

    async def __aenter__(self) -> Self:
        assert threading.current_thread() is threading.main_thread(), "children die with the thread that starts them"
        self._tidy = asyncio.create_task(self._trim_logs())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop_all()
        if self._tidy is not None:
            self._tidy.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tidy

    def add(self, spec: ProcessSpec) -> None:
        """Make a child known, without starting it."""
        assert spec.name not in self._children, f"{spec.name} is already supervised"
        self._children[spec.name] = _Child(spec=spec, log=self.log_path(spec.name))

    def log_path(self, name: str) -> Path:
        """Where the output of a child goes."""
        return self.state_dir / "logs" / f"{name}.log"

    async def start_all(self, progress: Callable[[str], None] = lambda _line: None) -> None:
        """Start every known child in dependency order and wait until all are ready. Raises StartFailed."""
        ready = {name: asyncio.Event() for name in self._children}
        failures: list[str] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                for name in self._children:
                    tasks.create_task(self._start_after(name, ready, progress))
        except* StartFailed as group:
            failures = [str(error) for error in group.exceptions]
        if failures:
            raise StartFailed("\n".join(failures))

    async def _start_after(self, name: str, ready: dict[str, asyncio.Event], progress: Callable[[str], None]) -> None:
        for earlier in self._children[name].spec.after:
            await ready[earlier].wait()
        begin_s = time.monotonic()
        await self.start(name)
        progress(f"{name} is ready after {time.monotonic() - begin_s:.1f} s")
        ready[name].set()

    async def start(self, name: str) -> None:
        """Start one child and wait until it is ready. Raises StartFailed."""
        child = self._children[name]
        if child.keeper is None or child.keeper.done():
            child.wanted, child.crashes = True, 0
            self._spawn(child)
            child.keeper = asyncio.create_task(self._keep(child))
        await self._until_ready(child)

    async def stop(self, name: str, *, number: int = signal.SIGTERM) -> None:
        """End one child and keep it down; SIGKILL follows after its grace."""
        child = self._children[name]
        child.wanted = False
        if child.process is not None and child.process.poll() is None:
            send(child.process, number)
            try:
                await asyncio.wait_for(child.ended.wait(), child.spec.grace_s)
            except TimeoutError:
                send(child.process, signal.SIGKILL)
                await child.ended.wait()
        if child.keeper is not None:
            child.keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await child.keeper
            child.keeper = None
            self._note(child, "stopped")

    async def restart(self, name: str) -> None:
        """End one child and start it again. Raises StartFailed."""
        await self.stop(name)
        await self.start(name)

    async def stop_all(self) -> None:
        """End all children: first those that depend on others, together where neither depends on the other."""
        started = [name for name, child in self._children.items() if child.keeper is not None]
        for depth in sorted({self._depth(name) for name in started}, reverse=True):
            await asyncio.gather(*(self.stop(name) for name in started if self._depth(name) == depth))

    async def remove(self, name: str) -> None:
        """End one child and forget it."""
        await self.stop(name)
        del self._children[name]

    def kill(self, name: str, number: int = signal.SIGKILL) -> int | None:
        """Send a signal to a child, which is then restarted by its policy; its pid, or None when it was not running."""
        process = self._children[name].process
        if process is None or process.poll() is not None:
            return None
        send(process, number)
        return process.pid

    def pid(self, name: str) -> int | None:
        """The pid of a running child, or None."""
        process = self._children[name].process
        return process.pid if process is not None and process.poll() is None else None

    def names(self) -> list[str]:
        """All children, in the order they were added."""
        return list(self._children)

    def status(self) -> list[dict[str, object]]:
        """One row for each child: name, pid, ready, restarts, last_exit, log, up_s."""
        now_s = time.monotonic()
        return [
            {
                "name": name,
                "pid": self.pid(name),
                "ready": child.ready,
                "restarts": child.restarts,
                "last_exit": child.last_exit,
                "log": str(child.log),
                "up_s": round(now_s - child.started_s, 1) if self.pid(name) else 0.0,
            }
            for name, child in self._children.items()
        ]

    def _depth(self, name: str) -> int:
        return 1 + max((self._depth(earlier) for earlier in self._children[name].spec.after), default=0)

    def _spawn(self, child: _Child) -> None:
        child.ready = False
        child.ended = asyncio.Event()
        child.started_s = time.monotonic()
        env = {**os.environ, **dict(child.spec.env)}
        try:
            if child.spec.prepare is not None:
                child.spec.prepare()
            child.process = spawn(child.spec.argv, env=env, log=child.log)
        except OSError as error:
            raise StartFailed(f"{child.spec.name}: cannot start {child.spec.argv[0]}: {error}") from error
        self._note(child, "started", f"pid {child.process.pid}")
        self._write_status()

    async def _keep(self, child: _Child) -> None:
        """Wait for the child's end; while it is wanted, start it again."""
        while True:
            assert child.process is not None
            child.last_exit = describe_exit(await _exit_code(child.process))
            child.ready = False
            child.ended.set()
            self._note(child, "ended", child.last_exit)
            if not child.wanted or child.spec.restart == "never":
                return
            if not await self._again(child):
                return
            await self._ready_again(child)

    async def _again(self, child: _Child) -> bool:
        """Start a child anew; False when it is not wanted any more or has failed too often in a row."""
        while await self._backoff(child):
            child.restarts += 1
            try:
                self._spawn(child)
            except StartFailed as error:  # what is in the way may go away: a disk that is full, a file being replaced
                self._note(child, "not-started", str(error))
            else:
                return True
        return False

    async def _backoff(self, child: _Child) -> bool:
        """Wait before the next start; False when the child has crashed too often in a row."""
        policy = self.policy
        calm = time.monotonic() - child.started_s >= policy.calm_s
        child.crashes = 1 if calm else child.crashes + 1
        if child.crashes > policy.give_up_after:
            self._note(child, "gave-up", f"{child.crashes} ends in a row, see {child.log}")
            return False
        await asyncio.sleep(min(policy.longest_s, policy.first_s * policy.factor ** (child.crashes - 1)))
        return child.wanted

    async def _ready_again(self, child: _Child) -> None:
        """After a restart nobody waits for readiness, but status tells it."""
        ready = child.spec.ready
        deadline_s = time.monotonic() + child.spec.ready_timeout_s
        while ready is not None and child.process is not None and child.process.poll() is None:
            if not await ready() or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(POLL_S)
        self._mark_ready(child)

    async def _until_ready(self, child: _Child) -> None:
        deadline_s = time.monotonic() + child.spec.ready_timeout_s
        missing = await child.spec.ready() if child.spec.ready else ""
        while missing:
            if child.process is None or child.process.poll() is not None:
                raise StartFailed(self._failure(child, f"ended with {child.last_exit or 'an error'}"))
            if time.monotonic() > deadline_s:
                raise StartFailed(self._failure(child, f"not ready after {child.spec.ready_timeout_s:g} s: {missing}"))
            await asyncio.sleep(POLL_S)
            missing = await child.spec.ready() if child.spec.ready else ""
        self._mark_ready(child)

    def _mark_ready(self, child: _Child) -> None:
        if not child.ready:
            child.ready = True
            self._note(child, "ready", f"after {time.monotonic() - child.started_s:.2f} s")

    def _failure(self, child: _Child, what: str) -> str:
        last = tail(child.log)
        return f"{child.spec.name}: {what}; its log is {child.log}" + (f", which ends:\n{last}" if last else "")

    def _note(self, child: _Child, name: str, detail: str = "") -> None:
        self.events.append(ProcessEvent(at_s=time.monotonic(), process=child.spec.name, name=name, detail=detail))
        log_event(log, f"process.{name}", process=child.spec.name, detail=detail)
        self._write_status()

    def _write_status(self) -> None:
        """state_dir/processes.json: who runs, for `tradewind status` and for people with a kill command."""
        path = self.state_dir / "processes.json"
        draft = path.with_suffix(".draft")
        with self._any_disk():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps({"supervisor": os.getpid(), "processes": self.status()}, indent=1))
            draft.replace(path)
            self._disk_refuses = ""

    @contextlib.contextmanager
    def _any_disk(self) -> Iterator[None]:
        """A disk that refuses is told once, and children are kept all the same."""
        try:
            yield
        except OSError as error:
            if not self._disk_refuses:
                log_event(log, "supervisor.not_written", level=logging.ERROR, state_dir=self.state_dir, error=error)
            self._disk_refuses = str(error)

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_S)
            for child in list(self._children.values()):
                with self._any_disk():
                    trim_log(child.log)


async def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Wait for a child without a thread where the system allows it."""
    with _pid_descriptor(process.pid) as descriptor:
        if descriptor is None:
            while process.poll() is None:  # noqa: ASYNC110 (no event tells of a child's end here)
                await asyncio.sleep(POLL_S)
            return process.wait()
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
    return process.wait()


@contextlib.contextmanager
def _pid_descriptor(pid: int) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def signalled() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, for the block's length; a second signal changes nothing."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    try:
        yield event
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
