"""The errors of one pool in their order, by cell and size bin: how many came since a cell's first, without a walk."""

from bisect import bisect_left

SLACK = 64  # forgotten entries before a list is cut


class _Numbers:
    """Rising numbers; the oldest go first."""

    __slots__ = ("_gone", "_held")

    def __init__(self) -> None:
        self._held: list[int] = []
        self._gone = 0

    @property
    def first(self) -> int:
        return self._held[self._gone]

    def __len__(self) -> int:
        return len(self._held) - self._gone

    def add(self, number: int) -> None:
        self._held.append(number)

    def drop(self) -> None:
        self._gone += 1
        if self._gone > SLACK and 2 * self._gone > len(self._held):
            del self._held[: self._gone]
            self._gone = 0

    def since(self, number: int) -> int:
        """How many are not below `number`."""
        return len(self._held) - bisect_left(self._held, number, self._gone)


class ErrorOrder:
    """Errors are dropped in the order in which they were added."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[int, _Numbers]] = {}
        self._number = 0

    def add(self, cell_id: str, size: int) -> None:
        """The newest error."""
        self._number += 1
        bins = self._cells.setdefault(cell_id, {})
        numbers = bins.get(size)
        if numbers is None:
            numbers = bins[size] = _Numbers()
        numbers.add(self._number)

    def drop(self, cell_id: str, size: int) -> None:
        """The oldest one of this cell and size is forgotten."""
        bins = self._cells[cell_id]
        bins[size].drop()
        if not bins[size]:
            del bins[size]

    def clear(self, cell_id: str) -> None:
        """All of one cell are forgotten."""
        self._cells.pop(cell_id, None)

    def since_first(self, cell_id: str, smallest: int, held: frozenset[str]) -> int:
        """Errors from this cell's first on, of sizes from `smallest` on, without those of other cells in `held`."""
        own = self._cells.get(cell_id, {})
        first = min((numbers.first for size, numbers in own.items() if size >= smallest), default=None)
        if first is None:
            return 0
        return sum(
            numbers.since(first)
            for cell, bins in self._cells.items()
            if cell == cell_id or cell not in held
            for size, numbers in bins.items()
            if size >= smallest
        )
