"""`tradewind sim run`: what-ifs on the same chance, their answers, and the command that runs a failed one again."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.own_policies import policy_at
from tradewind.cli.main import app
from tradewind.lab.experiments.what_if.answer import rows, sentences
from tradewind.lab.experiments.what_if.changes import changed
from tradewind.lab.experiments.what_if.load import load_of
from tradewind.lab.experiments.what_if.run import described, run, scenario_of
from tradewind.lab.experiments.what_if.setup import AS_IT_IS, Setup
from tradewind.lab.harness.experiment import Options, Trial
from tradewind.lab.harness.row import Row
from tradewind.lab.simulated.policies import maker
from tradewind.sim.grid import SimGrid

GRID = str(Path(__file__).resolve().parents[2] / "examples" / "three-sites.yaml")
SETUP = Setup(grid=GRID, grid_hash="", workload="baseline_mixed", rate_per_s=20.0, for_s=4.0, policy="least_request:N")
LOAD = ["--class", "baseline_mixed", "--rate", "15", "--for", "2", "--policy", "least_request:N"]


def trial(what_if: str, seed: int = 1) -> Trial:
    return Trial(experiment="what-if", args={**SETUP.args(), "what_if": what_if, "seed": seed})


def sim_run(*options: str, folder: Path) -> tuple[int, str, str]:
    written = ["sim", "run", GRID, *LOAD, "--jobs", "1", "--results", str(folder), *options]
    found = CliRunner().invoke(app, written)
    return found.exit_code, found.stdout, found.stderr


def row(found: list[Row], arm: str, metric: str) -> Row:
    return next(item for item in found if (item.profile, item.metric) == (arm, metric))


def test_cells_that_stay_meet_the_same_paths_and_the_same_arrivals() -> None:
    fleet = described(SETUP)
    grids = {}
    for what_if in (AS_IT_IS, "lose:east-0,add:south:1"):
        after = changed(fleet, what_if)
        trace, for_s = load_of(SETUP, seed=3, factor=after.load)
        grids[what_if] = SimGrid(scenario_of(after, SETUP, trace, for_s=for_s), maker(after.policy), seed=3)
    before, after_it = (
        {way.cell.spec.cell_id: [way.path.rtt_s(at_s) for at_s in (0.0, 5.0, 9.5)] for way in grid.gateways[0].ways}
        for grid in grids.values()
    )
    stayed = before.keys() & after_it.keys()
    assert len(stayed) == 8
    assert {name: before[name] for name in stayed} == {name: after_it[name] for name in stayed}
    one, other = ([entry.traced for entry in grid.journal.entries] for grid in grids.values())
    assert one == other


def test_answers_go_the_way_that_they_must() -> None:
    arms = (AS_IT_IS, "lose:west", "load:0.5")
    found = rows([(trial(arm, seed), run(trial(arm, seed))) for seed in (1, 2) for arm in arms])
    changes = {arm: row(found, arm, "e2e_p95 change") for arm in arms[1:]}
    assert changes["lose:west"].lo is not None
    assert changes["lose:west"].lo > 10.0
    assert changes["load:0.5"].hi is not None
    assert changes["load:0.5"].hi < -10.0
    told = dict(zip(arms, sentences(found), strict=True))
    assert told["lose:west"].startswith("lose:west: slower: TTFT p95 ")
    assert told["load:0.5"].startswith("load:0.5: faster: ")
    half, whole = (row(found, arm, "utilisation east").value or 0.0 for arm in ("load:0.5", AS_IT_IS))
    assert 0.3 < half / whole < 0.7
    assert (row(found, "lose:west", "utilisation east").value or 0.0) > 1.2 * whole
    assert not [item for item in found if item.profile == "lose:west" and item.metric == "utilisation west"]


def test_a_gateway_in_a_lost_site_goes_with_it(tmp_path: Path) -> None:
    text = Path(GRID).read_text().replace("gateways:\n", "gateways:\n  - {id: second, site: west}\n")
    (tmp_path / "grid.yaml").write_text(text)
    fleet = described(Setup(grid=str(tmp_path / "grid.yaml"), grid_hash="", policy="cost"))
    assert (fleet.gateways, changed(fleet, "lose:west").gateways) == (("west", "east"), ("east",))


def test_the_command_answers_and_writes_json_and_a_page(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "a.html")]
    code, out, err = sim_run("--seeds", "2", "--what-if", "load:1.5", "--check", *files, folder=tmp_path)
    assert code == 0, err
    assert "As it is: TTFT p95 " in out
    assert "\nload:1.5: slower: " in out
    assert "Assumed: 9 cells as profile rtx-pro-6000" in out
    (found,) = json.loads((tmp_path / "a.json").read_text())["experiments"]
    assert found["command"].startswith(f"tradewind sim run {GRID} --class baseline_mixed --rate 15 --for 2 --policy")
    assert {"profile": "load:1.5", "metric": "ttft_p95 change", "unit": "%", "n": 2}.items() <= next(
        item for item in found["rows"] if item["metric"] == "ttft_p95 change"
    ).items()
    assert "load:1.5: slower: " in (tmp_path / "a.html").read_text()
    _, again, _ = sim_run("--seeds", "2", "--what-if", "load:1.5", "--check", folder=tmp_path)
    assert "4 trials, 4 from a run before" in again


def test_a_policy_that_raises_fails_its_own_runs_and_the_replay_command_shows_it(tmp_path: Path) -> None:
    bad = policy_at(tmp_path, "raise RuntimeError('out of wind')")
    code, out, err = sim_run("--seeds", "1", "--what-if", f"policy:{bad}", "--what-if", "load:0.8", folder=tmp_path)
    assert code == 1
    assert "load:0.8: " in out
    assert "RuntimeError: out of wind" in err
    replay = next(line for line in err.splitlines() if "replay: " in line).partition("replay: ")[2]
    with pytest.raises(RuntimeError, match="out of wind"):
        CliRunner().invoke(app, shlex.split(replay)[1:], catch_exceptions=False)


def test_a_changed_policy_file_runs_again_and_nothing_else_does(tmp_path: Path) -> None:
    told = []
    for place in (0, 0, 1):
        options = ["--seeds", "1", "--what-if", f"policy:{policy_at(tmp_path, f'return ask.cells[{place}]')}"]
        told.append(sim_run(*options, folder=tmp_path / "results")[1].splitlines()[-1])
    assert told[0].startswith("2 trials, ")
    assert "from a run before" not in told[0]
    assert told[1].startswith("2 trials, 2 from a run before, ")
    assert told[2].startswith("2 trials, 1 from a run before, ")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--what-if", "lose:mars"], "there is no site or cell 'mars'"),
        (["--what-if", "policy:nobody"], "unknown pick policy 'nobody'"),
        (["--disturbance", "rain"], "write one of clean, D"),
        (["--trace", "a.csv"], "write --trace FILE, or --class NAME with --rate R"),
    ],
)
def test_what_cannot_be_run_is_told_before_any_run(tmp_path: Path, options: list[str], told: str) -> None:
    code, _, err = sim_run(*options, folder=tmp_path)
    assert code == 2
    assert told in err
    assert not list(tmp_path.iterdir())


def test_seeds_pair_even_where_some_are_missing() -> None:
    results = {arm: run(trial(arm)) for arm in (AS_IT_IS, "load:0.9")}
    pairs = [(trial(AS_IT_IS, 1), results[AS_IT_IS]), (trial("load:0.9", 1), results["load:0.9"])]
    pairs.append((trial("load:0.9", 2), results["load:0.9"]))
    assert row(rows(pairs), "load:0.9", "ttft_p95 change").n == 1
    assert Options().seed_range(seeds=5, first=1) == range(1, 6)
