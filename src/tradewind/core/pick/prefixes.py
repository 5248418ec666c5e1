"""What the decision asks of the prefix index, and tells it."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Forgets(Protocol):
    """As far as it must forget: cells restart, leave, and evict."""

    def forget(self, cell_id: str) -> None:
        """The cell's cache is empty."""
        ...

    def trim(self, cell_id: str, before_s: float) -> None:
        """The cell's engine has dropped all that was used last before this time."""
        ...


class PrefixView(Forgets, Protocol):
    """What is believed to be in the cells' prefix caches."""

    def matches(self, blocks: tuple[int, ...]) -> Mapping[str, int]:
        """Cell id -> leading blocks held; cells that hold none may be absent."""
        ...

    def record(self, cell_id: str, blocks: tuple[int, ...], now_s: float) -> None:
        """A request with these blocks goes to the cell."""
        ...

    def touch(self, cell_id: str, blocks: tuple[int, ...], now_s: float) -> None:
        """A request with these blocks has ended on the cell, which had them in use until now."""
        ...

    def heard(self, cell_id: str, blocks: tuple[int, ...], now_s: float) -> None:
        """Another gateway has sent a request with these blocks to the cell."""
        ...

    def take_placed(self) -> Sequence[tuple[str, Sequence[int]]]:
        """Cell and blocks of every request since the last call, where they are kept for other gateways."""
        ...

    def forget_all(self) -> None:
        """Blocks will have other names from now on."""
        ...

    def heat(self, blocks: tuple[int, ...], depth: int, now_s: float) -> float:
        """Decayed count of earlier requests whose deepest match over all cells was the first `depth` blocks."""
        ...
