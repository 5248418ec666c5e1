"""Which leading blocks of a prompt each cell holds, as far as gateways' dispatches and the engines' events tell.

A block is named by a chained hash: it stands for the whole prefix that ends with it. A request credits its blocks to
the cell it is sent to. Each cell has a least-recently-used list, touched from the deepest block to the root, so that a
root always outlives its leaves and what a cell holds of any prompt is a leading part of it.

Where there are several gateways they tell each other what they have sent where, with blocks hashed under one key.

How far that list reaches back is a guess, the engine's KV blocks, or its share of them for a gateway that hears nothing
of the others, until the engine's own events tell (see horizon.py): then a touch is also the end of a request, and what
was touched last before the engine's horizon is dropped.

Memory: at most `max_blocks` entries over all cells, at most 200 bytes each (benchmark `prefix`). 64 cells of one
million tokens each, at 128 tokens a block, are 500,000 entries: 100 MB.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from tradewind.core.prefix.heat import Heat

DEFAULT_CELL_BLOCKS = 8_192  # about a million tokens: for a cell that has not told its KV capacity
MAX_BLOCKS = 1 << 20  # over all cells
MAX_PLACED_BLOCKS = 1 << 14  # kept for other gateways until they are told: 128 KB, or 370 prompts of 5,600 tokens
STEP_S = 0.5  # touches within it share one number in memory


class _Held:
    """One cell's blocks, oldest touch first."""

    __slots__ = ("bit", "capacity", "lru")

    def __init__(self, bit: int, capacity: int) -> None:
        self.bit = bit  # this cell in every owner mask
        self.capacity = capacity
        self.lru: OrderedDict[int, float] = OrderedDict()  # -> when it was touched


