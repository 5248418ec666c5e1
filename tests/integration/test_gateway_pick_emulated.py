"""Picks on a whole emulated grid: what affinity is worth, and the scenarios of `make verify`, shortened."""

from pathlib import Path

from tests.integration.test_demo_scenarios import without
from tests.support.conversations import cached_ratio
from tests.support.grid import assert_hold, with_grid
from tests.support.up import running_up
from tradewind.config.schema import GridConfig
from tradewind.lab.checks import Check
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import MODEL, emulated_grid
from tradewind.lab.scenarios import pick_faults, pick_policies


def small(state_dir: Path, *, policy: str, profile: str = "fast") -> GridConfig:
    """Two cells in two sites, equally far away."""
    return emulated_grid(
        sites=("east", "west"),
        cells_per_site=1,
        profile=profile,
        policy=policy,
        exporters=False,
        wan_ms=((2.0, 0.2), (2.0, 0.2)),
        state_dir=str(state_dir),
        name="test",
    )


def test_affinity_raises_cached_tokens(tmp_path: Path) -> None:
    ratios = {}
    for policy in ("cost", ""):
        folder = tmp_path / (policy or "weights")
        folder.mkdir()
        with running_up(small(folder / "state", policy=policy, profile="rtx-pro-6000"), folder) as up:
            ratios[policy] = cached_ratio(up, model=MODEL)
    assert ratios["cost"] > ratios[""] + 0.1, ratios


def test_a_picker_that_is_killed_frozen_or_slow_fails_no_request(tmp_path: Path) -> None:
    options = pick_faults.LadderOptions(rate_per_s=25.0, phase_s=1.2)

    async def script(grid: LiveGrid) -> list[Check]:
        return await pick_faults.ladder(grid, options)

    assert_hold(without(with_grid(small(tmp_path, policy="cost"), script), "delay added"))


def test_a_cell_that_answers_503_fails_no_request(tmp_path: Path) -> None:
    options = pick_faults.RetryOptions(cell="west-0", rate_per_s=20.0, for_s=2.5)

    async def script(grid: LiveGrid) -> list[Check]:
        return await pick_faults.refusals_are_retried(grid, options)

    assert_hold(without(with_grid(small(tmp_path, policy="cost"), script), "retried elsewhere"))


def test_a_course_of_two_policies_has_figures_for_each(tmp_path: Path) -> None:
    course = pick_policies.near_course(seed=3, for_s=3.0, state_dir=str(tmp_path), rate_per_s=5.0)
    runs = []
    for policy in (pick_policies.OURS, pick_policies.WEIGHTS):

        async def script(grid: LiveGrid, policy: str = policy) -> pick_policies.PolicyRun:
            return await pick_policies.run_policy(grid, course, policy=policy)

        runs.append(with_grid(course.grid(policy), script))
    checks = pick_policies.course_checks(course.name, runs, ttft_bound=10.0, e2e_bound=10.0)
    assert_hold(checks)
    assert [run.success for run in runs] == [1.0, 1.0]
    assert runs[0].predicted_hit_ratio == 0.0
    assert runs[1].predicted_hit_ratio is None
