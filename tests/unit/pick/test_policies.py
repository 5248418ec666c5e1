"""The policies for comparison, each in a situation that its rule decides."""

from random import Random
from typing import Any

import pytest

from tests.unit.pick.fakes import FakeIndex, blocks, cell_view, grid, outcome, picked, picker, request, shares
from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.policies import POLICIES
from tradewind.core.pick.settings import PickSettings
from tradewind.model.routing import WeightRow
from tradewind.model.telemetry import EngineReading

PROMPT = blocks(*range(8))
LONG: dict[str, Any] = {"blocks": PROMPT, "block_tokens": 128.0}


def make(policy: str, cells: str = "abc", **changes: Any) -> Picker:
    return picker(*map(cell_view, cells), policy=policy, **changes)


def burst(made: Picker, count: int, tokens: int = 100, seed: int = 1, **changes: Any) -> list[str]:
    rng = Random(seed)
    return [picked(made, request(tokens, **changes), now_s=1.0, rng=rng).cell_id for _ in range(count)]


def put(made: Picker, cell_id: str, count: int, tokens: int = 100, **changes: Any) -> None:
    """Books so many requests on a cell, whatever the policy says."""
    for _ in range(count):
        made.served_by(picked(made, request(tokens, **changes)).decision_id, cell_id, 1.0)


@pytest.mark.parametrize(
    "name", [*POLICIES, "least_request:N", "least_request:3", "gorgo:.276/.5", "smg_least_load:polled"]
)
def test_every_policy_decides_books_and_logs(name: str) -> None:
    made = make(name)
    for turn in range(20):
        decision = picked(made, request(1_024, **LONG), now_s=float(turn), rng=Random(turn))
        assert decision.policy.partition(":")[0] == name.partition(":")[0]
        assert 0.0 < decision.probability <= 1.0
        assert decision.cell_id in [candidate.cell_id for candidate in decision.candidates]
        assert set(decision.alternatives) == set("abc") - {decision.cell_id}
        made.first_token(decision.decision_id, turn + 0.3)
        made.finished(decision.decision_id, outcome(decision), turn + 0.9)
    assert made.outstanding() == {}


@pytest.mark.parametrize(
    "name", ["nope", "", "cost:1", "least_request:x", "least_request:0", "gorgo:1", "gorgo:a/b", "skywalker:x"]
)
def test_a_wrong_name_says_what_is_right(name: str) -> None:
    with pytest.raises(ValueError, match=r"known: |takes "):
        make(name)


def test_random_is_even() -> None:
    assert all(0.30 < share < 0.37 for share in shares(burst(make("random"), 3_000)).values())


def test_round_robin_goes_round_per_model_and_skips_who_may_not() -> None:
    made = make("round_robin")
    assert burst(made, 4) == ["a", "b", "c", "a"]
    assert burst(made, 1, allowed_sites=("east",)) == ["b"]
    made.observe_view(grid(cell_view("a"), cell_view("b")), 2.0)
    assert burst(made, 3) == ["a", "b", "a"]


def test_least_request_n_levels_exactly() -> None:
    counts = shares(burst(make("least_request:N"), 300))
    assert set(counts.values()) == {1 / 3}


def test_least_request_2_draws_two_and_logs_its_chance() -> None:
    made = make("least_request:2")
    put(made, "a", 1)
    put(made, "b", 2)
    base = dict.fromkeys("abc", 0)
    chances: dict[str, float] = {}
    for seed in range(600):
        decision = picked(made, request(), rng=Random(seed))
        base[decision.cell_id] += 1
        chances[decision.cell_id] = decision.probability
        made.finished(decision.decision_id, outcome(decision), 1.0)
    assert base["b"] == 0, "the busiest never wins a draw of two"
    assert chances == pytest.approx({"a": 1 / 3, "c": 2 / 3})
    assert base["c"] / 600 == pytest.approx(2 / 3, abs=0.07)


def test_least_request_counts_other_gateways() -> None:
    made = make("least_request:N", "ab")
    made.observe_others({"a": OthersLoad(5, 0, 5)}, 1.0)
    assert burst(made, 2) == ["b", "b"]


