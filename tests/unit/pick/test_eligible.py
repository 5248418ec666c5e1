"""Who may serve a request, and what the client is told when nobody may."""

import pytest

from tests.unit.pick.fakes import FakeIndex, cell_view, grid, outcome, picked, picker, refused, request
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.model.cell import CellState
from tradewind.model.decision import RefusalKind
from tradewind.model.routing import WeightRow


def test_only_ready_cells_that_serve_the_model() -> None:
    made = picker(
        cell_view("a", state=CellState.LOADING),
        cell_view("b", state=CellState.FAULTED),
        cell_view("c", models=("other",)),
        cell_view("d", silent=True),
    )
    found = picked(made, request())
    assert found.cell_id == "d", "no heartbeat is no death"
    assert found.alternatives == ()
    assert found.excluded == (("a", "loading"), ("b", "faulted"))


def test_an_unknown_model_is_not_a_known_one_without_cells() -> None:
    made = picker(cell_view("a", state=CellState.FAULTED), settings=PickSettings(known_models=("later",)))
    assert refused(made, request(model="nope")).kind is RefusalKind.UNKNOWN_MODEL
    assert refused(made, request()).kind is RefusalKind.NO_CELL
    assert refused(made, request(model="later")).kind is RefusalKind.NO_CELL
    assert made.counters.refusals == {RefusalKind.UNKNOWN_MODEL: 1, RefusalKind.NO_CELL: 2}


def test_before_the_first_view_nothing_is_unknown() -> None:
    made = Picker(PickSettings(), index=FakeIndex())
    assert refused(made, request()).kind is RefusalKind.NO_CELL


def test_a_request_that_names_no_model_goes_anywhere() -> None:
    assert picked(picker(cell_view("a")), request(model="")).cell_id == "a"


def test_engines_refuse_prompt_plus_max_tokens_over_the_limit() -> None:
    made = picker(cell_view("a", limit=1_024), cell_view("b", limit=8_192), rtts_s={"b": 2.0})
    assert picked(made, request(896)).cell_id == "a"
    assert picked(made, request(897)).cell_id == "b"
    assert picked(made, request(1_023, max_output_tokens=None)).cell_id == "a"
    assert picked(made, request(1_024, max_output_tokens=None)).cell_id == "b"
    too_long = refused(made, request(9_000))
    assert too_long.kind is RefusalKind.TOO_LONG
    assert "9128" in too_long.message


def test_an_estimate_near_the_limit_prefers_room_and_never_refuses_by_itself() -> None:
    made = picker(cell_view("a", limit=1_024), cell_view("b", limit=2_048), rtts_s={"b": 2.0})
    assert picked(made, request(850, exact_tokens=False)).cell_id == "b"
    assert picked(made, request(2_200, max_output_tokens=16, exact_tokens=False)).cell_id == "b"
    assert refused(made, request(2_500, max_output_tokens=16, exact_tokens=False)).kind is RefusalKind.TOO_LONG


def test_a_long_prompt_waits_for_the_cell_that_takes_it() -> None:
    made = picker(cell_view("a", limit=1_024), cell_view("b", limit=8_192, state=CellState.LOADING))
    assert refused(made, request(3_000)).kind is RefusalKind.NO_CELL


def test_a_limit_that_nobody_stated_rules_out_nobody() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    assert picked(made, request(100_000)).cell_id == "a"


def test_residency_fails_closed_and_names_the_policy() -> None:
    eu1, eu2, us = cell_view("eu1", site="eu"), cell_view("eu2", site="eu"), cell_view("us", site="us")
    made = picker(eu1, eu2, us, rtts_s={"eu1": 1.0, "eu2": 1.0})
    found = picked(made, request(allowed_sites=("eu",)))
    assert found.cell_id.startswith("eu")
    assert "us" not in found.alternatives
    down = grid(
        cell_view("eu1", site="eu", state=CellState.FAULTED),
        cell_view("eu2", site="eu", state=CellState.LOADING),
        cell_view("us", site="us"),
    )
    made.observe_view(down, 2.0)
    told = refused(made, request(allowed_sites=("eu",)), now_s=2.0)
    assert told.kind is RefusalKind.NO_CELL
    assert "eu" in told.message
    assert "us" not in told.message.split(), "no other site is named"
    assert refused(made, request(allowed_sites=())).kind is RefusalKind.NO_CELL
    assert picked(made, request(), now_s=2.0).cell_id == "us"


