"""Limits that a cell does not state: learned from at most three refusals, and never from what all cells refuse."""

from math import inf
from random import Random

import pytest

from tests.unit.pick.fakes import cell_view, grid, outcome, picked, picker, request
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.refusals import MAX_REFUSALS

CELLS = tuple(f"c{number}" for number in range(9))
LIMIT = 1_024


def send(made: Picker, tokens: int, now_s: float, rng: Random, *, limits: dict[str, int]) -> tuple[str, bool]:
    """One request through engines with these limits: who got it, and whether it refused."""
    decision = picked(made, request(tokens, max_output_tokens=16), now_s=now_s, rng=rng)
    refuses = tokens + 16 > limits.get(decision.cell_id, 1 << 30)
    if refuses:
        made.finished(decision.decision_id, outcome(decision, status=400), now_s + 0.01)
    else:
        ttft_s = decision.expected_ttft_s
        assert ttft_s is not None
        made.finished(decision.decision_id, outcome(decision, ttft_s=ttft_s, completion_tokens=16), now_s + 10.0)
    return decision.cell_id, refuses


@pytest.mark.parametrize("seed", range(8))
def test_at_most_three_refusals_in_all(seed: int) -> None:
    rng = Random(seed)
    made = picker(*(cell_view(cell_id) for cell_id in CELLS))
    refusals, short, now_s = 0, 0, 1.0
    for _ in range(1_500):
        now_s += rng.expovariate(2.0)
        tokens = rng.randint(100, 900) if rng.random() < 0.7 else rng.randint(1_100, 9_000)
        cell_id, refused = send(made, tokens, now_s, rng, limits={"c4": LIMIT})
        refusals += refused
        short += cell_id == "c4" and not refused
    assert refusals <= MAX_REFUSALS
    assert short > 60, "what fits is still sent there"


@pytest.mark.parametrize("seed", range(4))
def test_a_stated_limit_is_never_tried(seed: int) -> None:
    rng = Random(seed)
    made = picker(*(cell_view(cell_id, limit=LIMIT if cell_id == "c4" else 32_768) for cell_id in CELLS))
    for turn in range(300):
        assert not send(made, rng.randint(100, 9_000), 1.0 + turn, rng, limits={"c4": LIMIT})[1]


def test_what_every_cell_refuses_teaches_nothing() -> None:
    rng = Random(1)
    made = picker(*(cell_view(cell_id) for cell_id in CELLS))
    for turn in range(200):
        bad = turn % 3 == 0
        decision = picked(made, request(5_000 if bad else 500), now_s=1.0 + turn, rng=rng)
        made.finished(decision.decision_id, outcome(decision, status=400 if bad else 200), 1.5 + turn)
    assert all(cell.learned.bound == inf for cell in made.fleet.cells())
    seen = set()
    for turn in range(120):
        decision = picked(made, request(5_000), now_s=1_000.0 + turn, rng=rng)
        made.finished(decision.decision_id, outcome(decision), 1_000.5 + turn)
        seen.add(decision.cell_id)
    assert seen == set(CELLS)
    assert all(cell.learned.quiet for cell in made.fleet.cells())


def test_a_refusal_of_what_the_cell_serves_is_doubted_until_one_tries() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    for cell_id, status in (("a", 200), ("b", 200), ("a", 400)):
        decision = picked(made, request(2_000))
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=status), 2.0)
    assert picked(made, request(2_000), now_s=10.0).cell_id == "b"
    assert picked(made, request(1_500), now_s=10.0).cell_id == "a"
    trial = picked(made, request(2_000), now_s=33.0)
    assert trial.cell_id == "a"
    made.finished(trial.decision_id, outcome(trial), 34.0)
    assert picked(made, request(2_000), now_s=34.0).cell_id == "a", "it was not about length"


def test_who_alone_can_serve_is_asked_in_spite_of_a_doubt() -> None:
    made = picker(cell_view("a"), cell_view("b", site="west"), rtts_s={"b": 3.0})
    for cell_id, status in (("a", 200), ("b", 200), ("a", 400)):
        decision = picked(made, request(2_000))
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=status), 2.0)
    assert picked(made, request(2_000, allowed_sites=("east",)), now_s=10.0).cell_id == "a"