def test_least_load_adds_what_was_sent_since_the_reading() -> None:
    """FC-34: a stale reading does not herd."""
    idle = cell_view("a", engine=EngineReading(queue_requests=0, running_requests=0))
    busy = cell_view("b", engine=EngineReading(queue_requests=1, running_requests=0))
    for count in (8, 64):
        got = burst(picker(idle, busy, policy="least_load"), count)
        assert abs(got.count("a") - got.count("b") - 1) <= 1


def test_session_affinity_keeps_a_session_and_spreads_sessions() -> None:
    made = make("session_affinity", "abcde")
    homes = {key: picked(made, request(session=f"s{key}")).cell_id for key in range(200)}
    assert set(homes.values()) == set("abcde")
    made.observe_view(grid(*map(cell_view, "abcd")), 2.0)
    moved = [key for key, home in homes.items() if picked(made, request(session=f"s{key}")).cell_id != home]
    assert all(homes[key] == "e" for key in moved), "only the sessions of the lost cell move"
    prompt = picked(made, request(1_024, **LONG)).cell_id
    longer = request(2_048, blocks=(*PROMPT, *blocks(9)), block_tokens=128.0)
    assert picked(made, longer).cell_id == prompt


def test_prefix_cache_follows_the_match_until_the_cell_is_too_busy() -> None:
    index = FakeIndex()
    index.record("b", PROMPT, 0.0)
    made = make("prefix_cache", index=index)
    assert picked(made, request(1_024, **LONG)).cell_id == "b"
    put(made, "b", 3)
    assert picked(made, request(1_024, **LONG)).cell_id != "b", "over the mean by more than a deviation"
    levelled_index = FakeIndex()
    levelled_index.record("b", PROMPT, 0.0)
    levelled = make("prefix_cache", index=levelled_index)
    put(levelled, "a", 9)
    assert picked(levelled, request(1_024, **LONG)).cell_id in "bc", "more than 8 apart: the fewest in flight"


def test_cache_aware_needs_a_good_match_and_balance() -> None:
    index = FakeIndex()
    index.record("b", PROMPT[:3], 0.0)
    made = make("cache_aware", index=index)
    put(made, "b", 2)
    put(made, "a", 1)
    assert picked(made, request(1_024, **LONG)).cell_id == "c", "3 of 8 blocks are less than half"
    index.forget("c")
    index.record("b", PROMPT, 0.0)
    assert picked(made, request(1_024, **LONG)).cell_id == "b"
    put(made, "b", 40)
    assert picked(made, request(1_024, **LONG)).cell_id != "b"


def test_smg_polled_knows_queues_by_readings_and_whole_prompts_sent_since() -> None:
    def seen(waiting: float) -> list[Any]:
        return [cell_view("a", engine=EngineReading(queue_requests=waiting)), cell_view("b", engine=EngineReading())]

    made = picker(*seen(0.0), policy="smg_least_load:polled")
    assert made.policy == "smg_least_load:polled"
    first = picked(made, request(1_000))
    second = picked(made, request(1_000))
    assert {first.cell_id, second.cell_id} == {"a", "b"}, "what was sent since the reading counts"
    for decision in (first, second):
        made.first_token(decision.decision_id, 1.1)
    assert burst(made, 2, tokens=1_000).count("a") == 1, "first tokens change nothing before the next reading"
    made.observe_view(grid(*seen(2.0)), 2.0)
    assert burst(made, 2, tokens=1_000) == ["b", "b"], "two prompts of a mean length wait in a, by its reading"


def test_smg_polled_forgets_what_a_later_reading_has_seen() -> None:
    empty = EngineReading(queue_requests=0.0, kv_fill_ratio=0.1)
    again = set()
    for seed in range(12):
        before, after = ([cell_view(cell_id, engine=empty) for cell_id in "ab"] for _ in range(2))
        made = picker(*before, policy="smg_least_load:polled")
        first = picked(made, request(5_000), rng=Random(seed))
        assert picked(made, request(100), rng=Random(seed)).cell_id != first.cell_id
        made.observe_view(grid(*after), 2.0)
        again.add(picked(made, request(100), rng=Random(seed + 100)).cell_id == first.cell_id)
    assert again == {True, False}, "equal again: either may be drawn"