class PrefixIndex:
    """Used by one thread. No call raises for an unknown cell: it holds nothing."""

    def __init__(self, *, max_blocks: int = MAX_BLOCKS, cell_blocks: int = DEFAULT_CELL_BLOCKS) -> None:
        assert max_blocks > 0, "an index without room is no index"
        self._max_blocks = max_blocks
        self._cell_blocks = cell_blocks
        self._cells: dict[str, _Held] = {}
        self._names: dict[int, str] = {}  # bit -> cell
        self._owners: dict[int, int] = {}  # block -> bits of the cells that hold it
        self._free_bits: list[int] = []
        self._heat = Heat()
        self._at_s = 0.0  # of touches, in steps
        self._placed: deque[tuple[str, Sequence[int]]] = deque()  # for other gateways
        self._placed_blocks = 0
        self._most_placed = 0
        self.evicted = 0  # blocks that gave way to newer ones
        self.untold = 0  # requests that other gateways will not hear of, since there were too many

    def __len__(self) -> int:
        """Entries over all cells; a block that two cells hold counts twice."""
        return sum(len(held.lru) for held in self._cells.values())

    def blocks_of(self, cell_id: str) -> int:
        """How many blocks this cell is believed to hold."""
        held = self._cells.get(cell_id)
        return len(held.lru) if held is not None else 0

    def matches(self, blocks: Sequence[int]) -> Mapping[str, int]:
        """Leading blocks held, for every cell that holds at least the first. The mapping is the caller's."""
        found: dict[str, int] = {}
        owners = self._owners
        holding = -1  # every cell, before the first block
        depth = 0
        for block in blocks:
            still = holding & owners.get(block, 0)
            if still != holding:
                if depth:
                    self._note(found, holding & ~still, depth)
                if not still:
                    return found
                holding = still
            depth += 1
        if depth:
            self._note(found, holding, depth)
        return found

    def record(self, cell_id: str, blocks: Sequence[int], now_s: float) -> None:
        """A request with these blocks goes to this cell, whose oldest blocks give way."""
        if not blocks:
            return
        self.heard(cell_id, blocks, now_s)
        if self._most_placed:
            self._keep(cell_id, blocks)

    def heard(self, cell_id: str, blocks: Sequence[int], now_s: float) -> None:
        """Another gateway has sent such a request to this cell."""
        self._count_heat(blocks, now_s)
        self.touch(cell_id, blocks, now_s)

    def share(self, most_blocks: int) -> None:
        """Keep what is recorded for `take_placed`, at most so many blocks, the newest; 0 = keep nothing."""
        self._most_placed = most_blocks
        if not most_blocks:
            self.take_placed()

    def take_placed(self) -> list[tuple[str, Sequence[int]]]:
        """Cell and blocks of every request recorded since the last call, in order."""
        placed = list(self._placed)
        self._placed.clear()
        self._placed_blocks = 0
        return placed

    def touch(self, cell_id: str, blocks: Sequence[int], now_s: float) -> None:
        """These blocks are in the cell now: it has had them in use until this moment, or will from here on."""
        held = self._cells.get(cell_id) or self._add(cell_id)
        lru, owners, bit = held.lru, self._owners, held.bit
        room, now_s = self._room(held), self._step(now_s)
        for block in reversed(blocks[:room]):  # the deepest first: roots outlive leaves
            if block in lru:
                lru.move_to_end(block)
                lru[block] = now_s
                continue
            lru[block] = now_s
            mask = owners.get(block)
            owners[block] = bit if mask is None else mask | bit
        self._shrink(held, room)

    def trim(self, cell_id: str, before_s: float) -> None:
        """The cell's engine has dropped all that was used last before this time."""
        held = self._cells.get(cell_id)
        if held is None:
            return
        lru = held.lru
        while lru and lru[block := next(iter(lru))] < before_s:
            del lru[block]
            self._disown(block, held.bit)

    def heat(self, blocks: Sequence[int], depth: int, now_s: float) -> float:
        """Decayed count of earlier requests whose deepest match over all cells was exactly the first `depth` blocks."""
        if not 0 < depth <= len(blocks):
            return 0.0
        return self._heat.read(blocks[depth - 1], now_s)

    def set_capacity(self, cell_id: str, blocks: int) -> None:
        """The cell keeps at most this many blocks: its engine's KV capacity, or this gateway's share of it."""
        held = self._cells.get(cell_id) or self._add(cell_id)
        held.capacity = max(0, blocks)
        self._shrink(held, self._room(held))

    def forget(self, cell_id: str) -> None:
        """The cell's cache is empty (restart, reset, sleep). Its capacity stays, and so does what others hold."""
        held = self._cells.get(cell_id)
        if held is None:
            return
        for block in held.lru:
            self._disown(block, held.bit)
        held.lru.clear()

    def forget_all(self) -> None:
        """Blocks will have other names from now on."""
        for cell_id in self._cells:
            self.forget(cell_id)
        self.take_placed()

    def remove_cell(self, cell_id: str) -> None:
        """The cell left the grid."""
        self.forget(cell_id)
        held = self._cells.pop(cell_id, None)
        if held is not None:
            del self._names[held.bit]
            self._free_bits.append(held.bit)

    def remove(self, cell_id: str, blocks: Sequence[int]) -> None:
        """The cell says that it dropped exactly these blocks; deeper ones that hang on them no longer match."""
        held = self._cells.get(cell_id)
        if held is None:
            return
        for block in blocks:
            if block in held.lru:
                del held.lru[block]
                self._disown(block, held.bit)

    def _note(self, found: dict[str, int], bits: int, depth: int) -> None:
        while bits:
            lowest = bits & -bits
            found[self._names[lowest]] = depth
            bits ^= lowest

    def _count_heat(self, blocks: Sequence[int], now_s: float) -> None:
        """What a cell holds is a leading part, so the first block that nobody holds ends the deepest match."""
        owners = self._owners
        if blocks[0] not in owners:
            return
        low, high = 1, len(blocks)
        while low < high:
            middle = (low + high + 1) // 2
            if blocks[middle - 1] in owners:
                low = middle
            else:
                high = middle - 1
        self._heat.add(blocks[low - 1], now_s)

    def _add(self, cell_id: str) -> _Held:
        bit = self._free_bits.pop() if self._free_bits else 1 << len(self._cells)
        held = self._cells[cell_id] = _Held(bit, self._cell_blocks)
        self._names[bit] = cell_id
        for other in self._cells.values():  # the share of each became smaller
            self._shrink(other, self._room(other))
        return held

    def _keep(self, cell_id: str, blocks: Sequence[int]) -> None:
        self._placed.append((cell_id, blocks))
        self._placed_blocks += len(blocks)
        while self._placed_blocks > self._most_placed:
            _, dropped = self._placed.popleft()
            self._placed_blocks -= len(dropped)
            self.untold += 1

    def _step(self, now_s: float) -> float:
        if not self._at_s <= now_s < self._at_s + STEP_S:
            self._at_s = now_s
        return self._at_s

    def _room(self, held: _Held) -> int:
        return min(held.capacity, self._max_blocks // len(self._cells))

    def _shrink(self, held: _Held, room: int) -> None:
        lru, owners, bit = held.lru, self._owners, held.bit
        surplus = len(lru) - room
        if surplus <= 0:
            return
        self.evicted += surplus
        for _ in range(surplus):
            block, _ = lru.popitem(last=False)
            mask = owners[block]
            if mask == bit:
                del owners[block]
            else:
                owners[block] = mask ^ bit

    def _disown(self, block: int, bit: int) -> None:
        left = self._owners[block] & ~bit
        if left:
            self._owners[block] = left
        else:
            del self._owners[block]
