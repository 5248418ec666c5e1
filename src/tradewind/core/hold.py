"""A value that outlives a missed reading and no more than that: three misses to unknown, two hits back."""

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

MISSES_TO_UNKNOWN = 3
HITS_TO_RETURN = 2


class Held(NamedTuple, Generic[T]):
    """What is known now; value and age are None together, and then reason says why."""

    value: T | None
    age_s: float | None
    reason: str


class Hold(Generic[T]):
    """The newest good reading of one target. Times come in as now_s of one monotonic clock."""

    def __init__(self, stale_after_s: float) -> None:
        self._stale_after_s = stale_after_s
        self._value: T | None = None
        self._at_s = 0.0
        self._known = False
        self._misses = 0
        self._hits = 0
        self._reason = "not read yet"

    @property
    def missed(self) -> bool:
        """True from the first failed reading until HITS_TO_RETURN good ones in a row."""
        return self._misses > 0

    def hit(self, value: T, at_s: float) -> None:
        """A good reading of the moment at_s. The first one ever counts at once."""
        first = self._value is None
        self._value, self._at_s = value, at_s
        self._hits += 1
        if self._hits >= HITS_TO_RETURN or (first and not self._misses):
            self._misses = 0
            self._known = True

    def miss(self, reason: str) -> None:
        """A failed reading."""
        self._reason = reason
        self._hits = 0
        self._misses += 1
        if self._misses >= MISSES_TO_UNKNOWN:
            self._known = False

    def forget(self, reason: str) -> None:
        """The target was replaced: nothing known of it holds any longer."""
        self._value, self._known, self._misses, self._hits, self._reason = None, False, 0, 0, reason

    def read(self, now_s: float) -> Held[T]:
        if self._known and now_s - self._at_s > self._stale_after_s:
            self._known, self._hits = False, 0
            self._misses = max(self._misses, 1)
            self._reason = f"no good reading for {self._stale_after_s:g} s"
        if not self._known:
            return Held(None, None, self._reason)
        return Held(self._value, max(0.0, now_s - self._at_s), "")
