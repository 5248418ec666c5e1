"""The terms of the cost against numbers worked out by hand."""

from math import exp, log, sqrt

import pytest

from tests.unit.pick.fakes import FakeIndex, blocks, cell_view, grid, outcome, picked, picker, request
from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.settings import CostSettings, LearningSettings, PickSettings
from tradewind.model.cell import CellState
from tradewind.model.decision import Candidate, Decision

# rtx-pro-6000, milliseconds: a0 3.5, w 24, b .5, c .1, d 2.3e-4, e 8.6e-6; ingest 15.
COLD_500_S = (3.5 + sqrt(24**2 + (0.5 * 500) ** 2) + 8.6e-6 * 500 * 250) / 1e3


def step_s(sequences: int, kv_tokens: float) -> float:
    return (3.5 + sqrt(24**2 + (0.5 * sequences) ** 2) + 0.1 * sequences + 2.3e-4 * kv_tokens) / 1e3


def of(decision: Decision, cell_id: str) -> Candidate:
    return next(candidate for candidate in decision.candidates if candidate.cell_id == cell_id)


def terms(decision: Decision, cell_id: str) -> dict[str, float]:
    return dict(of(decision, cell_id).terms)


def test_an_idle_cell_costs_distance_prefill_and_its_own_decode() -> None:
    found = terms(picked(picker(cell_view("a"), rtts_s={"a": 0.032}), request(500)), "a")
    assert found["network"] == pytest.approx(0.032)
    assert found["ingest"] == pytest.approx(0.015)
    assert found["queue"] == 0
    assert found["prefill"] == pytest.approx(2.0 * COLD_500_S)
    assert found["decode"] == pytest.approx(0.25 * 128 * step_s(1, 500))
    assert found["others"] == pytest.approx(0.0)
    assert found["kv"] == 0


def test_long_prompts_take_whole_chunks_and_attention() -> None:
    found = terms(picked(picker(cell_view("a")), request(5_000)), "a")
    cold_s = (3 * 3.5 + sqrt((3 * 24) ** 2 + (0.5 * 5_000) ** 2) + 8.6e-6 * 5_000 * 2_500) / 1e3
    assert found["prefill"] == pytest.approx(2.0 * cold_s)


def test_a_waiting_prefill_is_queue_and_drains_in_real_time() -> None:
    made = picker(cell_view("a"))
    picked(made, request(500), now_s=1.0)
    soon = terms(picked(made, request(500), now_s=1.1), "a")
    assert soon["queue"] == pytest.approx(COLD_500_S - 0.1)
    growth_s = 0.5 * 128 * 1 * (step_s(2, 500) - step_s(1, 0))
    assert soon["others"] == pytest.approx(0.5 * (COLD_500_S + growth_s)), "who waits there waits for this one too"
    late = terms(picked(made, request(500), now_s=1.4), "a")
    assert late["queue"] == pytest.approx(0.3 * 2 * COLD_500_S), "two prefills wait, whatever the clock says"


def test_a_first_token_leaves_what_was_sent_later_less_half_a_round_trip() -> None:
    nothing = PickSettings(learning=LearningSettings(alpha=0.0))
    made = picker(cell_view("a"), rtts_s={"a": 0.100}, settings=nothing)
    first = picked(made, request(500), now_s=1.0)
    picked(made, request(2_000), now_s=1.01)
    made.first_token(first.decision_id, 1.30)
    later_s = (3.5 + sqrt(24**2 + 1_000**2) + 8.6e-6 * 2_000 * 1_000) / 1e3
    assert terms(picked(made, request(500), now_s=1.30), "a")["queue"] == pytest.approx(later_s - 0.05)


def test_a_first_token_told_late_counts_from_when_it_was() -> None:
    made = picker(cell_view("a"), rtts_s={"a": 0.0})
    first = picked(made, request(500), now_s=1.0)
    picked(made, request(2_000), now_s=1.01)
    made.first_token(first.decision_id, 1.30)
    later_s = (3.5 + sqrt(24**2 + 1_000**2) + 8.6e-6 * 2_000 * 1_000) / 1e3
    assert terms(picked(made, request(500), now_s=1.50), "a")["queue"] == pytest.approx(later_s - 0.2)


def test_decoding_neighbours_saturate_and_make_prefill_dearer() -> None:
    made = picker(cell_view("a"))
    for number in range(8):
        made.first_token(picked(made, request(500), now_s=1.0 + number).decision_id, 1.31 + number)
    found = terms(picked(made, request(500), now_s=20.0), "a")
    prefill_s = (3.5 + 0.1 * 8 + 2.3e-4 * 4_000 + sqrt(24**2 + 250**2) + 8.6e-6 * 500 * 250) / 1e3
    growth_s = 0.5 * 128 * 8 * (step_s(9, 4_500) - step_s(8, 4_000))
    assert found["prefill"] == pytest.approx(2.0 * prefill_s)
    assert found["others"] == pytest.approx(0.5 * (8 / (1 + 8 / 4) * prefill_s + growth_s))


