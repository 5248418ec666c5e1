"""The prefix index against a plain model of it, over any history of calls."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.core.prefix.index import PrefixIndex

CELLS = ("a", "b", "c")
CELL_BLOCKS = 7


class Naive:
    """The same contract: per cell a list of blocks, oldest touch first."""

    def __init__(self) -> None:
        self.held: dict[str, list[int]] = {}
        self.room: dict[str, int] = {}

    def fit(self, cell_id: str) -> None:
        held = self.held[cell_id]
        del held[: max(0, len(held) - self.room[cell_id])]

    def record(self, cell_id: str, blocks: Sequence[int]) -> None:
        held = self.held.setdefault(cell_id, [])
        room = self.room.setdefault(cell_id, CELL_BLOCKS)
        for block in reversed(blocks[:room]):
            if block in held:
                held.remove(block)
            held.append(block)
        self.fit(cell_id)

    def set_capacity(self, cell_id: str, blocks: int) -> None:
        self.held.setdefault(cell_id, [])
        self.room[cell_id] = blocks
        self.fit(cell_id)

    def matches(self, blocks: Sequence[int]) -> dict[str, int]:
        found = {}
        for cell_id, held in self.held.items():
            depth = next((depth for depth, block in enumerate(blocks) if block not in held), len(blocks))
            if depth:
                found[cell_id] = depth
        return found


def chain(path: Sequence[int]) -> tuple[int, ...]:
    """Blocks of a prompt: each named by the whole path to it."""
    return tuple(hash(tuple(path[:end])) for end in range(1, len(path) + 1))


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=10).map(chain)
steps = st.one_of(
    st.tuples(st.just("record"), st.sampled_from(CELLS), prompts),
    st.tuples(st.just("capacity"), st.sampled_from(CELLS), st.integers(0, 12)),
    st.tuples(st.just("forget"), st.sampled_from(CELLS), st.just(0)),
    st.tuples(st.just("gone"), st.sampled_from(CELLS), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(history=st.lists(steps, max_size=40), asked=st.lists(prompts, min_size=1, max_size=5))
def test_it_behaves_as_its_plain_model(
    history: list[tuple[str, str, tuple[int, ...] | int]], asked: list[tuple[int, ...]]
) -> None:
    index, naive = PrefixIndex(cell_blocks=CELL_BLOCKS), Naive()
    for number, (step, cell_id, value) in enumerate(history):
        if isinstance(value, tuple):
            index.record(cell_id, value, float(number))
            naive.record(cell_id, value)
        elif step == "capacity":
            index.set_capacity(cell_id, value)
            naive.set_capacity(cell_id, value)
        elif step == "forget":
            index.forget(cell_id)
            naive.held.get(cell_id, []).clear()
        else:
            index.remove_cell(cell_id)
            naive.held.pop(cell_id, None)
            naive.room.pop(cell_id, None)
        for prompt in asked:
            assert index.matches(prompt) == naive.matches(prompt)
    assert len(index) == sum(map(len, naive.held.values()))


@settings(max_examples=50, deadline=None)
@given(sent=st.lists(st.tuples(st.sampled_from(CELLS), prompts), max_size=40))
def test_the_cap_over_all_cells_always_holds(sent: list[tuple[str, tuple[int, ...]]]) -> None:
    index = PrefixIndex(max_blocks=9)
    for number, (cell_id, blocks) in enumerate(sent):
        index.record(cell_id, blocks, float(number))
        assert len(index) <= 9
