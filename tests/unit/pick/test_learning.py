"""Slow calibration, output lengths, served against predicted hits."""

from math import sqrt

import pytest

from tests.unit.pick.fakes import FakeIndex, blocks, cell_view, outcome, picked, picker, request
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import LearningSettings, PickSettings

COLD_500_S = (3.5 + sqrt(24**2 + (0.5 * 500) ** 2) + 8.6e-6 * 500 * 250) / 1e3
STEP_S = (3.5 + sqrt(24**2 + 0.5**2) + 0.1) / 1e3


def serve(made: Picker, site: str, *, prefill: float, decode: float, turns: int, start_s: float = 0.0) -> None:
    """Requests one after the other on the cells of a site, slower than the table by these factors."""
    for turn in range(turns):
        now_s = start_s + 60.0 * turn
        decision = picked(made, request(500, allowed_sites=(site,)), now_s=now_s)
        ttft_s = 0.010 + 0.015 + prefill * COLD_500_S
        made.first_token(decision.decision_id, now_s + ttft_s)
        end_s = ttft_s + 127 * decode * STEP_S
        ended = outcome(decision, ttft_s=ttft_s, duration_s=end_s, completion_tokens=128)
        made.finished(decision.decision_id, ended, now_s + end_s)


def test_a_class_that_the_table_has_wrong_is_corrected_and_reported() -> None:
    made = picker(cell_view("a", site="s"))
    serve(made, "s", prefill=2.0, decode=1.8, turns=200)
    (found,) = made.teacher.calibration()
    assert found.hardware == "rtx-pro-6000"
    assert found.prefill == pytest.approx(2.0, rel=0.1)
    assert found.decode == pytest.approx(1.8, rel=0.1)
    assert found.alert
    decision = picked(made, request(500), now_s=1e5)
    assert decision.expected_ttft_s == pytest.approx(0.025 + 2.0 * COLD_500_S, rel=0.1)


def test_a_class_that_is_nearly_right_is_left_alone() -> None:
    made = picker(cell_view("a", site="s"))
    serve(made, "s", prefill=1.15, decode=0.9, turns=100)
    rates = made.fleet.cells()[0].rates
    assert (rates.prefill_factor, rates.decode_factor) == (1.0, 1.0)
    assert not made.teacher.calibration()[0].alert


def test_one_slow_cell_does_not_make_its_class_slow() -> None:
    made = picker(*(cell_view(f"c{number}", site=f"s{number}") for number in range(3)))
    for number in range(3):
        serve(made, f"s{number}", prefill=3.0 if number == 0 else 1.0, decode=1.0, turns=60, start_s=1e4 * number)
    assert made.fleet.cells()[0].rates.prefill_factor == 1.0


def test_requests_that_queued_teach_nothing_about_the_class() -> None:
    made = picker(cell_view("a", site="s"))
    for turn in range(100):
        now_s = 100.0 * turn
        queued = [picked(made, request(500), now_s=now_s) for _ in range(4)]
        for place, decision in enumerate(queued):
            made.first_token(decision.decision_id, now_s + 0.025 + (place + 1) * 3.0)
        for decision in queued:
            made.finished(decision.decision_id, outcome(decision), now_s + 30.0)
    samples = made.fleet.cells()[0].samples.prefill.samples
    assert samples == 200, "the first has no queue, the second no more than its own prefill"


def test_calibration_can_be_switched_off_and_still_reports() -> None:
    made = picker(cell_view("a", site="s"), settings=PickSettings(learning=LearningSettings(calibrate=False)))
    serve(made, "s", prefill=3.0, decode=1.0, turns=100)
    assert made.fleet.cells()[0].rates.prefill_factor == 1.0
    assert made.teacher.calibration()[0].alert


def test_the_usual_output_is_learned_per_model_and_capped_by_what_is_allowed() -> None:
    made = picker(cell_view("a"))
    for turn in range(300):
        decision = picked(made, request(10, max_output_tokens=None), now_s=100.0 * turn)
        made.finished(decision.decision_id, outcome(decision, completion_tokens=400), 100.0 * turn + 20)
    assert made.teacher.output_tokens("m") == pytest.approx(400, rel=0.01)
    assert made.teacher.output_tokens("other") == 128

    def decode_s(allowed: int | None) -> float:
        found = picked(made, request(10, max_output_tokens=allowed), now_s=1e6)
        made.finished(found.decision_id, outcome(found), 1e6)
        return dict(found.candidates[0].terms)["decode"]

    assert decode_s(None) == pytest.approx(decode_s(1_000))
    assert decode_s(40) == pytest.approx(decode_s(None) / 10, rel=0.01)


def test_predicted_and_served_hits_are_summed_where_the_engine_tells() -> None:
    index = FakeIndex()
    made = picker(cell_view("a"), index=index)
    prompt = blocks(1, 2, 3, 4)
    for cached in (None, 384, 256):
        decision = picked(made, request(512, blocks=prompt, block_tokens=128.0))
        made.finished(decision.decision_id, outcome(decision, cached_tokens=cached), 2.0)
    (cell,) = made.fleet.cells()
    assert (cell.predicted_hit_tokens, cell.served_hit_tokens) == (2 * 511, 640)


def test_a_retried_request_teaches_nothing_about_speed() -> None:
    made = picker(cell_view("a"))
    decision = picked(made, request(500))
    late = outcome(decision, attempts=2, attempted_cells=("x", "a"), attempt_failures=("UF",), ttft_s=9.0)
    made.finished(decision.decision_id, late, 11.0)
    assert made.fleet.cells()[0].work.slowness.factor == 1.0


def test_a_first_token_known_from_the_outcome_alone_teaches() -> None:
    made = picker(cell_view("a"))
    decision = picked(made, request(500))
    made.finished(decision.decision_id, outcome(decision, ttft_s=9.0, duration_s=10.0), 11.0)
    assert made.fleet.cells()[0].work.slowness.factor > 1.0
    assert made.outstanding() == {}
