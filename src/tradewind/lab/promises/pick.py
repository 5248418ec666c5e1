"""Issue 3: a cell for every request, and what is left of it when the picker fails."""

import re
from functools import partial
from pathlib import Path

from tradewind.lab.checks import Check, at_most
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid
from tradewind.lab.promises.bench import Bench, Item, tests_pass
from tradewind.lab.promises.grid import MISMATCH_SEEDS
from tradewind.lab.scenarios import failover, mismatch, pick_faults, pick_policies
from tradewind.lab.scenarios.common import failures_text

FIELD_CASES = (12, *range(22, 26), 29, 34, 46, 47, *range(49, 55), 60, 61)
REFUSALS = 3  # by a cell that does not say how short it is
REROUTE_P99_S = 0.6
FAR_S, NEAR_S = 300.0, 180.0  # of load, for each policy


def _mismatch(bench: Bench) -> list[Check]:
    """Long prompts that reach a cell that must refuse them, from the first request on."""
    checks: list[Check] = []
    for advertise, most in ((True, 0), (False, REFUSALS)):
        name = "pick, advertised" if advertise else "pick, learned from refusals"
        runs = []
        for seed in MISMATCH_SEEDS[: 1 if advertise else None]:
            options = mismatch.MismatchOptions(seed=seed, advertise=advertise)

            async def script(
                grid: LiveGrid, options: mismatch.MismatchOptions = options, name: str = name
            ) -> mismatch.LeakRun:
                bench.say(f"{name}, seed {options.seed}: {options.for_s:g} s")
                return await mismatch.leak_of(grid, options, name=name.replace(", ", "-").replace(" ", "-"))

            runs.append(bench.live(bench.nine_cells(policy="cost"), script))
        worst = max(run.in_all.leaked for run in runs)
        each = " ".join(f"{run.in_all.leaked}/{run.in_all.long_prompts}" for run in runs)
        others = [record for run in runs for record in run.others]
        checks.append(at_most(f"{name}: long prompts refused in one run", worst, most, unit="requests", note=each))
        checks.append(at_most(f"{name}: other failures", len(others), 0, unit="requests", note=failures_text(others)))
    return checks


def _failover(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("kill -9 at 10 RPS: 60 s; a cell that answers 503: 20 s")
        options = failover.FailoverOptions(reroute_p99_s=REROUTE_P99_S)
        checks = await failover.failover(grid, options, name="pick")
        return checks + await pick_faults.refusals_are_retried(grid, pick_faults.RetryOptions())

    return bench.live(bench.nine_cells(policy="cost"), script)


def _policies(bench: Bench) -> list[Check]:
    far = pick_policies.far_course(seed=1, for_s=FAR_S, state_dir=bench.state_dir)
    near = pick_policies.near_course(seed=1, for_s=NEAR_S, state_dir=bench.state_dir)
    checks = pick_policies.course_checks(
        far.name, _runs(bench, far), ttft_bound=pick_policies.FAR_TTFT, e2e_bound=pick_policies.FAR_E2E
    )
    return checks + pick_policies.course_checks(
        near.name, _runs(bench, near), ttft_bound=pick_policies.NEAR_TTFT, e2e_bound=pick_policies.NEAR_E2E
    )


def _runs(bench: Bench, course: pick_policies.Course) -> list[pick_policies.PolicyRun]:
    async def script(grid: LiveGrid, policy: str) -> pick_policies.PolicyRun:
        bench.say(f"{course.name}, {policy}: {course.for_s:g} s")
        return await pick_policies.run_policy(grid, course, policy=policy)

    return [bench.live(course.grid(name), partial(script, policy=name)) for name in pick_policies.POLICIES]


def _field_cases(bench: Bench) -> list[Check]:
    """Every case is named in a file of tests, and these files pass."""
    bench.say("files of tests that name the field cases")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(Path("tests").rglob("test_*.py"))}
    naming: dict[int, list[Path]] = {}
    for case in FIELD_CASES:
        mark = re.compile(rf"FC-{case}\b|fc_{case}_")
        naming[case] = [path for path, text in texts.items() if mark.search(text)]
    missing = [f"FC-{case}" for case, paths in naming.items() if not paths]
    files = sorted({str(path) for paths in naming.values() for path in paths})
    return [
        at_most("picked field cases without a test", len(missing), 0, unit="cases", note=" ".join(missing)),
        tests_pass(f"the {len(files)} files that name them", files),
    ]


def _ladder(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("100 RPS; the picker is killed, frozen, slowed: 65 s")
        return await pick_faults.ladder(grid, pick_faults.LadderOptions())

    grid = emulated_grid(
        sites=("east", "west"),
        cells_per_site=2,
        profile="fast",
        policy="cost",
        exporters=False,
        state_dir=bench.state_dir,
    )
    return bench.live(grid, script)


ITEMS: tuple[Item, ...] = (
    Item(item="3/1", title="capability mismatch, picked", run=_mismatch),
    Item(item="3/2", title="failover, picked", run=_failover),
    Item(item="3/3", title="policies of the picker, live", run=_policies),
    Item(item="3/4", title="the picker killed, frozen, slow", run=_ladder),
    Item(item="3/6", title="field cases of picking", run=_field_cases),
)
