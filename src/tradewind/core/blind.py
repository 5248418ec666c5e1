"""Cells whose telemetry is gone while the gateway's own requests say how they fare (recipe line 20).

The recipe gives a blind cell half the pool's median, since its simulation had no evidence of a slow blind cell. A
gateway has some: its own requests. While they are served as fast as the peers serve theirs, a cut agent link costs
only a tenth of the share; without such proof it is half, and with proof of the contrary weight 1.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from tradewind.core.numbers import median
from tradewind.core.settings import BlindSettings


@dataclass(slots=True)
class OwnEvidence:
    """What this gateway's own requests showed of one cell lately."""

    ttfts: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=32))
    failed_s: deque[float] = field(default_factory=lambda: deque(maxlen=32))

    def on_served(self, ttft_s: float | None, now_s: float) -> None:
        """A request that was answered; its TTFT in seconds when known."""
        if ttft_s is not None and 0.0 <= ttft_s < math.inf:
            self.ttfts.append((now_s, ttft_s))

    def on_failed(self, now_s: float) -> None:
        """A request that broke here."""
        self.failed_s.append(now_s)

    def recent(self, span_s: float, now_s: float) -> list[float]:
        """TTFTs of the last `span_s` seconds."""
        return [ttft_s for at_s, ttft_s in self.ttfts if now_s - at_s <= span_s]

    def failures(self, span_s: float, now_s: float) -> int:
        """Failures of the last `span_s` seconds."""
        return sum(1 for at_s in self.failed_s if now_s - at_s <= span_s)


@dataclass(slots=True)
class BlindTrack:
    """Since when one cell is blind, and the weight it had before."""

    since_s: float | None = None
    weight: int = 1

    def update(self, *, blind: bool, weight: int, now_s: float) -> bool:
        """Notes the change into and out of blindness; True on a change."""
        if blind and self.since_s is None:
            self.since_s, self.weight = now_s, weight
            return True
        if not blind and self.since_s is not None:
            self.since_s = None
            return True
        return False


def blind_weight(
    track: BlindTrack,
    evidence: OwnEvidence,
    *,
    pool_median: float | None,
    pool_ttft_s: float | None,
    slo_ttft_s: float,
    settings: BlindSettings,
    now_s: float,
) -> int:
    """The weight of a blind cell. `pool_median`: of the seeing cells' weights; `pool_ttft_s`: median of their TTFTs."""
    assert track.since_s is not None
    ttfts = evidence.recent(settings.proof_s, now_s)
    own_ttft_s = median(ttfts)
    failures = evidence.failures(settings.proof_s, now_s)
    if failures >= 2 and failures > len(ttfts):
        return 1
    slow = own_ttft_s is not None and pool_ttft_s is not None and own_ttft_s > settings.proof_ttft_ratio * pool_ttft_s
    if slow and own_ttft_s is not None and own_ttft_s > slo_ttft_s and len(ttfts) >= settings.min_proofs:
        return 1
    if now_s - track.since_s < settings.hold_s or pool_median is None:
        return track.weight
    proven = len(ttfts) >= settings.min_proofs and not failures and not slow
    share = settings.share_proven if proven else settings.share_unproven
    return max(1, min(track.weight, round(share * pool_median)))
