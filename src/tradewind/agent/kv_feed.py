"""What one engine's KV events say of its cache: a subscription for each data-parallel rank, and the horizon of each.

Nothing that a publisher sends or fails to send ends an agent: what is not known is said with its reason.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Container, Sequence

from tradewind.agent.kv_silence import KvSilence
from tradewind.agent.metrics import AgentMetrics
from tradewind.config.kv_endpoints import rank_endpoints
from tradewind.config.schema import KvEventsConfig
from tradewind.core.prefix.horizon import CacheHorizon, merged
from tradewind.model.telemetry import CacheReading, EngineReading
from tradewind.runtime.log import log_event
from tradewind.telemetry.kv_events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
    KvEventReader,
    Missed,
    Restarted,
)
from tradewind.telemetry.kv_subscriber import INSTALL, KvSubscriber, MissingExtra, SubscriptionFailed

log = logging.getLogger(__name__)

MIN_RETRY_S = 0.25
MAX_RETRY_S = 10.0
# The publisher's first batch, the end of the process and the start time on its metrics page tell of one restart, each
# at its own time; those that come this soon after the first batch tell nothing new.
SAME_RESTART_S = 10.0
ALONE_S = 10.0  # without anybody at the other end: what is published meanwhile is lost


class RankCache:
    """One publisher's cache, message by message; no I/O."""

    def __init__(self, cell_id: str, *, metrics: AgentMetrics, changed: Callable[[], None], silence: KvSilence) -> None:
        self.heard = False  # anything that can be read: from then on a cache is told of, if only that it was cleared
        self._horizon = CacheHorizon()
        self._reader = KvEventReader(self._on_events)
        self._fresh = True  # no message has come since the engine's start
        self._placed = False  # events have, so it is decided whether they are all
        self._began_s: float | None = None  # when the publisher's first batch was heard
        self._now_s = 0.0
        self._counters = tuple(
            family.labels(cell_id) for family in (metrics.kv_batches, metrics.kv_missed, metrics.kv_bad)
        )
        self._changed = changed
        self._silence = silence

    @property
    def awaited(self) -> bool:
        """The engine that runs now was heard, so its publisher should be there."""
        return self.heard and not self._fresh

    @property
    def unreadable(self) -> bool:
        """Something comes, and nothing can be made of it."""
        return not self.heard and self._reader.bad > 0

    def take(self, frames: Sequence[bytes], now_s: float) -> None:
        """One message."""
        reader, read = self._reader, self._reader.read
        self._now_s = now_s
        before = (reader.batches, reader.missed, reader.bad)
        reader.take(frames)
        after = (reader.batches, reader.missed, reader.bad)
        for counter, was, is_now in zip(self._counters, before, after, strict=True):
            counter.inc(is_now - was)
        if reader.bad > before[2]:
            self._horizon.missed()
        if reader.batches > before[0] and self._fresh:
            self._fresh = False
            self._began_s = now_s if reader.from_the_start else None
        if reader.read > read or reader.bad == before[2]:
            self._silence.heard(now_s)
            if not self.heard:
                self.heard = True
                self._changed()

    def lost(self) -> None:
        """It is not heard any longer. What it says when it is back goes on from what is known: its sequence numbers
        tell whether anything was missed, and whether it is another process."""
        self.heard = False
        self._changed()

    def engine_restarted(self, now_s: float) -> None:
        """Somebody else says that the engine's process has ended or is another one."""
        told = self._began_s is not None and now_s - self._began_s < SAME_RESTART_S
        if self._fresh or told:
            return
        self._reader.expect_another()
        self._fresh, self._placed = True, False
        self._clear()
        self._horizon.missed()  # until the next publisher's first batch is heard

    def reading(self, now_s: float) -> CacheReading:
        return self._horizon.reading(now_s)

    def _on_events(self, events: Sequence[KvEvent]) -> None:
        if not self._placed:
            self._placed = True
            if self._reader.from_the_start:
                self._horizon.begun()
        for event in events:
            self._apply(event)

    def _apply(self, event: KvEvent) -> None:
        match event:
            case BlocksStored():
                self._silence.stored(event.block_size_tokens)
                self._horizon.stored(event.hashes, self._now_s, block_size_tokens=event.block_size_tokens)
            case BlocksRemoved():
                self._horizon.removed(event.hashes)
            case Missed():
                self._horizon.missed()
            case Restarted():
                self._began_s = self._now_s
                self._clear()
            case AllCleared():
                self._clear()

    def _clear(self) -> None:
        self._horizon.cleared()
        self._changed()


