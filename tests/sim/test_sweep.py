"""The command's inside: written policies, the live picker in virtual time, and the file of figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.sim.test_grid import short
from tradewind.cli.main import app
from tradewind.core.pick.picker import Picker
from tradewind.lab.simulated.policies import UnknownPolicyError, maker
from tradewind.lab.simulated.sets import SETS, expanded
from tradewind.lab.simulated.sweep import sweep, write_rows
from tradewind.sim.grid import SimGrid
from tradewind.sim.invariants import run_checked
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PicksPolicy

POLICIES = ("cost", "gorgo:.5/.1;index=unbounded", "least_request:N", "cache_aware", "session_affinity", "skywalker")


@pytest.mark.parametrize("written", POLICIES)
def test_the_live_picker_serves_all_and_keeps_nothing(written: str) -> None:
    made: list[Policy] = []

    def make(scenario: Scenario) -> Policy:
        made.append(maker(written)(scenario))
        return made[-1]

    result = run_checked(SimGrid(short("S2-multiturn", for_s=15.0), make, seed=4), replay="-")
    assert all(record.ok for record in result.records)
    (policy,) = made
    picker = policy.picker if isinstance(policy, PicksPolicy) else policy
    assert isinstance(picker, Picker)
    assert picker.outstanding() == {}
    assert picker.ledger.released == len(result.records)
    assert picker.ledger.unknown == picker.ledger.expired == 0


def test_a_bounded_index_believes_what_a_lone_gateway_can_know() -> None:
    result = SimGrid(short("S1-ts1", for_s=60.0), maker("cost"), seed=4).run()
    predicted = sum(result.predicted_tokens)
    served = sum(record.usage_cached_tokens or 0 for record in result.records)
    assert served > 0
    assert predicted == pytest.approx(served, rel=0.05)


def test_two_gateways_learn_of_each_other() -> None:
    scenario = short("S5b-1s")
    alone = replace(scenario, delays=replace(scenario.delays, sync_s=None))
    heard, deaf = (SimGrid(of, maker("cost"), seed=4).run().trace_hash for of in (scenario, alone))
    assert heard != deaf


@pytest.mark.parametrize(
    ("written", "told"),
    [("nobody", "unknown pick policy"), ("cost;no_such=1", "no_such"), ("cost;tie_s=soon", "tie_s")],
)
def test_a_wrong_form_is_refused_at_once(written: str, told: str) -> None:
    with pytest.raises(UnknownPolicyError, match=told):
        maker(written)


def test_constants_change_decisions() -> None:
    scenario = short("S2-D")
    hashes = {SimGrid(scenario, maker(form), seed=1).run().trace_hash for form in ("cost", "cost;prefill_weight=9")}
    assert len(hashes) == 2


def test_sets_stand_for_their_members_and_all_of_them_are_policies() -> None:
    assert expanded("ties, round_robin,cost") == [*SETS["ties"], "round_robin"]
    for policies in SETS.values():
        for written in policies:
            maker(written)


def test_sweep_writes_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    rows, failures = sweep(
        [short("S2-D", for_s=8.0)], ["cost", "round_robin"], seeds=(1, 2), check=True, say=said.append
    )
    assert not failures
    assert [(row.policy, row.seed) for row in rows] == [
        ("cost", 1),
        ("round_robin", 1),
        ("cost", 2),
        ("round_robin", 2),
    ]
    assert len(said) == 4
    assert "against the best other by e2e_p95_s" in capsys.readouterr().out
    write_rows(tmp_path / "rows.json", rows)
    assert len(json.loads((tmp_path / "rows.json").read_text())) == 4


def test_the_command_lists_and_explains() -> None:
    listed = CliRunner().invoke(app, ["sim", "list"])
    assert listed.exit_code == 0
    assert "S2-multiturn-D" in listed.stdout
    wrong = CliRunner().invoke(app, ["sim", "compare", "--scenario", "S9"])
    assert wrong.exit_code == 2
    assert "unknown scenario 'S9'" in wrong.stderr