def test_each_request_without_a_first_token_is_delayed_by_a_prefill_and_decodes_less_and_less() -> None:
    made = picker(cell_view("a"))
    for number in range(4):
        made.first_token(picked(made, request(500), now_s=1.0 + number).decision_id, 1.31 + number)
    before = terms(picked(made, request(500), now_s=20.0), "a")["others"]  # four decode
    after = terms(picked(made, request(500), now_s=20.0), "a")["others"]  # and one waits
    growth_s = 0.5 * 128 * (5 * (step_s(6, 2_500) - step_s(5, 2_000)) - 4 * (step_s(5, 2_500) - step_s(4, 2_000)))
    prefill_s = COLD_500_S + (0.1 * 4 + 2.3e-4 * 2_000) / 1e3
    assert after - before == pytest.approx(0.5 * (prefill_s + growth_s))


def test_others_requests_without_a_first_token_count_by_age() -> None:
    made = picker(cell_view("a"))
    made.observe_others({"a": OthersLoad(5, 1_500.0, 2, age_s=0.1)}, 1.0)
    fresh = exp(-0.5 / 0.5)
    delayed = 2 * fresh / (1 + 2 * fresh / 4) + 3 * fresh
    assert terms(picked(made, request(500), now_s=1.4), "a")["others"] == pytest.approx(0.5 * delayed * COLD_500_S)


def test_a_peer_that_reports_more_decodes_than_requests_makes_no_term_negative() -> None:
    made = picker(cell_view("a"))
    made.observe_others({"a": OthersLoad(0, 0.0, 3, age_s=0.0)}, 1.0)
    assert all(seconds >= 0.0 for seconds in terms(picked(made, request(500), now_s=1.0), "a").values())


def test_one_long_prompt_ahead_is_better_company_than_four_short_ones() -> None:
    made = picker(cell_view("a", site="many"), cell_view("b", site="one"))
    for _ in range(4):
        picked(made, request(250, allowed_sites=("many",)))
    picked(made, request(1_300, allowed_sites=("one",)))
    found = picked(made, request(500))
    assert terms(found, "a")["queue"] + 0.1 < terms(found, "b")["queue"]
    assert found.cell_id == "b"


def test_kv_spoken_for_beyond_the_start_is_penalised() -> None:
    made = picker(cell_view("a", kv=1_000))
    picked(made, request(800))
    found = terms(picked(made, request(10)), "a")
    assert found["kv"] == pytest.approx(2.0 * ((800 + 128) / 1_000 - 0.85) / 0.15)


def test_a_full_batch_is_penalised() -> None:
    made = picker(cell_view("a"), settings=PickSettings(cost=CostSettings(max_running=1)))
    picked(made, request(10))
    assert terms(picked(made, request(10)), "a")["kv"] == pytest.approx(1.0)


def test_cached_blocks_shorten_prefill_and_the_last_token_is_always_computed() -> None:
    index = FakeIndex()
    made = picker(cell_view("a"), index=index)
    prompt = blocks(1, 2, 3, 4)
    index.record("a", prompt[:2], 0.0)
    half = picked(made, request(512, blocks=prompt, block_tokens=128.0))
    assert half.matched_tokens == 256
    whole = picked(made, request(512, blocks=prompt, block_tokens=128.0))
    assert whole.matched_tokens == 511


def test_a_stalled_cell_is_dear_before_its_first_outcome() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 0.5})
    assert picked(made, request(500), now_s=1.0).cell_id == "a"
    found = picked(made, request(500), now_s=2.0)
    waited_s = 1.0 - 0.010 - 0.015
    queue_s, prefill_s = 0.3 * COLD_500_S, COLD_500_S
    factor = waited_s / COLD_500_S
    assert terms(found, "a")["stall"] == pytest.approx((factor - 1) * (queue_s + 2.0 * prefill_s))
    assert found.cell_id == "b"


def test_patience_is_at_least_its_floor() -> None:
    made = picker(cell_view("a"))
    picked(made, request(10), now_s=1.0)
    assert terms(picked(made, request(10), now_s=1.0 + 0.025 + 0.149), "a")["stall"] == 0
    assert terms(picked(made, request(10), now_s=1.0 + 0.025 + 0.151), "a")["stall"] > 0


def test_terms_sum_to_the_cost_under_load() -> None:
    made = picker(cell_view("a"), cell_view("b", hardware="h100"), cell_view("c", hardware="l40s"))
    for number in range(30):
        decision = picked(made, request(300 + 40 * number), now_s=1.0 + 0.05 * number)
        if number % 3:
            made.first_token(decision.decision_id, 1.3 + 0.05 * number)
    made.observe_others({"a": OthersLoad(3, 900.0, 2), "c": OthersLoad(1, 90.0, 7)}, 2.6)
    for candidate in picked(made, request(900), now_s=2.7).candidates:
        assert sum(seconds for _, seconds in candidate.terms) == pytest.approx(candidate.cost_s)


