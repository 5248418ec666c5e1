"""A limit that falls in mid run without a word: three long prompts are refused at most, whatever their order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pick.fakes import cell_view, outcome, picked, picker, request
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.refusals import MAX_REFUSALS, TRIAL_AFTER_S
from tradewind.model.decision import Decision
from tradewind.model.routing import WeightRow

CELLS = tuple(f"c{number}" for number in range(4))
LIMIT = 1_024

Takes = Callable[[int, int, int], bool]  # prompt, output, limit


def by_part(prompt: int, output: int, limit: int) -> bool:
    """As vLLM answers: neither prompt nor max_tokens may be over the limit; their sum may."""
    return prompt <= limit and output <= limit


def by_sum(prompt: int, output: int, limit: int) -> bool:
    """As SGLang answers."""
    return prompt + output <= limit


@dataclass
class World:
    """A picker before engines of which one, c0, serves less from `fell_s` on."""

    takes: Takes = by_part
    made: Picker = field(default_factory=lambda: picker(*(cell_view(cell_id) for cell_id in CELLS)))
    rng: Random = field(default_factory=lambda: Random(1))
    limit: int | None = None  # of c0
    bad: float = 0.0  # share of the requests that every cell refuses, for what is in them
    now_s: float = 1.0
    takes_s: float = 8.0
    refused: list[tuple[int, int]] = field(default_factory=list)  # by the limit
    served: list[tuple[str, int, int]] = field(default_factory=list)
    open: list[tuple[float, Decision]] = field(default_factory=list)

    def send(self, prompt: int, output: int = 16) -> str:
        """One request; what is served ends `takes_s` later. Returns the cell."""
        decision = picked(self.made, request(prompt, max_output_tokens=output), now_s=self.now_s, rng=self.rng)
        cell_id = decision.cell_id
        if cell_id == "c0" and self.limit is not None and not self.takes(prompt, output, self.limit):
            self.refused.append((prompt, output))
        elif self.rng.random() >= self.bad:
            self.served.append((cell_id, prompt, output))
            self.open.append((self.now_s + self.takes_s, decision))
            return cell_id
        asked = 4 * prompt
        self.made.finished(decision.decision_id, outcome(decision, status=400, request_bytes=asked), self.now_s + 0.01)
        return cell_id

    def wait(self, for_s: float) -> None:
        """Time passes, and what is due ends."""
        self.now_s += for_s
        for at_s, decision in [item for item in self.open if item[0] <= self.now_s]:
            self.made.finished(decision.decision_id, outcome(decision, completion_tokens=16), at_s)
        self.open = [item for item in self.open if item[0] > self.now_s]
        self.made.expire(self.now_s)

    def run(self, requests: int, lengths: Callable[[Random], tuple[int, int]], *, gap_s: float = 0.5) -> None:
        """So many requests of these lengths."""
        for _ in range(requests):
            self.wait(self.rng.expovariate(1.0 / gap_s))
            self.send(*lengths(self.rng))

    def fall(self, limit: int = LIMIT) -> None:
        """From now on c0 serves no more than this, and nobody is told."""
        self.limit = limit
        self.served.clear()


def mixed(rng: Random) -> tuple[int, int]:
    """Short and long, and answers short and long, as a trace has them."""
    prompt = rng.randint(50, 1_000) if rng.random() < 0.7 else rng.randint(1_000, 2_600)
    return prompt, rng.choice((16, 64, 200, 600))


@pytest.mark.parametrize("takes", [by_part, by_sum])
@pytest.mark.parametrize("seed", range(10))
def test_a_cell_whose_limit_falls_refuses_three_at_most(seed: int, takes: Takes) -> None:
    world = World(takes=takes, rng=Random(seed))
    world.run(200, mixed)
    assert any(cell_id == "c0" and prompt > 2_000 for cell_id, prompt, _ in world.served)
    world.fall()
    world.run(1_500, mixed)
    assert 1 <= len(world.refused) <= MAX_REFUSALS, world.refused
    assert sum(cell_id == "c0" for cell_id, _, _ in world.served) > 100, "what fits is still sent there"


def test_what_one_demo_showed() -> None:
    """Each of these was sent to a cell that had served longer ones before; none taught it anything."""
    world = World()
    for cell_id in CELLS:
        decision = picked(world.made, request(2_500, max_output_tokens=200))
        world.made.finished(decision.decision_id, outcome(decision, cell_id=cell_id), 2.0)
    world.wait(20.0)
    world.fall()
    for at_s, prompt, output in ((23.7, 1_350, 176), (31.5, 1_100, 31), (51.1, 1_250, 197), (54.5, 1_050, 185)):
        world.wait(at_s - world.now_s)
        for _ in range(8):  # every cell has its turn
            world.send(prompt, output)
            world.wait(0.05)
    assert 1 <= len(world.refused) <= MAX_REFUSALS, world.refused


@settings(max_examples=50)
@given(
    by=st.sampled_from([by_part, by_sum]),
    limit=st.integers(200, 3_000),
    before=st.lists(st.tuples(st.integers(1, 4_000), st.integers(1, 1_000)), min_size=1, max_size=10),
    after=st.lists(
        st.tuples(st.integers(1, 4_000), st.integers(1, 1_000), st.floats(0.02, 90.0)), min_size=20, max_size=60
    ),
    takes_s=st.sampled_from([0.01, 5.0, 40.0]),
    seed=st.integers(0, 99),
)
def test_whatever_the_lengths_and_their_order(
    by: Takes,
    limit: int,
    before: list[tuple[int, int]],
    after: list[tuple[int, int, float]],
    takes_s: float,
    seed: int,
) -> None:
    world = World(takes=by, rng=Random(seed), takes_s=takes_s)
    for prompt, output in (*before, (5_000, 1_000)):
        for cell_id in CELLS:
            decision = picked(world.made, request(prompt, max_output_tokens=output))
            world.made.finished(decision.decision_id, outcome(decision, cell_id=cell_id), 2.0)
    world.wait(20.0)
    world.fall(limit)
    for prompt, output, gap_s in after:
        world.wait(gap_s)
        world.send(prompt, output)
    assert len(world.refused) <= MAX_REFUSALS, world.refused


def test_a_request_that_was_let_in_before_the_fall_proves_nothing_after_it() -> None:
    world = World(takes_s=20.0)
    for _ in range(12):
        world.send(2_500)
        world.wait(0.05)
    world.fall()
    for _ in range(200):
        world.wait(0.5)
        world.send(2_000)
    assert 1 <= len(world.refused) <= MAX_REFUSALS


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_that_falls_twice_is_learned_twice(seed: int) -> None:
    world = World(rng=Random(seed))
    world.run(200, mixed)
    world.fall(1_800)
    world.run(600, mixed)
    first = len(world.refused)
    assert 1 <= first <= MAX_REFUSALS
    world.fall(600)
    world.run(1_200, mixed)
    assert 1 <= len(world.refused) - first <= MAX_REFUSALS


@pytest.mark.parametrize("seed", range(3))
def test_requests_that_are_bad_in_themselves_keep_no_cell_out(seed: int) -> None:
    """One of fifty is refused whoever gets it, some of them longer, some shorter than what is served."""
    world = World(rng=Random(seed), bad=0.02)
    world.run(1_500, mixed)
    long = [cell_id for cell_id, prompt, _ in world.served if prompt > 1_000]
    assert min(long.count(cell_id) for cell_id in CELLS) > 0.12 * len(long)
    world.bad = 0.0
    world.run(500, mixed, gap_s=2.0)
    assert sum(cell.learned.quiet for cell in world.made.fleet.cells()) >= len(CELLS) - 1
    assert not world.refused


def test_where_all_seem_limited_the_lesson_is_doubted() -> None:
    """Sixteen requests that nobody should have sent leave the next ones a cell."""
    world = World(bad=1.0)
    for cell_id in CELLS:
        decision = picked(world.made, request(2_500))
        world.made.finished(decision.decision_id, outcome(decision, cell_id=cell_id), 1.5)
    for turn in range(16):
        world.wait(1.0)
        world.send(2_400 - 100 * turn)
    world.bad = 0.0
    world.run(60, lambda _: (2_000, 16))
    assert len(world.served) == 60


def test_a_probe_settles_the_measure_that_it_is_long_by() -> None:
    """An engine that counts the allowed output serves a probe of the prompt alone, and goes on refusing the sum."""
    world = World(takes=by_sum)
    world.run(60, lambda _: (900, 600))
    world.fall()
    while not world.refused:
        world.wait(0.5)
        world.send(900, 600)
    for _ in range(20):
        world.made.probe_served("c0", 3_600, 900, world.now_s)
        world.wait(5.0)
        world.send(900, 600)
    assert len(world.refused) <= MAX_REFUSALS
    world.limit = None
    world.wait(TRIAL_AFTER_S)
    world.made.probe_served("c0", 6_000, 1_500, world.now_s)
    world.wait(0.1)
    assert "c0" in {world.send(900, 600) for _ in range(16)}, "a probe as long as all of it settles both"


def test_a_probe_shorter_than_what_was_refused_clears_nothing() -> None:
    world = World()
    world.run(60, lambda _: (2_500, 16))
    world.fall()
    world.run(200, lambda rng: (rng.choice((700, 2_500)), 16))
    assert 1 <= len(world.refused) <= MAX_REFUSALS
    for _ in range(10):
        world.made.probe_served("c0", 2_000, 500, world.now_s)
        world.run(20, lambda _: (2_500, 16), gap_s=0.2)
    assert len(world.refused) <= MAX_REFUSALS + 1, "one may try, and then not so soon again"
    world.limit = None
    world.made.probe_served("c0", 10_000, 2_500, world.now_s)
    assert world.made.fleet.get("c0").learned.quiet  # type: ignore[union-attr]


def test_an_error_in_a_stream_is_a_refusal_too() -> None:
    """Some engines answer 200 and tell in the stream that the prompt is too long."""
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    for cell_id, code in (("b", None), ("a", 400)):
        decision = picked(made, request(3_000))
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, stream_error_code=code), 2.0)
    assert picked(made, request(3_000), now_s=3.0).cell_id == "b"


def test_what_was_learned_outlives_a_restart() -> None:
    world = World()
    world.run(100, mixed)
    world.fall()
    world.run(400, mixed)
    refused = len(world.refused)
    memory = world.made.fleet.remembered(world.now_s)
    assert [limit.refusals for limit in memory] == [refused]
    old = world.made
    world.made = picker(*(cell_view(cell_id) for cell_id in CELLS))
    world.open.clear()
    world.made.recall(memory, world.now_s)
    assert world.made.fleet.get("c0").learned.bound == old.fleet.get("c0").learned.bound  # type: ignore[union-attr]
    world.run(400, mixed)
    assert len(world.refused) <= MAX_REFUSALS


def test_under_a_verdict_no_client_tries() -> None:
    """Probes of the refused shape tell when it is over."""
    world = World()
    world.run(100, lambda _: (2_500, 16))
    world.fall()
    while not world.refused:
        world.wait(0.5)
        world.send(2_000)
    convicted = WeightRow(cell_id="c0", weight=1, drained=True, reason="verdict", refuses=(("m", 6_000),))
    world.made.observe_pressure((convicted,), world.now_s)
    world.run(200, lambda _: (2_500, 16))
    assert len(world.refused) == 1
    world.made.observe_pressure((WeightRow(cell_id="c0", weight=1),), world.now_s)
    world.run(10, lambda _: (2_500, 16))
    assert len(world.refused) == 2
