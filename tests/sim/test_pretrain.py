"""`tradewind tuner pretrain`: found on some seeds, judged on others, and nothing but a command comes of it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tradewind.cli.main import app
from tradewind.core.tuner.box import PUBLISHED, SHIPPED
from tradewind.lab.experiments.what_if.answer import rows
from tradewind.lab.experiments.what_if.setup import Setup, SetupError
from tradewind.lab.harness.experiment import Experiment, Options
from tradewind.lab.harness.runner import Report
from tradewind.lab.pretrain import Pretrained, candidates, policy_of, pretrain, written_as
from tradewind.model.tuning import PHYSICS, Weights

ROOT = Path(__file__).resolve().parents[2]
GRID = str(ROOT / "examples" / "pick.yaml")
SETUP = Setup(
    grid=GRID,
    grid_hash="",
    workload="baseline_mixed",
    rate_per_s=15.0,
    for_s=2.0,
    policy=written_as("cost", PHYSICS),
)
GOOD = Weights(0.5, 2.0)
SEARCH, FRESH = range(1, 4), range(4, 9)
Tails = Callable[[str, int], tuple[float, float]]  # (policy, seed) -> p95 of TTFT and E2E, seconds


def simulated(tails: Tails, seen: list[Options]) -> Callable[[Experiment, Options], Report]:
    """Every trial of the plan, answered by a formula in the place of the simulator."""

    def simulate(made: Experiment, options: Options) -> Report:
        seen.append(options)
        assert made.plan is not None
        done = []
        for trial in made.plan(options):
            ttft_s, e2e_s = tails(str(trial.args["decides"]), int(trial.args["seed"] or 0))
            done.append((trial, {"policy": "", "ttft_p95": ttft_s, "e2e_p95": e2e_s}))
        return Report(
            experiment=made,
            command="",
            rows=tuple(rows(done)),
            claims=(),
            failures=(),
            trials=len(done),
            reused=0,
            took_s=0.0,
            quick=False,
        )

    return simulate


def found_by(tails: Tails) -> Pretrained:
    simulate = simulated(tails, [])
    return pretrain(SETUP, base="cost", box=SHIPPED, search_seeds=SEARCH, seeds=FRESH, simulate=simulate)


def noisy(gains: Mapping[str, float], *, e2e: float = 1.0) -> Tails:
    """Seeds differ by up to 10 % from one another, alike for all settings; e2e: of all but 1 and 1."""

    def tails(policy: str, seed: int) -> tuple[float, float]:
        plain = policy == written_as("cost", PHYSICS)
        return (1.0 + seed % 5 * 0.02) * gains.get(policy, 1.0 if plain else 1.01), 5.0 if plain else 5.0 * e2e

    return tails


def test_what_holds_on_fresh_seeds_is_proposed_with_its_interval() -> None:
    found = found_by(noisy({written_as("cost", GOOD): 0.9}))
    assert found.proposed == GOOD
    assert found.searched[0].weights == GOOD
    assert found.held is not None
    assert found.held.ttft == pytest.approx((-10.0, -10.0, -10.0))


def test_the_search_and_the_judgement_have_no_seed_in_common() -> None:
    seen: list[Options] = []
    simulate = simulated(noisy({written_as("cost", GOOD): 0.9}), seen)
    pretrain(SETUP, base="cost", box=SHIPPED, search_seeds=SEARCH, seeds=FRESH, simulate=simulate)
    assert [(options.first_seed, options.seeds) for options in seen] == [(1, 3), (4, 5)]
    with pytest.raises(AssertionError, match="same chance"):
        pretrain(SETUP, base="cost", box=SHIPPED, search_seeds=SEARCH, seeds=range(3, 8), simulate=simulate)


def test_what_was_luck_in_the_search_is_not_proposed() -> None:
    def lucky(policy: str, seed: int) -> tuple[float, float]:
        gain = 0.8 if seed in SEARCH else 1.0 + (0.02 if seed % 2 else -0.03)
        return (gain if policy == written_as("cost", GOOD) else 1.0), 5.0

    found = found_by(lucky)
    assert found.proposed is None
    assert found.held is not None
    assert found.held.weights == GOOD
    assert found.reason == "the interval of p95 TTFT holds 0 on fresh seeds"


def test_a_shorter_first_token_that_makes_answers_longer_is_not_proposed() -> None:
    found = found_by(noisy({written_as("cost", GOOD): 0.9}, e2e=1.2))
    assert found.proposed is None
    assert found.held is None  # the search saw it already


def test_nothing_better_in_the_search_costs_no_fresh_seed() -> None:
    seen: list[Options] = []
    simulate = simulated(noisy({}), seen)
    found = pretrain(SETUP, base="cost", box=SHIPPED, search_seeds=SEARCH, seeds=FRESH, simulate=simulate)
    assert found.proposed is None
    assert found.held is None
    assert len(seen) == 1
    assert found.reason == "none of 14 settings had a shorter p95 TTFT in the search"


def test_only_settings_in_the_box_are_tried() -> None:
    assert Weights(2.0, 0.25) not in candidates(SHIPPED)  # eight times the queue weight
    assert PHYSICS not in candidates(SHIPPED)
    assert {weights.queue for weights in candidates(PUBLISHED)} == {0.25, 0.5}


def test_a_grid_that_does_not_pick_by_weights_is_told_what_to_write() -> None:
    whole = Setup(grid=str(ROOT / "examples" / "three-sites.yaml"), grid_hash="", workload="x", rate_per_s=1.0)
    with pytest.raises(SetupError, match="decide by weights, which has no weights to find; write --policy cost"):
        policy_of(whole)
    assert policy_of(SETUP) == "cost"
    assert written_as("gorgo", GOOD) == "gorgo:0.5/2"


def command(*options: str, folder: Path) -> tuple[int, str, str]:
    written = ["tuner", "pretrain", "-f", GRID, "--jobs", "1", "--results", str(folder), *options]
    found = CliRunner().invoke(app, written)
    return found.exit_code, found.stdout, found.stderr


def test_the_command_says_what_it_found_and_what_would_apply_it(tmp_path: Path) -> None:
    load = ("--class", "baseline_mixed", "--rate", "16", "--for", "0.5", "--search-seeds", "1", "--seeds", "5")
    code, out, _ = command(*load, folder=tmp_path)
    assert code == 0
    assert "searched on seed 1" in out
    code, told, _ = command(*load, "--json", folder=tmp_path)  # from the kept results
    assert code == 0
    found = json.loads(told)
    assert len(found["searched"]) == 14
    assert found["seeds"] == [2, 3, 4, 5, 6]
    if found["proposed"] is None:
        assert "Keep the default, 1 and 1" in out
        assert found["command"] == ""
    else:
        weights = "{rtt:g} {queue:g}".format(**found["proposed"])
        assert found["command"] == f"tradewind tuner set {weights} -f {GRID} --reason pretrain"
        assert f"Nothing has been changed. This would: {found['command']}" in out


def test_the_command_reads_a_request_log(tmp_path: Path) -> None:
    log = tmp_path / "requests.ndjson"
    line = {"id": "r", "cell": "east-0", "status": 200, "duration_s": 2.0, "prompt_tokens": 900, "completion_tokens": 9}
    log.write_text("".join(json.dumps({"at_unix_s": 1e9 + 0.2 * number, **line}) + "\n" for number in range(8)))
    code, out, err = command("--trace", str(log), "--search-seeds", "1", "--seeds", "5", folder=tmp_path)
    assert code == 0, err
    assert "The trace lasts 2 s, and 6 windows of 2 s overlap in it" in out
    code, _, err = command("--trace", str(tmp_path / "none.ndjson"), folder=tmp_path)
    assert code == 2
    assert "cannot be read" in err


def test_a_load_must_be_named(tmp_path: Path) -> None:
    code, _, err = command(folder=tmp_path)
    assert code == 2
    assert "write --trace FILE, or --class NAME with --rate R" in err