def test_other_gateways_count_by_age() -> None:
    made = picker(cell_view("a"))
    made.observe_others({"a": OthersLoad(1, 1_000.0, 0, age_s=0.1)}, 1.0)
    work_s = (1_000 * 0.5 + 3.5) / 1e3
    fresh = terms(picked(made, request(10), now_s=1.4), "a")["queue"]
    assert fresh == pytest.approx(work_s * exp(-0.5 / 0.5))
    stale = terms(picked(picker(cell_view("a")), request(10), now_s=9.0), "a")["queue"]
    assert stale == 0


def test_a_slow_cell_is_left_and_tried_again_after_a_silence() -> None:
    made = picker(cell_view("a", site="slow"), cell_view("b"), rtts_s={"a": 0.0, "b": 0.1})
    now_s = 1.0
    assert picked(made, request(500), now_s=now_s).cell_id == "a"
    for _ in range(6):
        now_s += 2.0
        decision = picked(made, request(500, allowed_sites=("slow",)), now_s=now_s)
        made.first_token(decision.decision_id, now_s + 0.015 + 4.0 * COLD_500_S)
        made.finished(decision.decision_id, outcome(decision), now_s + 1.9)
    slow = picked(made, request(500), now_s=now_s + 2.0)
    assert slow.cell_id == "b"
    assert of(slow, "a").slowness > 1.5
    later = picked(made, request(500), now_s=now_s + 300.0)
    assert 1.0 <= of(later, "a").slowness < 1.1


def test_a_little_slowness_is_noise() -> None:
    made = picker(cell_view("a"), rtts_s={"a": 0.0})
    for turn in range(50):
        decision = picked(made, request(500), now_s=10.0 * turn)
        made.first_token(decision.decision_id, 10.0 * turn + 0.015 + 1.1 * COLD_500_S)
        made.finished(decision.decision_id, outcome(decision), 10.0 * turn + 2.0)
    assert of(picked(made, request(500), now_s=500.0), "a").slowness == 1.0


def test_one_sample_follows_the_formula() -> None:
    made = picker(cell_view("a"), rtts_s={"a": 0.0})
    decision = picked(made, request(500), now_s=1.0)
    made.first_token(decision.decision_id, 1.0 + 0.015 + 6.0)
    ratio = min(2.0, log((6.0 + 0.1) / (COLD_500_S + 0.1)))
    expected = exp(0.2 * ratio - 0.15)
    assert of(picked(made, request(500), now_s=7.1), "a").slowness == pytest.approx(expected)


def test_static_rates_when_learning_is_off() -> None:
    off = PickSettings(learning=LearningSettings(alpha=0.0, base_alpha=0.0))
    made = picker(cell_view("a"), settings=off)
    decision = picked(made, request(500))
    made.first_token(decision.decision_id, 30.0)
    assert of(picked(made, request(500), now_s=30.0), "a").slowness == 1.0


def test_a_hot_prefix_gets_a_second_home_and_a_session_does_not() -> None:
    index = FakeIndex()
    made = picker(cell_view("a"), cell_view("b"), index=index)
    shared = blocks(*range(16))
    index.record("a", shared, 0.0)
    cold_s = (3.5 + sqrt(24**2 + 1_024**2) + 8.6e-6 * 2_048 * 1_024) / 1e3

    def prefill_on_b() -> float:
        ask = request(2_048, blocks=shared, block_tokens=128.0)
        return terms(picked(made, ask), "b")["prefill"]

    index.counts = {shared[-1]: 1.0}
    assert prefill_on_b() == pytest.approx(2.0 * cold_s)
    index.held.pop("b", None)
    index.counts = {shared[-1]: 19.0}
    warm_s = (3.5 + sqrt(24**2 + 0.5**2) + 8.6e-6 * 1 * 2_047.5) / 1e3
    per_home = 20 / 2
    assert prefill_on_b() == pytest.approx(2.0 * (cold_s - (cold_s - warm_s) * (1 - 1 / per_home)), rel=0.02)


def test_unknown_round_trips_are_as_long_as_the_known_ones() -> None:
    made = picker(cell_view("a"), cell_view("b"), cell_view("c"))
    made.observe_view(grid(cell_view("a"), cell_view("b"), cell_view("c"), cell_view("new")), 1.0)
    assert terms(picked(made, request(10)), "new")["network"] == pytest.approx(0.010)


def test_the_reason_names_what_matters() -> None:
    made = picker(cell_view("far"), cell_view("near"), rtts_s={"far": 0.3})
    reason = picked(made, request(500)).reason
    assert reason.startswith("near: ")
    assert "prefill" in reason
    assert "far +290 ms" in reason
    alone = picker(cell_view("a"), cell_view("b", state=CellState.DRAINING))
    assert picked(alone, request(5)).reason == "a: the only cell that may serve it"