def test_residency_holds_while_the_whole_site_cools_down() -> None:
    made = picker(cell_view("eu", site="eu"), cell_view("us", site="us"))
    decision = picked(made, request(allowed_sites=("eu",)))
    made.finished(decision.decision_id, outcome(decision, status=429, retry_after_s=7.0), 1.0)
    told = refused(made, request(allowed_sites=("eu",)), now_s=2.0)
    assert told.kind is RefusalKind.BUSY
    assert told.retry_after_s == pytest.approx(6.0)


@pytest.mark.parametrize("hint", ["10.0.0.9:8001", "10.0.0.9"])
def test_a_subset_hint_is_an_address_or_a_host(hint: str) -> None:
    made = picker(cell_view("a"), cell_view("b", address="10.0.0.9:8001"), rtts_s={"b": 1.0})
    assert picked(made, request(allowed_addresses=(hint,))).cell_id == "b"
    assert refused(made, request(allowed_addresses=("10.0.0.99",))).kind is RefusalKind.NO_CELL


def test_a_subset_hint_is_about_the_address_that_this_gateway_uses() -> None:
    made = picker(cell_view("a", address="10.0.0.9:8001"))
    made.set_reach({"a": "127.0.0.1:9000"})
    assert picked(made, request(allowed_addresses=("127.0.0.1:9000",))).address == "127.0.0.1:9000"
    assert refused(made, request(allowed_addresses=("10.0.0.9:8001",))).kind is RefusalKind.NO_CELL


def test_modalities_by_label_and_only_where_stated() -> None:
    made = picker(
        cell_view("a", labels=(("modalities", "audio"),)), cell_view("b", labels=(("modalities", "image, audio"),))
    )
    assert picked(made, request(modalities=("image",))).cell_id == "b"
    assert refused(made, request(modalities=("video",))).kind is RefusalKind.UNSUPPORTED
    assert picked(picker(cell_view("a")), request(modalities=("video",))).cell_id == "a"


def test_a_cool_down_ends_at_the_later_deadline() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    first, second = picked(made, request()), picked(made, request())
    made.finished(first.decision_id, outcome(first, cell_id="a", status=429, retry_after_s=3.0), 1.0)
    made.finished(second.decision_id, outcome(second, cell_id="a", status=503), 1.25)
    assert made.cooling(1.25) == {"a": pytest.approx(2.75)}
    assert picked(made, request(), now_s=3.9).cell_id == "b"
    assert picked(made, request(), now_s=4.1).cell_id == "a"


def test_all_cooling_down_is_busy_with_the_shortest_wait() -> None:
    made = picker(cell_view("a"), cell_view("b"))
    for cell_id, wait_s in (("a", 9.0), ("b", 4.0)):
        decision = picked(made, request())
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=429, retry_after_s=wait_s), 1.0)
    told = refused(made, request(), now_s=1.5)
    assert told.kind is RefusalKind.BUSY
    assert told.retry_after_s == pytest.approx(3.5)


def test_a_failed_attempt_cools_the_cell_that_refused_it() -> None:
    made = picker(cell_view("a"), cell_view("b"))
    decision = picked(made, request())
    retried = outcome(
        decision, cell_id="b", attempts=2, attempted_cells=("a", "b"), attempt_failures=("503",), ttft_s=0.2
    )
    made.finished(decision.decision_id, retried, 1.0)
    assert set(made.cooling(1.1)) == {"a"}


def test_a_cell_that_could_not_be_reached_is_avoided_while_there_are_others() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    decision = picked(made, request())
    made.finished(decision.decision_id, outcome(decision, status=503, flags="UF"), 1.0)
    assert picked(made, request(), now_s=1.5).cell_id == "b"
    assert picked(made, request(), now_s=2.1).cell_id == "a"
    alone = picker(cell_view("a"))
    decision = picked(alone, request())
    alone.finished(decision.decision_id, outcome(decision, status=503, flags="UF"), 1.0)
    assert picked(alone, request(), now_s=1.5).cell_id == "a"


