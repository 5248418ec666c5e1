"""What a kill may cost, with the first-token gate and without: judged over records."""

import dataclasses

from msgspec.structs import replace

from tradewind.lab.checks import Check, all_hold, without_bounds
from tradewind.lab.scenarios.failover import FailoverOptions, Kill, failover_checks, failover_plan
from tradewind.lab.watch import gate_mode
from tradewind.measure.record import Failure, Record

OPTIONS = FailoverOptions(cell="a", rate_per_s=10, for_s=4, kill_at_s=2, reroute_p99_s=0.6)
KILL = Kill(at_s=2.0, out_s=2.1)


def served(sent_s: float, *, attempted: tuple[str, ...] = ("b",), attempt_s: float | None = None) -> Record:
    return Record(
        request_id=f"r-{sent_s}", intended_s=sent_s, sent_s=sent_s, content_s=sent_s + 0.3, end_s=sent_s + 2,
        status=200, cell=attempted[-1], attempts=len(attempted), attempted=attempted, attempt_s=attempt_s or sent_s,
    )  # fmt: skip


def ended_with_it(sent_s: float, *, content_s: float | None) -> Record:
    record = replace(served(sent_s, attempted=("a",)), content_s=content_s, end_s=2.05)
    return replace(record, failure=Failure.HEADERS_ONLY if content_s is None else Failure.BYTES_DELIVERED)


def checks_of(records: list[Record], *, gate: str) -> dict[str, Check]:
    checks = failover_checks(records, KILL, OPTIONS, name="x", gate=gate)
    return {check.name.removeprefix("x: "): check for check in checks}


WAITED, CUT = ended_with_it(1.9, content_s=None), ended_with_it(1.0, content_s=1.4)
MADE_GOOD = served(1.8, attempted=("a", "b"), attempt_s=2.1)


def test_with_the_gate_nothing_without_a_token_may_end_with_the_engine() -> None:
    seen = checks_of([served(0.5), MADE_GOOD, CUT], gate="wasm")
    assert all_hold(seen.values())
    assert seen["cut after tokens"].value == 1
    assert "1 retried that it had when it died" in seen["lost before a token"].note
    seen = checks_of([served(0.5), MADE_GOOD, CUT, WAITED], gate="wasm")
    failed = [name for name, check in seen.items() if check.holds is False]
    assert failed == ["success of all that had no token of it", "lost before a token"]


def test_without_the_gate_what_waited_is_counted_and_excused() -> None:
    seen = checks_of([served(0.5), served(2.5, attempted=("a", "b")), CUT, WAITED], gate="none")
    assert all_hold(seen.values())
    assert (seen["lost before a token"].value, seen["lost before a token"].bound) == (1, "")
    assert seen["success of all not in flight on it"].value == 1.0


def test_reroute_counts_from_the_death_of_the_engine_that_had_the_request() -> None:
    seen = checks_of([MADE_GOOD], gate="wasm")
    assert abs((seen["reroute p99"].value or 0) - 0.1) < 1e-9
    seen = checks_of([served(2.5, attempted=("a", "b"), attempt_s=2.7)], gate="wasm")
    assert abs((seen["reroute p99"].value or 0) - 0.2) < 1e-9
    assert checks_of([WAITED], gate="wasm")["reroute p99"].holds is False


def test_the_burst_comes_just_before_the_kill_with_ids_of_its_own() -> None:
    steady = failover_plan(OPTIONS, prefix="p")
    plan = failover_plan(dataclasses.replace(OPTIONS, burst_requests=5), prefix="p")
    burst = plan[len(steady) :]
    assert plan[: len(steady)] == steady
    assert [(item.request_id, item.at_s, item.prompt_tokens) for item in burst] == [
        (f"p-burst-{number}", 1.7, 1_000) for number in range(5)
    ]


def test_the_gate_of_a_status_document_and_figures_without_bounds() -> None:
    assert gate_mode({"gate": {"mode": "wasm"}}) == "wasm"
    assert gate_mode({}) == ""
    bare = without_bounds(checks_of([WAITED], gate="wasm").values())
    assert {(check.bound, check.holds) for check in bare} == {("", None)}