class KvFeed:
    """The cache of one cell's engine."""

    def __init__(
        self,
        cell_id: str,
        section: KvEventsConfig,
        *,
        metrics: AgentMetrics,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` is called for what is worth a heartbeat of its own: a clearing, and the first message."""
        self._cell_id = cell_id
        self._section = section
        self._clock = clock
        self._silence = KvSilence()
        self._ranks = {
            endpoint: RankCache(cell_id, metrics=metrics, changed=changed, silence=self._silence)
            for endpoint in rank_endpoints(section)
        }
        self._heard = metrics.kv_heard.labels(cell_id)
        self._subscribers: dict[str, KvSubscriber] = {}
        self._faults: dict[str, str] = {}  # endpoint -> why it cannot be listened to now
        self._lost: dict[str, str] = {}  # endpoint -> why it is not heard any longer
        self._alone_s: dict[str, float] = {}  # endpoint -> since when nobody is at the other end

    async def run(self) -> None:
        """Listen until cancelled."""
        topic, bind = self._section.topic, self._section.bind
        try:
            self._subscribers = {
                endpoint: KvSubscriber(endpoint, _Clocked(rank, self._clock), topic=topic, bind=bind)
                for endpoint, rank in self._ranks.items()
            }
        except MissingExtra:
            self._faults = dict.fromkeys(self._ranks, INSTALL)
            log_event(log, "agent.kv_events_extra_missing", level=logging.WARNING, cell=self._cell_id, reason=INSTALL)
            return
        async with asyncio.TaskGroup() as group:
            for endpoint, subscriber in self._subscribers.items():
                group.create_task(self._listen(endpoint, subscriber))

    def engine_restarted(self, now_s: float) -> None:
        """The engine's process has ended or is another one, by evidence that is not its KV events."""
        self._silence.engine_restarted(now_s)
        for rank in self._ranks.values():
            rank.engine_restarted(now_s)

    def engine_read(self, reading: EngineReading, asked_s: float) -> None:
        """A page of the engine's metrics, and when it was asked for."""
        silence = self._silence
        silence.page(reading, asked_s)
        heard = [endpoint for endpoint, rank in self._ranks.items() if rank.heard]
        if silence.silent and heard:
            took = f"{silence.silent_s:.0f} s in which the engine computed {silence.computed_tokens:.0f} prompt tokens"
            self._lose(heard, f"nothing came from {', '.join(self._ranks)} in {took}, or since")

    def read(self, now_s: float) -> CacheReading | str:
        """The cache as of now, or why nothing is known of it."""
        # At every beat, or ZeroMQ's notes of who comes and goes would pile up.
        connected = {endpoint for endpoint, subscriber in self._subscribers.items() if subscriber.connected}
        self._look_for_lone(connected, now_s)
        unheard = [endpoint for endpoint, rank in self._ranks.items() if not rank.heard]
        self._heard.set(not unheard)
        if unheard:
            return f"kv events: {self._why(unheard, connected)}"
        if self._lost:
            self._lost.clear()
            log_event(log, "agent.kv_events_back", cell=self._cell_id)
        return merged([rank.reading(now_s) for rank in self._ranks.values()])

    def _look_for_lone(self, connected: Container[str], now_s: float) -> None:
        """A publisher that has left and does not come back is lost, unless its engine is known to have ended."""
        for endpoint, rank in self._ranks.items():
            if endpoint in connected or not rank.awaited:
                self._alone_s.pop(endpoint, None)
            elif now_s - self._alone_s.setdefault(endpoint, now_s) >= ALONE_S:
                self._lose([endpoint], f"nobody was at {endpoint} for {ALONE_S:.0f} s, and nothing has come since")

    def _lose(self, endpoints: Sequence[str], reason: str) -> None:
        for endpoint in endpoints:
            self._lost[endpoint] = reason
            self._ranks[endpoint].lost()
        log_event(log, "agent.kv_events_silent", level=logging.WARNING, cell=self._cell_id, reason=reason)

    def _why(self, unheard: Sequence[str], connected: Container[str]) -> str:
        reasons = (self._faults.get(endpoint) or self._lost.get(endpoint) for endpoint in unheard)
        if reason := next(filter(None, reasons), None):
            return reason
        if unreadable := [endpoint for endpoint in unheard if self._ranks[endpoint].unreadable]:
            return f"what {', '.join(unreadable)} sends cannot be read"
        return f"nothing heard {'at' if self._section.bind else 'from'} {self._nobody(unheard, connected)}"

    def _nobody(self, endpoints: Sequence[str], connected: Container[str]) -> str:
        """Both sides waiting, or both connecting, is the mistake to make."""
        alone = [endpoint for endpoint in endpoints if endpoint not in connected]
        if not alone:
            return f"{', '.join(endpoints)} yet"
        if self._section.bind:
            return (
                f"{', '.join(alone)} yet, nobody has connected (bind: false if the engine's own endpoint has no host)"
            )
        return f"{', '.join(alone)} yet, nobody waits there (bind: true if the engine's own endpoint has a host)"

    async def _listen(self, endpoint: str, subscriber: KvSubscriber) -> None:
        retry_s, said = MIN_RETRY_S, ""
        while True:
            self._faults.pop(endpoint, None)
            try:
                await subscriber.run()
            except SubscriptionFailed as failure:
                reason = self._faults[endpoint] = f"{endpoint}: {failure}"
                if self._ranks[endpoint].heard:
                    self._lost[endpoint] = f"{reason}; nothing has come since"
                    self._ranks[endpoint].lost()
                if reason != said:
                    said = reason
                    log_event(log, "agent.kv_events_failed", level=logging.WARNING, cell=self._cell_id, reason=reason)
            await asyncio.sleep(retry_s)
            retry_s = min(MAX_RETRY_S, 2 * retry_s)


class _Clocked:
    """A message and when it came."""

    def __init__(self, rank: RankCache, clock: Callable[[], float]) -> None:
        self._rank = rank
        self._clock = clock

    def take(self, frames: Sequence[bytes]) -> None:
        self._rank.take(frames, self._clock())
