"""A policy of one's own in simulated grids: by its file, in the place of a policy or of the whole picker."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.sim.test_grid import short
from tests.support.own_policies import policy_at
from tradewind.cli.main import app
from tradewind.core.pick.policies.own import OwnPolicyError
from tradewind.lab.simulated.policies import UnknownPolicyError, fingerprint, maker
from tradewind.lab.simulated.sweep import sweep
from tradewind.sim.grid import SimGrid
from tradewind.sim.invariants import run_checked

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = f"{ROOT}/examples/own_policy.py:NearAndIdle"
WHOLE = """from tests.sim.policies import InTurn


class Mine(InTurn):
    def __init__(self, scenario):
        super().__init__()
        assert scenario.cells

    def pick(self, request, *, now_s, rng):
        decision = super().pick(request, now_s=now_s, rng=rng)
        return {}
"""


def run_hash(written: str) -> str:
    """What a worker process is given: the written form."""
    return run_checked(SimGrid(short("S2-D", for_s=3.0), maker(written), seed=3), replay="-").trace_hash


def whole_at(folder: Path, returned: str) -> str:
    path = folder / "whole.py"
    path.write_text(WHOLE.format(returned))
    return f"{path}:Mine"


def test_the_example_fits_a_screen_and_serves_all() -> None:
    assert len((ROOT / "examples" / "own_policy.py").read_text().splitlines()) <= 32
    result = run_checked(SimGrid(short("S2-multiturn", for_s=15.0), maker(EXAMPLE), seed=4), replay="-")
    assert result.records
    assert all(record.ok for record in result.records)
    assert sum(result.predicted_tokens) > 0  # the prefix index works for it
    rtt_only = SimGrid(short("S2-multiturn", for_s=15.0), maker(f"{EXAMPLE}:5"), seed=4).run()
    assert rtt_only.trace_hash != result.trace_hash


def test_another_process_makes_the_same_decisions_from_the_written_form(tmp_path: Path) -> None:
    written = policy_at(tmp_path, "return ask.cells[ask.rng.randrange(len(ask.cells))]")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(run_hash, written).result() == run_hash(written)


def test_constants_of_the_picker_may_follow() -> None:
    maker(f"{EXAMPLE};index=unbounded;alpha=0")
    with pytest.raises(UnknownPolicyError, match="unknown constant 'gama'"):
        maker(f"{EXAMPLE};gama=1")


def test_a_fingerprint_follows_the_file_and_nothing_else(tmp_path: Path) -> None:
    first = fingerprint(policy_at(tmp_path, "return ask.cells[0]"))
    same = fingerprint(policy_at(tmp_path, "return ask.cells[0]") + ":opt;alpha=0.1")
    other = fingerprint(policy_at(tmp_path, "return ask.cells[-1]"))
    assert first == same != other
    assert fingerprint("cost;tie_s=0") == ""
    with pytest.raises(UnknownPolicyError, match="cannot be read"):
        fingerprint(f"{tmp_path}/none.py:Mine")


def test_a_whole_picker_of_ones_own_runs_and_is_held_to_the_grid(tmp_path: Path) -> None:
    scenario = short("S2-D", for_s=5.0)
    result = run_checked(SimGrid(scenario, maker(whole_at(tmp_path, "decision")), seed=3), replay="-")
    assert all(record.ok for record in result.records)
    for returned, told in (
        ("decision._replace(cell_id='mars-0')", "pick\\(\\) chose cell 'mars-0'; write a Decision for one of a-near-0"),
        ("None", "pick\\(\\) returned NoneType"),
    ):
        with pytest.raises(OwnPolicyError, match=told):
            SimGrid(scenario, maker(whole_at(tmp_path, returned)), seed=3).run()
    with pytest.raises(UnknownPolicyError, match="constants must go"):
        maker(whole_at(tmp_path, "decision") + ";alpha=1")


def test_half_a_picker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.py"
    path.write_text("class Mine:\n    def pick(self, request, *, now_s, rng): ...\n\n\nclass No: ...\n")
    with pytest.raises(UnknownPolicyError, match="has pick but not first_token"):
        maker(f"{path}:Mine")
    with pytest.raises(UnknownPolicyError, match="neither choose nor pick"):
        maker(f"{path}:No")


def test_a_policy_that_raises_fails_its_own_runs_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = policy_at(tmp_path, "if ask.now_s > 2.0: raise RuntimeError('out of wind')", "return ask.cells[0]")
    scenario = short("S2-D", for_s=5.0)
    rows, failures = sweep([scenario], [bad, "round_robin"], seeds=(1, 2), check=False, say=lambda _: None)
    assert [row.policy for row in rows] == ["round_robin"] * 2
    assert [failure.policy for failure in failures] == [bad] * 2
    assert 'mine.py", line 14, in choose' in failures[0].error
    assert "RuntimeError: out of wind" in failures[0].error
    assert failures[0].replay == (
        f"tradewind sim compare --scenario S2-D --policy {bad} --seeds 1 --first-seed 1 --check"
    )
    assert "round_robin" in capsys.readouterr().out


def test_the_command_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    for written, told in (
        (f"{tmp_path}/none.py:Mine", "cannot be read"),
        (f"{ROOT}/examples/own_policy.py:Near", "write "),
        (f"{ROOT}/examples/own_policy.py", "names no class; write file.py:Name"),
    ):
        wrong = CliRunner().invoke(app, ["sim", "compare", "--scenario", "S2-D", "--policy", written])
        assert wrong.exit_code == 2
        assert told in wrong.stderr
