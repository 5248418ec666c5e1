"""Watches one peer's /health over a warm connection: alive, slow or dead, noticed by event and not by tick."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tradewind.telemetry.fetch import sleep_or
from tradewind.telemetry.http_connection import (
    CONNECT_TIMEOUT_S,
    Fault,
    FetchFailed,
    HttpConnection,
    Target,
    open_connection,
    request_bytes,
)

ANSWER_TIMEOUT_S = 1.0
MAX_HEALTH_BYTES = 64 * 1024
CONFIRMATIONS = 2  # what may be a passing fault is asked again so often before it counts as death
CONFIRM_PAUSE_S = 0.02
DEAD_INTERVAL_S = 0.25  # how often a dead peer is tried again, at most


class Liveness(StrEnum):
    """OK: answers. SLOW: takes connections and does not answer in time, which is not death. DEAD: refuses or resets."""

    OK = "ok"
    SLOW = "slow"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReading:
    """One verdict. rtt_s is request to first byte on a warm connection; None on a fresh or failed one."""

    liveness: Liveness
    rtt_s: float | None
    detail: str
    at_s: float


class HealthWatch:
    """Keeps one connection to a peer. A lost connection is looked into at once; only a refusal, or a fault that three
    fresh connections in a row show, is death. A server that closes idle connections is not dead."""

    def __init__(
        self,
        target: Target,
        *,
        interval_s: float,
        on_reading: Callable[[HealthReading], None],
        path: str = "/health",
        headers: tuple[tuple[str, str], ...] = (),
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._interval_s = interval_s
        self._on_reading = on_reading
        self._request = request_bytes(target, "GET", path, headers=headers)
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._clock = clock
        self._connection: HttpConnection | None = None
        self._lost = asyncio.Event()
        self._suspicions = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        woken_s = float("-inf")
        try:
            while True:
                reading = await self._look()
                self._on_reading(reading)
                dead = reading.liveness is Liveness.DEAD
                pause_s = min(self._interval_s, DEAD_INTERVAL_S) if dead else self._interval_s
                if await sleep_or(self._lost, pause_s):
                    # A peer that drops every connection must not turn this into a busy loop.
                    since_s = self._clock() - woken_s
                    if since_s < self._interval_s:
                        await asyncio.sleep(self._interval_s / 4)
                    woken_s = self._clock()
        finally:
            self._drop()

    async def _look(self) -> HealthReading:
        """Probe until the verdict is certain: at most 1 + CONFIRMATIONS fresh connections."""
        while True:
            warm = self._connection is not None and self._connection.is_open
            try:
                rtt_s = await self._probe()
            except FetchFailed as failure:
                self._drop()
                if failure.fault is Fault.TIMEOUT:
                    self._suspicions = 0
                    return self._reading(Liveness.SLOW, None, f"/health: {failure.detail}")
                if warm and failure.fault is Fault.RESET:
                    continue  # an idle connection was closed, or the peer died: a fresh one tells
                if failure.fault is Fault.REFUSED or self._suspicions >= CONFIRMATIONS:
                    return self._reading(Liveness.DEAD, None, failure.detail)
                self._suspicions += 1
                await asyncio.sleep(CONFIRM_PAUSE_S)
            else:
                self._suspicions = 0
                return self._reading(Liveness.OK, rtt_s if warm else None, "")

    async def _probe(self) -> float:
        """One GET; returns request to first byte in seconds. Raises FetchFailed, also for a 5xx."""
        self._lost.clear()
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await open_connection(self._target, timeout_s=self._connect_timeout_s, on_lost=self._lost.set)
            self._connection = connection
        response = await connection.request(self._request, timeout_s=self._answer_timeout_s, max_bytes=MAX_HEALTH_BYTES)
        if response.status >= 500:
            raise FetchFailed(Fault.STATUS, f"/health answers {response.status}")
        return response.first_byte_s

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _reading(self, liveness: Liveness, rtt_s: float | None, detail: str) -> HealthReading:
        return HealthReading(liveness=liveness, rtt_s=rtt_s, detail=detail, at_s=self._clock())