def test_smg_least_load_is_time_and_kv() -> None:
    fast, slow = cell_view("a", hardware="h100"), cell_view("b", hardware="rtx-pro-6000")
    made = picker(fast, slow, policy="smg_least_load")
    put(made, "a", 1, tokens=1_000)
    put(made, "b", 1, tokens=800)
    assert picked(made, request()).cell_id == "a", "1,000 tokens at .3 ms are less than 800 at .5"
    full = cell_view("a", hardware="h100", engine=EngineReading(kv_fill_ratio=0.9))
    made = picker(full, slow, policy="smg_least_load")
    found = picked(made, request())
    assert found.cell_id == "b"
    assert {c.cell_id: c.cost_s for c in found.candidates} == pytest.approx({"a": 0.15 * 0.9 / 0.1, "b": 0.0})


def test_gorgo_is_its_published_sum() -> None:
    index = FakeIndex()
    index.record("b", PROMPT[:4], 0.0)
    made = make("gorgo:.276/.5", "ab", index=index, rtts_s={"a": 0.020, "b": 0.120})
    put(made, "a", 1, tokens=2_000)
    costs = {c.cell_id: c.cost_s for c in picked(made, request(1_024, **LONG)).candidates}
    b_s = 0.5e-3
    a_s = 0.276 * 0.020 + 0.5 * b_s * 2_000 + b_s * 1_024
    assert costs == pytest.approx({"a": a_s, "b": 0.276 * 0.120 + b_s * 512})


def test_gorgo_counts_full_prompts_until_the_end() -> None:
    made = make("gorgo", "ab")
    decision = picked(made, request(2_000))
    made.first_token(decision.decision_id, 1.9)
    busy = {c.cell_id: c.cost_s for c in picked(made, request(10), now_s=2.0).candidates}
    assert busy[decision.cell_id] == pytest.approx(0.5 * 0.010 + 0.1 * 0.5e-3 * 2_000 + 0.5e-3 * 10)


def test_skywalker_stays_home_until_something_is_pending_there() -> None:
    home, peer, far = cell_view("a", site="h"), cell_view("b", site="p"), cell_view("c", site="q")
    made = picker(home, peer, far, policy="skywalker", settings=PickSettings(site="h"), rtts_s={"b": 0.2, "c": 0.3})
    first = picked(made, request())
    assert first.cell_id == "a"
    assert picked(made, request()).cell_id in "bc", "one hop"
    made.first_token(first.decision_id, 1.3)
    assert picked(made, request(), now_s=1.4).cell_id == "a"


def test_skywalker_without_an_open_site_waits_at_home() -> None:
    cells = [cell_view("a1", site="h"), cell_view("a2", site="h"), cell_view("b", site="p")]
    made = picker(*cells, policy="skywalker", settings=PickSettings(site="h"))
    put(made, "b", 3)
    put(made, "a1", 2)
    put(made, "a2", 1)
    assert picked(made, request()).cell_id == "a2"


def test_skywalker_hops_to_the_site_that_holds_the_prompt() -> None:
    index = FakeIndex()
    index.record("c", PROMPT, 0.0)
    cells = [cell_view("a", site="h"), cell_view("b", site="p"), cell_view("c", site="q")]
    made = picker(*cells, policy="skywalker", settings=PickSettings(site="h"), index=index)
    put(made, "a", 1)
    assert picked(made, request(1_024, **LONG)).cell_id == "c"


def test_blind_pushing_keeps_everything_at_home() -> None:
    cells = [cell_view("a1", site="h"), cell_view("a2", site="h"), cell_view("b", site="p")]
    made = picker(*cells, policy="skywalker:blind", settings=PickSettings(site="h"))
    assert made.policy == "skywalker:blind"
    assert sorted(burst(made, 4)) == ["a1", "a1", "a2", "a2"], "b has nothing pending, and gets nothing"


def test_pressure_follows_the_weights_without_dice() -> None:
    made = make("pressure")
    rows = [WeightRow(cell_id=cell_id, weight=weight) for cell_id, weight in (("a", 70), ("b", 20), ("c", 10))]
    made.observe_pressure(rows, 1.0)
    got = burst(made, 200)
    assert shares(got) == pytest.approx({"a": 0.7, "b": 0.2, "c": 0.1})
    assert abs(got[:20].count("a") - 14) <= 1
