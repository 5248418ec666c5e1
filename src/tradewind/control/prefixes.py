"""What gateways tell each other by way of control: prompts and the cells they were sent to, under one key of the grid.

Only hashes pass through here, as they came: control reads cell ids and counts, and never the blocks themselves.
"""

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tradewind.wire.pb import tradewind_pb2 as pb

MAX_PROMPT_BLOCKS = 16_384  # 8 MB of text
MAX_WAITING_BLOCKS = 32_768  # for one gateway
PART_BLOCKS = 1_024  # what gives way at once when too much waits
KEY_KEPT_S = 5.0  # after a change: what gateways say meanwhile, they may say from before they heard of it


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Some placed prompts as a ViewDelta message of its own, made once for all gateways."""

    content: bytes
    prompts: int
    blocks: int


class Waiting:
    """What one gateway has still to hear, oldest first; at the bound the oldest gives way."""

    def __init__(self, bound: int = MAX_WAITING_BLOCKS) -> None:
        self.blocks = 0
        self._bound = bound
        self._parts: deque[PlacedPart] = deque()

    def add(self, parts: Iterable[PlacedPart]) -> int:
        """Returns how many prompts gave way."""
        untold = 0
        for part in parts:
            self._parts.append(part)
            self.blocks += part.blocks
            while self.blocks > self._bound:
                oldest = self._parts.popleft()
                self.blocks -= oldest.blocks
                untold += oldest.prompts
        return untold

    def take(self) -> bytes:
        """All that waits, to be appended to a serialised ViewDelta."""
        content = b"".join(part.content for part in self._parts)
        self.clear()
        return content

    def clear(self) -> int:
        """Forget what waits. Returns how many prompts that were."""
        prompts = sum(part.prompts for part in self._parts)
        self._parts.clear()
        self.blocks = 0
        return prompts


class PrefixKey:
    """The 64 bits by which all gateways of the grid hash prompts.

    The key lives in the gateways: a control that starts empty takes over the one that most of them go by, so that
    nothing they know is lost, and since gateways follow the first control of their list, controls come to agree. Only
    where no gateway has one is a key drawn.
    """

    def __init__(self, draw: Callable[[], int]) -> None:
        self.value: int | None = None  # None until the first gateway was heard; 0 is a key like any other
        self._draw = draw
        self._changed_s: float | None = None

    def settle(self, said: Iterable[int], now_s: float) -> bool:
        """`said`: of each gateway that has been told a key by some control, that one. True if the key is another now.

        After a change it stays for KEY_KEPT_S, or control and gateways could exchange two keys for ever: each side
        would answer what the other had said before it heard.
        """
        before = self.value
        wanted = self._wanted(said)
        if wanted == before:
            return False
        if before is not None:
            if self._changed_s is not None and now_s - self._changed_s < KEY_KEPT_S:
                return False
            self._changed_s = now_s
        self.value = wanted
        return before is not None

    def _wanted(self, said: Iterable[int]) -> int:
        votes = Counter(said)
        if not votes:
            return self._draw() if self.value is None else self.value
        most = max(votes.values())
        tied = [key for key, count in votes.items() if count == most]
        return self.value if self.value in tied else min(tied)


def sound(placed: Iterable[pb.Placed], cells: Container[str]) -> list[pb.Placed]:
    """Without empty prompts, absurdly long ones, and those for cells that control does not know."""
    return [entry for entry in placed if 0 < len(entry.blocks) <= MAX_PROMPT_BLOCKS and entry.cell_id in cells]


def parts_of(placed: Sequence[pb.Placed]) -> Iterator[PlacedPart]:
    """In order, each of about PART_BLOCKS; only a longer prompt makes a longer part."""
    start, blocks = 0, 0
    for end, entry in enumerate(placed):
        size = len(entry.blocks)
        if blocks and blocks + size > PART_BLOCKS:
            yield _part(placed[start:end], blocks)
            start, blocks = end, 0
        blocks += size
    if blocks:
        yield _part(placed[start:], blocks)


def _part(placed: Sequence[pb.Placed], blocks: int) -> PlacedPart:
    content = pb.ViewDelta(placed=placed).SerializeToString()
    return PlacedPart(content, len(placed), blocks)
