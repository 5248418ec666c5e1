"""Faults add up on the engines and exporters that they concern, and wrong ones say what to write."""

import json
from pathlib import Path

import pytest

from tradewind.emulator.fault_specs import SPECS, FaultError, FaultRequest, Known, check, engine_state, exporter_state
from tradewind.emulator.faults import EngineFaults, PathFault
from tradewind.emulator.scenario import load_scenario, parse_scenario

KNOWN = Known(cells=("a1", "b1"), exporter_sites=("east",), sites=("east", "west"), publishers=("a1",))


def fault(**body: object) -> FaultRequest:
    return FaultRequest(**body)  # type: ignore[arg-type]  # as a request would bring it


def state(*requests: FaultRequest, cell: str = "a1", site: str = "east") -> EngineFaults:
    return engine_state([check(request, KNOWN) for request in requests], cell=cell, site=site)


def test_no_fault_is_healthy() -> None:
    assert state() == EngineFaults()
    assert state(fault(fault="hang", cell="b1")) == EngineFaults()


def test_slow_factors_multiply_on_their_terms() -> None:
    slow = state(
        fault(fault="slow", cell="a1", params={"factor": 2, "terms": ["b", "e"]}),
        fault(fault="slow", cell="a1", params={"factor": 3, "terms": ["b"]}),
    ).slow
    assert slow == {"b": 6.0, "e": 2.0}


def test_faults_of_all_kinds_stand_side_by_side() -> None:
    all_of_them = state(
        fault(fault="hang", cell="a1"),
        fault(fault="thermal", cell="a1", params={"tau_s": 2}),
        fault(fault="pcie", cell="a1"),
        fault(fault="max_model_len", cell="a1", params={"tokens": 1024, "advertise": False}),
        fault(fault="refuse", cell="a1", params={"status": 500}),
        fault(fault="metrics_broken", cell="a1", params={"mode": "html"}),
        fault(fault="drain", cell="a1", params={"timeout_s": 3}),
        fault(fault="kv_events_silent", cell="a1"),
    )
    assert all_of_them.hang
    assert all_of_them.kv_events_silent
    assert all_of_them.thermal is not None
    assert all_of_them.thermal.tau_s == 2
    assert all_of_them.pcie is not None
    assert (all_of_them.max_model_len, all_of_them.advertise_max_model_len) == (1024, False)
    assert all_of_them.refuse is not None
    assert all_of_them.refuse.status == 500
    assert all_of_them.metrics is not None
    assert all_of_them.metrics.mode == "html"
    assert all_of_them.shutdown_timeout_s == 3


@pytest.mark.parametrize("path", [["east", "west"], ["west", "east"]])
def test_a_path_fault_concerns_both_ends_whichever_way_it_is_written(path: list[str]) -> None:
    cut = fault(fault="partition", path=tuple(path))
    assert state(cut).paths == {"west": PathFault(cut=True, reset_after_s=15.0)}
    assert state(cut, cell="b1", site="west").paths == {"east": PathFault(cut=True, reset_after_s=15.0)}
    assert state(cut, cell="c1", site="south").paths == {}


def test_path_faults_merge() -> None:
    both = state(
        fault(fault="jitter", path=("east", "west"), params={"jitter_ms": 20}),
        fault(fault="partition", path=("east", "west")),
    )
    assert both.paths["west"] == PathFault(cut=True, reset_after_s=15.0, jitter_ms=20.0)


def test_exporter_states() -> None:
    uuids = {"a1": ("GPU-1",), "a2": ("GPU-2", "GPU-3")}
    known = Known(cells=("a1", "a2"), exporter_sites=("east",), sites=("east",))
    requests = (fault(fault="exporter_frozen", site="east"), fault(fault="exporter_dead", cell="a2"))
    shown = exporter_state([check(request, known) for request in requests], site="east", uuids_of=uuids)
    assert (shown.mode, shown.missing_gpus) == ("frozen", ("GPU-2", "GPU-3"))
    assert exporter_state([], site="east", uuids_of=uuids).mode == "ok"


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_example_is_right(name: str) -> None:
    known = Known(cells=("a1",), exporter_sites=("east",), sites=("east", "west"), publishers=("a1",))
    example = json.loads(SPECS[name].example)
    path = {"path": tuple(example.pop("path"))} if "path" in example else {}
    assert check(fault(**example, **path), known).name == name


def test_a_scenario_is_sorted_and_checked_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("- {at_s: 5, fault: clear}\n- {at_s: 1, fault: kill, cell: a1, for_s: 2}\n")
    assert [event.at_s for event in load_scenario(str(path), KNOWN).events] == [1, 5]
    assert load_scenario("", KNOWN).events == ()
    path.write_text("a: [")
    with pytest.raises(FaultError, match="not YAML"):
        load_scenario(str(path), KNOWN)
    with pytest.raises(FaultError, match="cannot read"):
        load_scenario(str(tmp_path / "none.yaml"), KNOWN)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"at_s": 1}, "must be a list"),
        ([{"fault": "hang", "cell": "a1"}], r"\[0\]: .*at_s"),
        ([{"at_s": -1, "fault": "hang", "cell": "a1"}], r"\[0\]: .*at_s"),
        ([{"at_s": 1, "fault": "hang", "cell": "a1", "when": 3}], "when"),
        ([{"at_s": 1, "fault": "hang", "cell": "q"}], r"\[0\]: cell: 'q'"),
        ([{"at_s": 1, "fault": "max_model_len", "cell": "a1"}], "tokens"),
        ([{"at_s": 1, "fault": "kv_events_silent", "cell": "b1"}], "'b1' publishes no KV events; write one of a1"),
    ],
)
def test_wrong_scenarios(document: object, says: str) -> None:
    with pytest.raises(FaultError, match=says):
        parse_scenario(document, KNOWN)
