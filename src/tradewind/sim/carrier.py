"""Carries requests to cells and answers back, as an Envoy with the first-token gate does: attempts, resets, retries.

Connections: a process that ends resets them; a site that vanishes does not, so that what is in flight there is found
dead when nothing was acknowledged for the path's time limit, and a new connection by its own. Retries: see
docs/concepts/first-token-gate.md.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from tradewind.engine.sequence import Sequence, SequenceRequest
from tradewind.measure.record import Failure
from tradewind.sim.cell import SimCell, Taken
from tradewind.sim.journal import Entry
from tradewind.sim.loop import EventLoop
from tradewind.sim.status import (
    HTTP_BAD_REQUEST,
    HTTP_OK,
    HTTP_UNAVAILABLE,
    HTTP_UNPROCESSABLE,
)
from tradewind.sim.wan import WanPath

# The defaults of a grid file's `limits` and `gate`, and of Envoy's clusters.
RETRIES = 3
MOST_DEATHS = 2
BACK_OFF_S = 0.001
CONNECT_TIMEOUT_S = 1.0
POOLED_S = 4.0  # an idle connection is kept so long
PATH_TIMEOUT_S = 15.0  # of silence, probes and requests unacknowledged


@dataclass(slots=True, kw_only=True)
class Way:
    """The path to one cell, what the probes of it showed, and what is on it."""

    path: WanPath
    cell: SimCell
    index: int
    rtt_s: float | None = None
    deviation_s: float | None = None
    reachable: bool | None = None
    cut_s: float | None = None  # since when nothing passes
    noise_s: float = 0.0  # deviation of what each message is late by, on top
    live: dict[int, "Attempt"] = field(default_factory=dict)
    idle_s: list[float] = field(default_factory=list)  # since when each pooled connection has been idle

    def pooled(self, now_s: float) -> bool:
        """Whether a connection is there to be used again; it is taken."""
        self.idle_s = [since_s for since_s in self.idle_s if now_s - since_s <= POOLED_S]
        if self.idle_s:
            self.idle_s.pop()
            return True
        return False


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One request at one cell."""

    entry: Entry
    way: Way
    number: int
    over: bool = False
    reached: bool = False  # the engine took it
    dead: bool = False  # the engine that had it has ended, unheard
    first: bool = False  # its first token has passed the gateway
    held: list[Callable[[], None]] = field(default_factory=list)  # what could not pass the path


@dataclass(slots=True)
class Attempts:
    """All requests inside engines, of all gateways, by the number that the engine knows them by."""

    open: dict[int, tuple["Carrier", Attempt]] = field(default_factory=dict)
    _number: int = -1

    def number(self) -> int:
        """Ascending, so that engines queue in order of sending."""
        self._number += 1
        return self._number


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Whom a carrier tells, at the gateway's time."""

    first: Callable[[Entry], None]
    ended: Callable[[Entry], None]


