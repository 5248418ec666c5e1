"""What people are told of the rates that a picker has learned."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.gateway.test_worker import Rig, cell
from tests.unit.pick.fakes import cell_view, outcome, picked, picker, request
from tradewind.core.pick.learned import LearnedRate, learned_rates
from tradewind.core.pick.picker import Picker
from tradewind.gateway.outcomes import OutcomeBook
from tradewind.gateway.reports import Reports
from tradewind.lab.report_status import status_tables


def slow_answers(made: Picker, count: int, *, ttft_s: float) -> None:
    for number in range(count):
        decision = picked(made, request(4_000), now_s=10.0 * number)
        made.finished(decision.decision_id, outcome(decision, ttft_s=ttft_s), 10.0 * number + 5.0)


def test_a_cell_goes_by_its_class_until_first_tokens_teach_it() -> None:
    made = picker(cell_view("a"), cell_view("b", hardware="h200"))
    before = learned_rates(made.fleet.cells())
    assert [rate.first_tokens for rate in before.values()] == [0, 0]
    assert before["b"].prefill_tokens_per_s > before["a"].prefill_tokens_per_s > 500.0
    alone = picker(cell_view("a"))
    slow_answers(alone, 12, ttft_s=4.0)  # the class takes about 2 s
    after = learned_rates(alone.fleet.cells())["a"]
    assert after.first_tokens == 12
    assert after.prefill_tokens_per_s < 0.7 * before["a"].prefill_tokens_per_s


def test_a_report_tells_the_rates_of_cells_that_a_picker_knows() -> None:
    def paths(rates: dict[str, LearnedRate]) -> list[tuple[float | None, float | None, int | None]]:
        report = Reports("gw", "east", lambda: 0.0).make(
            "c", cells=["a", "b"], paths={}, book=OutcomeBook(), outstanding={}, weights={}, rows=(), rates=rates,
            samples=(),
        )  # fmt: skip
        return [(path.slowness_ratio, path.prefill_tokens_per_s, path.first_tokens) for path in report.paths]

    assert paths({"a": LearnedRate(2.0, 900.0, 7)}) == [(2.0, 900.0, 7), (None, None, None)]
    assert paths({}) == [(None, None, None)] * 2, "a gateway of weights learns no rates"


def test_status_shows_what_each_gateway_goes_by_and_not_what_nobody_has_seen() -> None:
    def gateway(name: str, paths: list[dict[str, object]]) -> dict[str, object]:
        return {"gateway_id": name, "weights": {}, "paths": paths}

    learned: dict[str, object] = {
        "cell_id": "a",
        "slowness_ratio": 2.034,
        "prefill_tokens_per_s": 912.3,
        "first_tokens": 7,
    }
    fresh: dict[str, object] = {
        "cell_id": "a",
        "slowness_ratio": 1.0,
        "prefill_tokens_per_s": 1888.0,
        "first_tokens": 0,
    }
    weights: dict[str, object] = {
        "cell_id": "a",
        "slowness_ratio": None,
        "prefill_tokens_per_s": None,
        "first_tokens": None,
    }
    seen: dict[str, object] = {
        "control": "http://127.0.0.1:1",
        "grid": {"cells": [{"cell_id": "a", "site": "east", "state": "ready"}]},
        "gateways": [gateway("g1", [learned]), gateway("g2", [fresh]), gateway("g3", [weights])],
    }
    console = Console(width=200)
    with console.capture() as capture:
        for table in status_tables(seen):
            console.print(table)
    shown = capture.get()
    assert "2.03 / ? / -" in shown
    assert "912 / ? / -" in shown
    assert "1888" not in shown


@pytest.mark.parametrize("routing", ["pick", "weights"])
def test_a_worker_that_picks_reports_its_rates(tmp_path: Path, routing: str) -> None:
    rig = Rig(tmp_path, routing=routing)
    rig.show(cell("x", 1000))
    rig.tick()
    (path,) = rig.worker.report("a").paths
    assert (path.first_tokens, path.slowness_ratio) == ((0, 1.0) if routing == "pick" else (None, None))
    assert (path.prefill_tokens_per_s is not None) is (routing == "pick")


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_rate_follows_the_correction_of_the_class(factor: float) -> None:
    made = picker(cell_view("a"))
    (only,) = made.fleet.cells()
    before = learned_rates([only])["a"].prefill_tokens_per_s
    only.rates.prefill_factor = factor
    assert learned_rates([only])["a"].prefill_tokens_per_s == pytest.approx(before / factor)