def test_drained_cells_are_out_unless_all_are() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    made.observe_pressure([WeightRow(cell_id="a", weight=1, drained=True, reason="alert: heat")], 1.0)
    found = picked(made, request())
    assert found.cell_id == "b"
    assert found.excluded == (("a", "alert: heat"),)
    rows = [WeightRow(cell_id=cell_id, weight=1, drained=True) for cell_id in ("a", "b")]
    made.observe_pressure(rows, 1.0)
    assert picked(made, request()).cell_id == "a", "the observer is blind, not the fleet dead"


def test_a_cell_that_the_proxy_cannot_reach_is_out_even_alone() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    made.set_unroutable(frozenset({"a"}))
    found = picked(made, request())
    assert (found.cell_id, found.alternatives, found.excluded) == ("b", (), (("a", "its address is not usable"),))
    made.observe_pressure([WeightRow(cell_id="b", weight=1, drained=True)], 1.0)
    assert picked(made, request()).cell_id == "b", "drained is doubted, no address is not"
    made.set_unroutable(frozenset({"a", "b", "later"}))
    assert refused(made, request()).kind is RefusalKind.NO_CELL
    made.observe_view(grid(cell_view("a"), cell_view("later")), 2.0)
    assert refused(made, request()).kind is RefusalKind.NO_CELL, "known to be so before it came"
    made.set_unroutable(frozenset())
    assert picked(made, request()).cell_id == "a"


def test_a_cell_drained_for_its_limit_alone_serves_what_fits() -> None:
    made = picker(cell_view("a", limit=1_024), cell_view("b", limit=8_192), rtts_s={"b": 2.0})
    made.observe_pressure([WeightRow(cell_id="a", weight=1, drained=True, short=True, reason="short")], 1.0)
    assert picked(made, request(100)).cell_id == "a"
    assert picked(made, request(2_000)).cell_id == "b"


def held(*refuses: tuple[str, int]) -> WeightRow:
    return WeightRow(cell_id="a", weight=1, drained=True, refuses=refuses, reason="verdict: long ones")


def test_a_refusal_verdict_keeps_away_what_it_is_about_and_nothing_else() -> None:
    models = ("m", "n")
    made = picker(cell_view("a", models=models), cell_view("b", models=models), rtts_s={"b": 2.0})
    made.observe_pressure([held(("m", 8_000))], 1.0)
    assert picked(made, request(body_bytes=7_999)).cell_id == "a"
    found = picked(made, request(body_bytes=8_000))
    assert (found.cell_id, found.excluded) == ("b", (("a", "refuses the like"),))
    assert picked(made, request(body_bytes=9_000, model="n")).cell_id == "a"
    assert picked(made, request(body_bytes=9_000, allowed_addresses=("10.0.0.98",))).cell_id == "a", "nobody else"
    made.observe_pressure([WeightRow(cell_id="a", weight=1)], 2.0)
    assert picked(made, request(body_bytes=9_000)).cell_id == "a"


def test_a_learned_limit_stands_for_the_verdict_on_the_same_refusals() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    for cell_id, tokens, status in (("a", 2_000, 200), ("b", 4_000, 200), ("a", 3_000, 400)):
        decision = picked(made, request(tokens))
        made.finished(decision.decision_id, outcome(decision, cell_id=cell_id, status=status), 2.0)
    made.observe_pressure([held(("m", 8_000))], 2.0)
    assert picked(made, request(1_000, body_bytes=40_000), now_s=3.0).cell_id == "a", "few tokens in many bytes"
    assert picked(made, request(3_000, body_bytes=3_000), now_s=3.0).cell_id == "b"
    decision = picked(made, request(1_000, body_bytes=40_000), now_s=3.0)
    made.finished(decision.decision_id, outcome(decision, cell_id="a", status=400), 4.0)
    assert picked(made, request(1_000, body_bytes=40_000), now_s=5.0).cell_id == "b", "not by its length alone"


def test_what_is_excluded_is_bounded() -> None:
    views = [cell_view(f"c{number:03}", state=CellState.FAULTED) for number in range(100)]
    assert len(picked(picker(cell_view("z"), *views), request()).excluded) == 16