class Carrier:
    """The proxy's part of one gateway."""

    def __init__(
        self, *, ways: list[Way], attempts: Attempts, loop: EventLoop, told: Told, gate: bool, chance: random.Random
    ) -> None:
        self.ready: Collection[str] = ()  # cells that the newest view has as READY
        self._ways = ways
        self._attempts = attempts
        self._loop = loop
        self._told = told
        self._gate = gate
        self._chance = chance

    # --- there ----------------------------------------------------------------------------------------------------

    def send(self, entry: Entry, way: Way) -> None:
        """An attempt at this cell begins."""
        now_s = self._loop.now_s
        attempt = Attempt(entry=entry, way=way, number=self._attempts.number())
        way.live[attempt.number] = attempt
        entry.cell, entry.attempt_s = way.index, now_s
        entry.attempts.append(way.index)
        pooled = way.pooled(now_s)
        if way.cut_s is not None:
            self._into_the_void(attempt, pooled=pooled)
            return
        there_s = way.path.rtt_s(now_s) / 2 + entry.there_s + way.noise_s * entry.noise[0]
        if not pooled:
            there_s += way.path.connect_s(now_s)
        self._loop.at(now_s + there_s, partial(self._reach, attempt, pooled))

    def _reach(self, attempt: Attempt, pooled: bool) -> None:
        way = attempt.way
        if attempt.over:
            return
        if way.cut_s is not None:
            self._into_the_void(attempt, pooled=pooled)
            return
        traced = attempt.entry.traced
        taken = way.cell.submit(
            SequenceRequest(
                seq_id=attempt.number,
                prompt_tokens=traced.prompt_tokens,
                output_tokens=traced.output_tokens,
                block_hashes=attempt.entry.hashes,
            )
        )
        match taken:
            case Taken.TAKEN:
                attempt.reached = True
                self._attempts.open[attempt.number] = (self, attempt)
            case Taken.NO_CONNECTION:
                self._loop.at(self._back_s(attempt), partial(self._fail, attempt, "UF"))
            case Taken.TOO_LONG:
                ingest_s = way.cell.engine.slow.ingest * way.cell.spec.profile.ingest_s
                self._loop.at(self._back_s(attempt) + ingest_s, partial(self._refused, attempt))

    def _into_the_void(self, attempt: Attempt, *, pooled: bool) -> None:
        """A new connection is tried for its time; what went out on an open one is sent again when the path is back."""
        if not pooled:
            self._loop.at(self._loop.now_s + CONNECT_TIMEOUT_S, partial(self._fail, attempt, "UF"))
            return
        attempt.held.append(partial(self._reach, attempt, True))
        self._loop.at(self._loop.now_s + PATH_TIMEOUT_S, partial(self._unheard, attempt))

    # --- back -----------------------------------------------------------------------------------------------------

    def first(self, attempt: Attempt, sequence: Sequence) -> None:
        """The engine has made the first token; it gets here later."""
        attempt.entry.cached_tokens = sequence.cached_tokens
        self._send_back(attempt, partial(self._first_here, attempt))

    def last(self, attempt: Attempt) -> None:
        """The engine has made the last token."""
        self._send_back(attempt, partial(self._last_here, attempt))

    def died(self, attempt: Attempt) -> None:
        """The engine's process has ended under it: its host says so, if it still can."""
        attempt.dead = True
        if attempt.way.cut_s is None:
            self._loop.at(self._back_s(attempt), partial(self._fail, attempt, "UC"))

    def cut(self, way: Way) -> None:
        """Nothing passes any more; what the engine has already taken is probed in vain."""
        if way.cut_s is not None:
            return
        way.cut_s = self._loop.now_s
        for attempt in way.live.values():
            if attempt.reached:
                self._loop.at(self._loop.now_s + PATH_TIMEOUT_S, partial(self._silent, attempt, way.cut_s))

    def heal(self, way: Way) -> None:
        """Packets pass again: those held back are sent once more, and a host without the connection resets it."""
        now_s, way.cut_s = self._loop.now_s, None
        for attempt in list(way.live.values()):
            if attempt.dead:
                self._loop.at(now_s + way.path.rtt_s(now_s), partial(self._fail, attempt, "UC"))
            for message in attempt.held:
                self._loop.at(self._back_s(attempt), message)
            attempt.held.clear()

    def _send_back(self, attempt: Attempt, message: Callable[[], None]) -> None:
        if attempt.way.cut_s is None:
            self._loop.at(self._back_s(attempt), message)
        else:
            attempt.held.append(message)

    def _back_s(self, attempt: Attempt) -> float:
        """When what the cell sends now gets here; bytes of one stream keep their order."""
        now_s, entry, way = self._loop.now_s, attempt.entry, attempt.way
        late_s = entry.late_s + way.noise_s * entry.noise[1]
        entry.due_s = max(entry.due_s, now_s + way.path.rtt_s(now_s) / 2 + late_s)
        return entry.due_s

    # --- here -----------------------------------------------------------------------------------------------------

    def _first_here(self, attempt: Attempt) -> None:
        if attempt.over:
            return
        attempt.first = True
        attempt.entry.first_s = self._loop.now_s
        self._told.first(attempt.entry)

    def _last_here(self, attempt: Attempt) -> None:
        if attempt.over:
            return
        self._finish(attempt)
        attempt.way.idle_s.append(self._loop.now_s)
        self._end(attempt.entry, Failure.NONE, HTTP_OK)

    def _refused(self, attempt: Attempt) -> None:
        if not attempt.over:
            self._finish(attempt)
            self._end(attempt.entry, Failure.STATUS, HTTP_BAD_REQUEST)

    def _silent(self, attempt: Attempt, cut_s: float) -> None:
        if not attempt.over and attempt.way.cut_s == cut_s:
            self._fail(attempt, "UC")

    def _unheard(self, attempt: Attempt) -> None:
        if not attempt.over and attempt.held:
            self._fail(attempt, "UC")

    def _fail(self, attempt: Attempt, flag: str) -> None:
        """The attempt is lost: made good elsewhere where that can be done without anybody seeing it."""
        if attempt.over:
            return
        self._finish(attempt)
        entry = attempt.entry
        entry.flags = flag
        if attempt.first:
            self._end(entry, Failure.BYTES_DELIVERED, HTTP_OK)
        elif attempt.reached and not self._gate:
            self._end(entry, Failure.HEADERS_ONLY, HTTP_OK)
        else:
            entry.deaths += attempt.reached
            entry.failures.append(flag)
            self._loop.at(self._loop.now_s + BACK_OFF_S, partial(self._again, entry))

    def _again(self, entry: Entry) -> None:
        way = self._other_way(entry)
        if entry.deaths >= MOST_DEATHS:
            entry.flags = ""
            self._end(entry, Failure.STATUS, HTTP_UNPROCESSABLE)
        elif way is None or len(entry.attempts) > RETRIES:
            entry.flags = f"{entry.flags},URX"
            self._end(entry, Failure.STATUS, HTTP_UNAVAILABLE)
        else:
            self.send(entry, way)

    def _other_way(self, entry: Entry) -> Way | None:
        """The decision's own alternative; after it, or without one, any READY cell, an untried one if there is any."""
        ready = [way for way in self._ways if way.cell.spec.cell_id in self.ready]
        fresh = [way for way in ready if way.index not in entry.attempts] or ready
        for cell_id in entry.alternatives:
            found = next((way for way in fresh if way.cell.spec.cell_id == cell_id), None)
            if found is not None:
                return found
        return self._chance.choice(fresh) if fresh else None

    def _finish(self, attempt: Attempt) -> None:
        attempt.over = True
        attempt.way.live.pop(attempt.number, None)
        if self._attempts.open.pop(attempt.number, None) is not None:
            attempt.way.cell.cancel(attempt.number)

    def _end(self, entry: Entry, failure: Failure, status: int) -> None:
        entry.end_s = self._loop.now_s
        entry.failure, entry.status = failure, status
        self._told.ended(entry)
