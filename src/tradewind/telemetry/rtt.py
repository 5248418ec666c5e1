"""Round-trip time from here to one cell, over a warm connection: the cold connect is never in it."""

import time
from collections.abc import Callable

from tradewind.telemetry.health import HealthReading, HealthWatch, Liveness
from tradewind.telemetry.http_connection import CONNECT_TIMEOUT_S, parse_target


class PathProber:
    """Probes GET /health of `address` ("ip:port") every interval_s, and at once when its connection is lost.

    Each probe ends in one call on_reading(rtt_s, reachable, now_s): rtt_s is request to first byte, None for the first
    probe of a fresh connection and for failed ones. A peer that accepts connections and answers late is reachable with
    rtt_s None; reachable is False after a refusal or three faults in a row.
    """

    def __init__(
        self,
        address: str,
        *,
        interval_s: float,
        on_reading: Callable[[float | None, bool, float], None],
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError if address is not one."""
        self._on_reading = on_reading
        self._watch = HealthWatch(
            parse_target(f"http://{address}"),
            interval_s=interval_s,
            on_reading=self._report,
            connect_timeout_s=connect_timeout_s,
            answer_timeout_s=answer_timeout_s,
            clock=clock,
        )

    async def run(self) -> None:
        """Probe until cancelled; ends its connection then."""
        await self._watch.run()

    def _report(self, reading: HealthReading) -> None:
        self._on_reading(reading.rtt_s, reading.liveness is not Liveness.DEAD, reading.at_s)
