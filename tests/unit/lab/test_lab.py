"""The lab's pure parts: what is read of a grid, what is joined, what is judged."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from tradewind.config.schema import AgentConfig, GridConfig
from tradewind.lab.checks import all_hold, at_least, at_most, checks_table, reported, write_checks
from tradewind.lab.demo import BURST_LEAD_S, BURST_REQUESTS, DemoOptions, demo_plan
from tradewind.lab.demo_faults import KILLED, SMALL_TOKENS, demo_faults
from tradewind.lab.grids import emulated_grid
from tradewind.lab.promises.grid import FIELD_CASES
from tradewind.lab.reload import changed_processes
from tradewind.lab.scenarios.shares import WEIGHTS, worst_excess
from tradewind.lab.truth import join_truth, read_request_log
from tradewind.lab.verify import ITEMS
from tradewind.lab.watch import cells_of
from tradewind.measure.record import Record


def test_an_unknown_figure_does_not_hold_its_bound() -> None:
    assert at_most("a", None, 1).holds is False
    assert at_least("a", None, 1).holds is False
    assert at_most("a", 1, 1).holds
    assert at_least("a", 0.99, 1).holds is False
    assert reported("a", None).holds is None
    assert all_hold([at_most("a", 1, 1), reported("b", None)])
    assert not all_hold([at_most("a", 2, 1)])


def test_checks_print_and_are_written(tmp_path: Path) -> None:
    rows = [at_most("a", 1, 1, unit="s"), reported("b", None)]
    console = Console(record=True, width=100)
    console.print(checks_table(rows, title="t"))
    assert "<= 1" in console.export_text()
    write_checks(tmp_path / "out" / "v.json", rows, facts={"commit": "x"})
    written = msgspec.json.decode((tmp_path / "out" / "v.json").read_bytes())
    assert [row["name"] for row in written["checks"]] == ["a", "b"]
    assert written["facts"] == {"commit": "x"}


def test_cells_of_a_status_document_keep_unknown_apart_from_zero() -> None:
    row = {"cell_id": "a", "site": "s", "state": "ready", "weight": 30, "rtt_s": None, "requests": 3, "failed": 1}
    terms = {"pressure": 0.5, "reason": "r", "flags": ["blind"], "signals": [["queue", None], ["kv", 0.1]]}
    cells = cells_of({"cells": [{**row, "terms": terms}, {"cell_id": "b", "weight": 10, "terms": None}, "nonsense"]})
    first, second = cells
    assert (first.share, second.share) == (0.75, 0.25)
    assert (first.pressure, first.rtt_s, first.flags) == (0.5, None, ("blind",))
    assert first.signals == (("queue", None), ("kv", 0.1))
    assert (second.pressure, second.state) == (None, "")
    assert cells_of({}) == []


def test_request_log_is_read_across_its_rotation_and_broken_lines(tmp_path: Path) -> None:
    log = tmp_path / "requests.ndjson"
    (tmp_path / "requests.ndjson.1").write_text('{"id":"a","cell":"x","at":"t"}\n')
    log.write_text('{"id":"b","cell":"y","attempts":2,"attempt_s":0.25}\n{"id":"c","ce')
    known = read_request_log(log)
    assert known.keys() == {"a", "b"}
    record = Record(request_id="b", intended_s=1.0, sent_s=1.5)
    joined = join_truth(record, known["b"])
    assert (joined.cell, joined.attempts, joined.attempt_s, joined.reroute_s) == ("y", 2, 1.75, 0.25)
    assert join_truth(record, None) is record
    assert read_request_log(tmp_path / "none") == {}


def test_reload_restarts_only_what_the_change_touches() -> None:
    grid = emulated_grid(sites=("a", "b"), cells_per_site=1)
    assert changed_processes(grid, grid) == []
    other_cell = replace(grid.cells[1], capacity=2.0)
    assert changed_processes(grid, replace(grid, cells=[grid.cells[0], other_cell])) == ["agent-agent"]
    two = [AgentConfig(id="one", cells=["a-0"]), AgentConfig(id="two", cells=["b-0"])]
    split = replace(grid, agents=two)
    assert changed_processes(split, replace(split, cells=[grid.cells[0], other_cell])) == ["agent-two"]
    slow = replace(grid.controls[0], heartbeat_ttl_s=2.0)
    assert changed_processes(grid, replace(grid, controls=[slow])) == ["control-control"]
    assert changed_processes(GridConfig(), GridConfig(models=["m"])) == []


@pytest.mark.parametrize("seed", [1, 2, 33])
def test_demo_plan_is_seeded_and_has_its_rate(seed: int) -> None:
    options = DemoOptions(seed=seed, duration_s=90)
    plan = demo_plan(options, prefix="x")
    assert plan == demo_plan(options, prefix="x")
    assert len(plan) == round(options.rate_per_s * 90) + BURST_REQUESTS
    assert max(item.at_s for item in plan) < 90
    assert len({item.request_id for item in plan}) == len(plan)
    kill = next(fault for fault in demo_faults(90, dark_cells=[]) if fault.target == KILLED)
    burst = [item for item in plan if item.kind == "burst"]
    assert {round(kill.at_s - item.at_s, 3) for item in burst} == {BURST_LEAD_S}
    assert all(item.prompt_tokens + item.output_tokens < SMALL_TOKENS for item in burst)


def test_demo_faults_lie_within_the_run() -> None:
    for fault in demo_faults(60.0, dark_cells=["west-0"]):
        assert 0 < fault.at_s < fault.until_s <= 60.0


def test_excess_over_a_share_is_found() -> None:
    even = [index for index, weight in enumerate(WEIGHTS) for _ in range(weight)]
    assert worst_excess(even * 3) == 0
    assert worst_excess([*even, 3]) == 1


def test_verify_covers_every_numbered_item_once() -> None:
    second, third = [f"2/{number}" for number in range(1, 11)], ["3/1", "3/2", "3/3", "3/4", "3/6"]
    assert [item.item for item in ITEMS] == second + third + [f"4/{number}" for number in range(1, 6)] + [
        f"5/{number}" for number in range(1, 9)
    ] + [f"6/{number}" for number in range(1, 8)]
    assert len(FIELD_CASES) == len(set(FIELD_CASES)) == 39
