"""Whatever happens in whatever order, the picker's books balance and its decisions are sound."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pick.fakes import blocks, cell_view, grid, outcome, picker, request
from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.policies import POLICIES
from tradewind.core.pick.settings import PickSettings
from tradewind.core.prefix.index import PrefixIndex
from tradewind.model.cell import CellState
from tradewind.model.decision import Decision
from tradewind.model.routing import WeightRow

CELLS = ("a", "b", "c", "d")
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("pick",) * 4 + ("first", "end", "end", "fail", "move", "view", "rows", "others", "expire")),
        st.integers(0, 1 << 30),
        st.floats(0.0, 5.0),
    ),
    max_size=60,
)


class World:
    """A picker, what is open, and the clock."""

    def __init__(self, policy: str) -> None:
        self.made = picker(*map(cell_view, CELLS), policy=policy, settings=PickSettings(lease_s=20.0, max_bookings=25))
        self.open: list[Decision] = []
        self.decisions: list[Decision] = []
        self.now_s = 1.0

    def apply(self, kind: str, number: int, wait_s: float) -> None:
        """One event; `number` chooses everything about it."""
        self.now_s += wait_s
        rng = Random(number)
        getattr(self, kind)(rng)

    def pick(self, rng: Random) -> None:
        tokens = rng.randint(1, 6_000)
        prompt = blocks(*(rng.randint(0, 1) for _ in range(tokens // 128)))
        size = tokens / len(prompt) if prompt else 0.0
        seen, exact = rng.random() < 0.7, rng.random() < 0.5
        asked = request(tokens, stream=seen, exact_tokens=exact, blocks=prompt, block_tokens=size)
        found = self.made.pick(asked, now_s=self.now_s, rng=rng)
        if isinstance(found, Decision):
            check(found)
            self.open.append(found)
            self.decisions.append(found)

    def first(self, rng: Random) -> None:
        if self.open:
            self.made.first_token(rng.choice(self.open).decision_id, self.now_s - rng.random())

    def end(self, rng: Random) -> None:
        self._finish(rng, 200)

    def fail(self, rng: Random) -> None:
        self._finish(rng, rng.choice([0, 400, 429, 500, 503]))

    def move(self, rng: Random) -> None:
        if self.open:
            self.made.served_by(rng.choice(self.open).decision_id, rng.choice(CELLS), self.now_s)

    def view(self, rng: Random) -> None:
        cells = rng.sample(CELLS, rng.randint(0, 4))
        states = [rng.choice([CellState.READY, CellState.READY, CellState.FAULTED]) for _ in cells]
        views = [cell_view(c, state=s, limit=rng.choice([None, 4_000])) for c, s in zip(cells, states, strict=True)]
        self.made.observe_view(grid(*views), self.now_s)

    def rows(self, rng: Random) -> None:
        rows = [WeightRow(cell_id=c, weight=rng.randint(1, 134), drained=rng.random() < 0.3) for c in CELLS]
        self.made.observe_pressure(rows, self.now_s)

    def others(self, rng: Random) -> None:
        loads = {c: OthersLoad(rng.randint(0, 9), rng.randint(0, 9_000), rng.randint(0, 9)) for c in CELLS}
        self.made.observe_others(loads, self.now_s)

    def expire(self, rng: Random) -> None:
        self.made.expire(self.now_s)

    def _finish(self, rng: Random, status: int) -> None:
        if not self.open:
            return
        decision = self.open[rng.randrange(len(self.open))]
        if rng.random() < 0.9:
            self.open.remove(decision)
        cell_id = rng.choice([None, decision.cell_id, decision.cell_id, *CELLS])
        ttft_s = rng.choice([None, 0.0, rng.random() * 9])
        tokens = rng.choice([None, 0, 1, 300])
        end = outcome(decision, status=status, cell_id=cell_id, ttft_s=ttft_s, completion_tokens=tokens)
        self.made.finished(decision.decision_id, end, self.now_s)


def check(found: Decision) -> None:
    """A decision is sound on its face."""
    assert 0.0 < found.probability <= 1.0
    assert 0 <= found.matched_tokens < found.prompt_tokens
    costs = [candidate.cost_s for candidate in found.candidates]
    assert costs == sorted(costs)
    if found.policy == "cost":
        for candidate in found.candidates:
            assert abs(sum(seconds for _, seconds in candidate.terms) - candidate.cost_s) < 1e-9
            assert all(seconds >= 0.0 for _, seconds in candidate.terms)
    assert found.cell_id in [candidate.cell_id for candidate in found.candidates]


def balanced(made: Picker) -> None:
    """No count is negative, and the sums are those of the bookings."""
    for cell in made.fleet.cells():
        work = cell.work
        assert work.requests == work.waiting + work.decoding
        assert min(work.requests, work.waiting, work.decoding, work.kv_tokens, work.waiting_tokens) >= 0
        assert work.need_tokens >= work.waiting_tokens
        assert work.backlog_s(1e6) >= 0.0


@settings(max_examples=60, deadline=None)
@given(policy=st.sampled_from(sorted(POLICIES)), events=EVENTS)
def test_books_balance_and_empty(policy: str, events: list[tuple[str, int, float]]) -> None:
    world = World(policy)
    for kind, number, wait_s in events:
        world.apply(kind, number, wait_s)
        balanced(world.made)
    for decision in world.open:
        world.made.finished(decision.decision_id, outcome(decision), world.now_s)
    world.made.expire(world.now_s + 1e3)
    assert len(world.made.ledger) == 0
    assert world.made.outstanding() == {}
    picks = world.made.counters.picks
    assert world.made.ledger.released + world.made.ledger.expired == picks


@settings(max_examples=20, deadline=None)
@given(events=EVENTS, seed=st.integers(0, 1 << 30))
def test_the_same_calls_give_the_same_decisions(events: list[tuple[str, int, float]], seed: int) -> None:
    def run() -> list[tuple[str, float, float]]:
        world = World("cost")
        for kind, number, wait_s in events:
            world.apply(kind, number ^ seed, wait_s)
        return [(found.cell_id, found.cost_s, found.probability) for found in world.decisions]

    assert run() == run()


@settings(max_examples=40, deadline=None)
@given(depth=st.integers(0, 40), tokens=st.integers(1, 5_000))
def test_a_deeper_match_is_never_dearer(depth: int, tokens: int) -> None:
    size = max(1, tokens // 128)
    prompt = blocks(*range(size))
    index = PrefixIndex()
    made = Picker(PickSettings(), index=index)
    made.observe_view(grid(cell_view("a"), cell_view("b")), 0.0)
    index.record("a", prompt[:depth], 0.0)
    found = made.pick(request(tokens, blocks=prompt, block_tokens=tokens / size), now_s=1.0, rng=Random(1))
    assert isinstance(found, Decision)
    costs = {candidate.cell_id: candidate.cost_s for candidate in found.candidates}
    assert costs["a"] <= costs["b"] + 1e-12
