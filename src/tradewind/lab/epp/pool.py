"""What a tester tells the kit about the picker under test: its pool, and models with a known fate."""

from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """What a case needs to be told; it is skipped without."""

    ENDPOINTS = "--endpoints with at least one address"
    TWO_ENDPOINTS = "--endpoints with at least two addresses"
    EXPECT = "--expect MODEL=ADDRESS,..."
    BUSY = "--busy-model"
    EMPTY = "--empty-model"
    DEADLINE = "--deadline-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The picker's world."""

    model: str = "demo"  # that it serves
    endpoints: tuple[str, ...] = ()  # its whole pool, "ip:port"
    expect: tuple[tuple[str, tuple[str, ...]], ...] = ()  # model -> the only endpoints that may be picked for it
    unknown_model: str = "no-such-model"
    busy_model: str = ""  # every endpoint of it is at its limit: 429
    empty_model: str = ""  # known, but nothing can serve it: 503
    deadline_s: float | None = None  # the picker promises a decision so long after the headers

    def missing(self, needs: tuple[Need, ...]) -> Need | None:
        """The first need that is not met."""
        met = {
            Need.ENDPOINTS: bool(self.endpoints),
            Need.TWO_ENDPOINTS: len(self.endpoints) > 1,
            Need.EXPECT: bool(self.expect),
            Need.BUSY: bool(self.busy_model),
            Need.EMPTY: bool(self.empty_model),
            Need.DEADLINE: self.deadline_s is not None,
        }
        return next((need for need in needs if not met[need]), None)
