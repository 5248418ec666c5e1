"""How many prompt tokens an engine really keeps, from what it says it stores and drops.

An engine names its blocks by hashes of token ids; a gateway has no token ids, so it cannot tell which of its own blocks
such a hash means. It can count: tokens stored less tokens dropped are resident. An engine drops blocks only when it
needs the room, so what is resident while it drops is what its cache holds: that, over the number of gateways, is the
right size for the least-recently-used list of this cell.
"""

ALPHA = 0.05  # of one batch with drops, in the mean
MIN_DROPS = 8  # batches before the mean is believed


class Residency:
    """One cell. Unknown until the engine's events have been seen from an empty cache on without a gap."""

    def __init__(self) -> None:
        self._resident_tokens: int | None = None
        self._held_tokens: float | None = None
        self._drops = 0

    @property
    def resident_tokens(self) -> int | None:
        """Prompt tokens in the cache; None = unknown."""
        return self._resident_tokens

    @property
    def capacity_tokens(self) -> float | None:
        """What the cache was found to hold when it was full; None = it never was, or it is unknown."""
        return self._held_tokens if self._drops >= MIN_DROPS else None

    def emptied(self) -> None:
        """The cache is empty: a start, a restart, or all blocks cleared."""
        self._resident_tokens = 0

    def lost(self) -> None:
        """Some events are missing."""
        self._resident_tokens = None

    def changed(self, *, stored_tokens: int, dropped_tokens: int) -> None:
        """One batch of events."""
        if self._resident_tokens is None:
            return
        if dropped_tokens:
            before = float(self._resident_tokens)
            self._held_tokens = before if self._held_tokens is None else _mean(self._held_tokens, before)
            self._drops += 1
        self._resident_tokens = max(0, self._resident_tokens + stored_tokens - dropped_tokens)


def _mean(held: float, value: float) -> float:
    return held + ALPHA * (value - held)