def taught(limit_served: int = 500) -> Picker:
    """`a` is near and has refused 3,000 tokens that `b` serves."""
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    for cell_id, tokens, status in (("a", limit_served, 200), ("b", 4_000, 200), ("a", 3_000, 400)):
        decision = picked(made, request(tokens))
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=status), 2.0)
    return made


def test_the_first_refusal_bounds_the_cell() -> None:
    made = taught()
    assert picked(made, request(2_950), now_s=10.0).cell_id == "b"
    assert picked(made, request(500), now_s=10.0).cell_id == "a"


def test_a_longer_prompt_served_there_lifts_the_bound() -> None:
    made = taught()
    decision = picked(made, request(4_000), now_s=10.0)
    made.finished(decision.decision_id, outcome(decision, cell_id="a"), 12.0)
    assert picked(made, request(3_500), now_s=40.0).cell_id == "a"


def test_a_probe_or_another_engine_lifts_the_bound() -> None:
    made = taught()
    made.probe_served("a", 12_000, None, 9.0)
    assert picked(made, request(3_000), now_s=10.0).cell_id == "a"
    made = taught()
    made.observe_view(grid(cell_view("a", incarnation="i2"), cell_view("b")), 9.0)
    assert picked(made, request(3_000), now_s=10.0).cell_id == "a"


def test_after_a_while_one_request_tries_again() -> None:
    made = taught()
    trial = picked(made, request(3_000), now_s=70.0)
    assert trial.cell_id == "a"
    assert picked(made, request(3_000), now_s=70.1).cell_id == "b", "one at a time"
    made.finished(trial.decision_id, outcome(trial, status=400), 70.2)
    assert picked(made, request(3_000), now_s=140.0).cell_id == "b"


def test_a_first_refusal_is_a_suspicion_until_a_peer_answers() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    decision = picked(made, request(3_000))
    made.finished(decision.decision_id, outcome(decision, status=400), 1.1)
    peer = picked(made, request(3_000), now_s=2.0)
    assert peer.cell_id == "b"
    made.finished(peer.decision_id, outcome(peer), 5.0)
    assert picked(made, request(3_000), now_s=50.0).cell_id == "b", "a peer serves it: the cell is short"
    assert picked(made, request(100), now_s=50.0).cell_id == "a"


def test_a_suspicion_ends_when_the_peer_refuses_too() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    for cell_id in ("a", "b"):
        decision = picked(made, request(3_000))
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=400), 1.1)
    assert picked(made, request(3_000), now_s=30.0).cell_id == "a"


def test_a_suspicion_waits_for_the_next_like_request() -> None:
    """Where long prompts are rare, each would meet the same cell if suspicions ended by themselves."""
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    decision = picked(made, request(5_000), now_s=40.0)
    made.finished(decision.decision_id, outcome(decision, cell_id="a", status=400), 40.1)
    made.expire(900.0)
    peer = picked(made, request(5_000), now_s=900.0)
    assert peer.cell_id == "b"
    made.finished(peer.decision_id, outcome(peer), 901.0)
    assert picked(made, request(5_000), now_s=910.0).cell_id == "b"
    assert picked(made, request(5_000), now_s=932.0).cell_id == "a", "so late an answer is a doubt, and soon tried"


def test_where_a_refusal_was_not_about_length_the_next_ones_bound_nothing() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 3.0})
    for cell_id, status, at_s in (("a", 200, 2.0), ("b", 200, 2.0), ("a", 400, 3.0)):
        decision = picked(made, request(2_000), now_s=at_s)
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=status), at_s)
    trial = picked(made, request(2_000), now_s=34.0)
    made.finished(trial.decision_id, outcome(trial), 35.0)
    for turn, tokens in enumerate((1_900, 1_500, 1_000)):
        decision = picked(made, request(tokens), now_s=40.0 + turn)
        made.finished(decision.decision_id, outcome(decision, cell_id="a", status=400), 40.5 + turn)
    assert all(cell.learned.bound == inf for cell in made.fleet.cells())
    assert picked(made, request(2_000), now_s=45.0).cell_id == "b", "others get the like meanwhile"
