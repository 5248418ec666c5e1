"""How much work stands behind each request of a queue: cheap while it is short, O(log n) however long it gets.

Sums are rounded once, so they do not depend on how they come about: a short queue is walked, a long one has a Fenwick
tree over the order of arrival, in integers of 2**-96 s.
"""

from math import fsum

SCALE = 2.0**96
MANY, FEW = 48, 24  # from where on a tree pays, and up to where it is kept


class Later:
    """The sum of the seconds of all that joined after one that waits."""

    __slots__ = ("_seconds", "_tree")

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # by number, in order of arrival
        self._tree: _Tree | None = None

    def join(self, number: int, seconds: float) -> None:
        """One more at the end; `number` must not wait already."""
        self._seconds[number] = seconds
        if self._tree is not None and self._tree.room:
            self._tree.join(number, seconds)
        elif len(self._seconds) > MANY or self._tree is not None:
            self._tree = _Tree(self._seconds)

    def leave(self, number: int) -> None:
        """It waits no more."""
        seconds = self._seconds.pop(number)
        if self._tree is not None:
            self._tree.leave(number, seconds)
            if len(self._seconds) < FEW:
                self._tree = None

    def behind_s(self, number: int) -> float:
        """Seconds of everything that joined after this one and still waits."""
        if self._tree is not None:
            return self._tree.behind_s(number)
        after = []
        for other in reversed(self._seconds):
            if other == number:
                break
            after.append(self._seconds[other])
        return fsum(after)


class _Tree:
    """Those that wait, with as many free places behind them."""

    __slots__ = ("_next", "_place", "_sums", "_total")

    def __init__(self, seconds: dict[int, float]) -> None:
        self._place: dict[int, int] = {}  # number -> 1, 2, ...
        self._sums = [0] * (2 * len(seconds) + 1)  # each over the places from its own, less its lowest bit, to its own
        self._total = 0
        self._next = 1
        for number, each_s in seconds.items():
            self.join(number, each_s)

    @property
    def room(self) -> bool:
        """Whether a place is free."""
        return self._next < len(self._sums)

    def join(self, number: int, seconds: float) -> None:
        self._place[number] = self._next
        self._add(self._next, int(seconds * SCALE))
        self._next += 1

    def leave(self, number: int, seconds: float) -> None:
        self._add(self._place.pop(number), -int(seconds * SCALE))

    def behind_s(self, number: int) -> float:
        place, upto, sums = self._place[number], 0, self._sums
        while place:
            upto += sums[place]
            place &= place - 1
        return (self._total - upto) / SCALE

    def _add(self, place: int, units: int) -> None:
        self._total += units
        sums, size = self._sums, len(self._sums)
        while place < size:
            sums[place] += units
            place += place & -place
