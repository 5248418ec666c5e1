"""`make verify`: every promise of the issues in full, as a table and as build/verify.json.

python -m tradewind.lab.verify [--only 2/3 ...] [--state DIR] [--out build/verify.json]
"""

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace
from rich.console import Console

from tradewind.config.schema import AgentConfig, GridConfig
from tradewind.lab.checks import Check, all_hold, at_most, checks_table, reported, write_checks
from tradewind.lab.facts import machine_facts
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid
from tradewind.lab.scenarios import failover, mismatch, pick_faults, pick_policies, restarts, shares, telemetry
from tradewind.lab.scenarios.common import failures_text
from tradewind.runtime.supervise import StartFailed

Say = Callable[[str], None]
Result = TypeVar("Result")
MISMATCH_SEEDS = (1, 2, 3)  # a run has about 340 long prompts, so that one refusal is 0.3 %
BASELINES = ("round-robin", "least-request", "least-request:9")
FIELD_CASES = (1, 2, 5, 6, 8, 9, 11, *range(13, 22), 26, 27, 28, *range(30, 34), *range(35, 46), 48, *range(62, 66))
PICK_FIELD_CASES = (12, *range(22, 26), 29, 34, 46, 47, *range(49, 55), 60, 61)
CLONE_BOUND_S = 300.0
PICK_REFUSALS = 3  # by a cell that does not say how short it is
PICK_REROUTE_P99_S = 0.6
FAR_S, NEAR_S = 300.0, 180.0  # of load, for each policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One promise: `item` as "issue/number", and what measures it."""

    item: str
    title: str
    run: Callable[["Bench"], list[Check]]


class Bench:
    """Where the items run: a folder for their grids, and a voice."""

    def __init__(self, folder: Path, say: Say) -> None:
        self.folder = folder
        self.say = say

    def live(self, config: GridConfig, script: Callable[[LiveGrid], Awaitable[Result]]) -> Result:
        """Run a script against a fresh grid. Raises StartFailed, TimeoutError."""

        async def main() -> Result:
            async with LiveGrid(config) as grid:
                return await script(grid)

        shutil.rmtree(config.state_dir, ignore_errors=True)
        return asyncio.run(main())

    @property
    def state_dir(self) -> str:
        """Where a grid keeps its state; each run begins with an empty one."""
        return str(self.folder / "state")

    def nine_cells(self, *, baseline: str = "", policy: str = "", exporters: bool = True) -> GridConfig:
        """The grid of the issue: three sites of three emulated RTX PRO 6000."""
        return emulated_grid(state_dir=self.state_dir, baseline=baseline, policy=policy, exporters=exporters)


def _shares(bench: Bench) -> list[Check]:
    bench.say("2,000 requests, 200 pushes")
    return asyncio.run(shares.exact_shares())


def _mismatch(bench: Bench) -> list[Check]:
    def one(name: str, options: mismatch.MismatchOptions, *, baseline: str = "") -> mismatch.LeakRun:
        async def script(grid: LiveGrid) -> mismatch.LeakRun:
            bench.say(f"{name}, seed {options.seed}: {options.for_s:g} s")
            return await mismatch.leak_of(grid, options, name=name)

        return bench.live(bench.nine_cells(baseline=baseline), script)

    async def aftermath(grid: LiveGrid) -> list[Check]:
        bench.say("a verdict, the way back, and the client's own 400s: 100 s")
        await mismatch.leak_of(grid, mismatch.MismatchOptions(for_s=30.0), name="verdict")
        checks = await mismatch.share_returns(grid, mismatch.MismatchOptions())
        return checks + await mismatch.client_errors_move_nothing(grid)

    runs = [one("weights", mismatch.MismatchOptions(seed=seed)) for seed in MISMATCH_SEEDS]
    checks = mismatch.leak_checks(runs, name="weights", bound=mismatch.LEAK_BOUND)
    advertised = one("weights, advertised", mismatch.MismatchOptions(advertise=True))
    checks += mismatch.leak_checks([advertised], name="weights, advertised", bound=0.0)
    checks += bench.live(bench.nine_cells(), aftermath)
    for baseline in BASELINES:
        beside = one(baseline, mismatch.MismatchOptions(), baseline=baseline)
        checks += mismatch.leak_checks([beside], name=baseline, bound=None)
    return checks


def _failover(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("kill -9 at 10 RPS: 60 s")
        return await failover.failover(grid, failover.FailoverOptions())

    return bench.live(bench.nine_cells(), script)


def _exporters(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("the exporter of each of nine cells dies, site by site: 55 s")
        return await telemetry.exporters_die(grid, sites=grid.grid.sites)

    return bench.live(bench.nine_cells(), script)


def _agent_cut(bench: Bench) -> list[Check]:
    cell = "west-1"

    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("one agent is silent for 20 s")
        return await telemetry.agent_cut(grid, agent="agent-lonely", cell=cell)

    config = bench.nine_cells()
    rest = [item.id for item in config.cells if item.id != cell]
    agents = [AgentConfig(id="lonely", cells=[cell]), AgentConfig(id="rest", cells=rest)]
    return bench.live(replace(config, agents=agents), script)


def _restarts(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("control for 10 s, gateway, Envoy: 60 s")
        checks = await restarts.control_restarts_empty(grid)
        checks += await restarts.gateway_restarts_without_control(grid)
        return checks + await restarts.envoy_restarts_without_control(grid)

    return bench.live(bench.nine_cells(), script)


def _drain(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("drain under load: 25 s")
        return await restarts.drain(grid)

    return bench.live(bench.nine_cells(), script)


def _field_cases(bench: Bench) -> list[Check]:
    """Every case has a test that bears its name, and they pass."""
    bench.say("tests named after the field cases")
    listed = subprocess.run([*_PYTEST, "--collect-only", "-k", "fc_"], capture_output=True, text=True, check=False)
    missing = [f"FC-{case:02}" for case in FIELD_CASES if f"test_fc_{case:02}_" not in listed.stdout]
    done = subprocess.run([*_PYTEST, "-k", "fc_"], capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    return [
        at_most("field cases without a test of their name", len(missing), 0, unit="cases", note=" ".join(missing)),
        at_most("field-case tests: exit status", done.returncode, 0, note=last),
    ]


_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")  # quiet by pyproject.toml; twice hides the names


def _benchmarks(bench: Bench) -> list[Check]:
    """The rows of `make bench`, taken over."""
    bench.say("make bench")
    out = Path("build/bench.json")
    done = subprocess.run([sys.executable, "-m", "benchmarks"], capture_output=True, text=True, check=False)
    if not out.exists():
        return [at_most("make bench: exit status", done.returncode, 0, note=done.stderr[-200:])]
    written = json.loads(out.read_text())
    rows = written if isinstance(written, list) else written.get("rows") or written.get("checks") or []
    return [Check(**{key: row[key] for key in ("name", "value", "unit", "bound", "holds")}) for row in rows]


def _newcomer(bench: Bench) -> list[Check]:
    """A clean clone to the first routed token."""
    bench.say("clean clone, make setup, first routed token")
    clone = bench.folder / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    begin_s = time.monotonic()
    subprocess.run(["git", "clone", "-q", ".", str(clone)], check=True)
    subprocess.run(["make", "-s", "setup"], cwd=clone, check=True)
    script = "import tradewind.lab.first_token as f; raise SystemExit(f.main())"
    done = subprocess.run(
        [str(clone / ".venv/bin/python"), "-c", script], cwd=clone, capture_output=True, text=True, check=False
    )
    took_s = time.monotonic() - begin_s if done.returncode == 0 else None
    return [at_most("clean clone to the first routed token", took_s, CLONE_BOUND_S, unit="s", note=done.stderr[-200:])]


# --- routing: pick ---------------------------------------------------------------------------------------------------


def _pick_mismatch(bench: Bench) -> list[Check]:
    """Long prompts that reach a cell that must refuse them, from the first request on."""
    checks: list[Check] = []
    for advertise, most in ((True, 0), (False, PICK_REFUSALS)):
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


def _pick_failover(bench: Bench) -> list[Check]:
    async def script(grid: LiveGrid) -> list[Check]:
        bench.say("kill -9 at 10 RPS: 60 s; a cell that answers 503: 20 s")
        options = failover.FailoverOptions(reroute_p99_s=PICK_REROUTE_P99_S)
        checks = await failover.failover(grid, options, name="pick")
        return checks + await pick_faults.refusals_are_retried(grid, pick_faults.RetryOptions())

    return bench.live(bench.nine_cells(policy="cost"), script)


def _pick_policies(bench: Bench) -> list[Check]:
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


def _pick_field_cases(bench: Bench) -> list[Check]:
    """Every case is named in a file of tests, and these files pass."""
    bench.say("files of tests that name the field cases")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(Path("tests").rglob("test_*.py"))}
    naming: dict[int, list[Path]] = {}
    for case in PICK_FIELD_CASES:
        mark = re.compile(rf"FC-{case}\b|fc_{case}_")
        naming[case] = [path for path, text in texts.items() if mark.search(text)]
    missing = [f"FC-{case}" for case, paths in naming.items() if not paths]
    files = sorted({str(path) for paths in naming.values() for path in paths})
    done = subprocess.run([*_PYTEST, *files], capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    return [
        at_most("picked field cases without a test", len(missing), 0, unit="cases", note=" ".join(missing)),
        at_most("files that name them: exit status", done.returncode, 0, note=f"{len(files)} files; {last}"),
    ]


def _pick_ladder(bench: Bench) -> list[Check]:
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
    Item(item="2/1", title="shares are exact and survive pushes", run=_shares),
    Item(item="2/2", title="capability mismatch", run=_mismatch),
    Item(item="2/3", title="failover", run=_failover),
    Item(item="2/4", title="exporter death", run=_exporters),
    Item(item="2/5", title="agent cut off from control", run=_agent_cut),
    Item(item="2/6", title="restarts", run=_restarts),
    Item(item="2/7", title="drain", run=_drain),
    Item(item="2/8", title="field cases", run=_field_cases),
    Item(item="2/9", title="benchmarks", run=_benchmarks),
    Item(item="2/10", title="a newcomer's path", run=_newcomer),
    Item(item="3/1", title="capability mismatch, picked", run=_pick_mismatch),
    Item(item="3/2", title="failover, picked", run=_pick_failover),
    Item(item="3/3", title="policies of the picker, live", run=_pick_policies),
    Item(item="3/4", title="the picker killed, frozen, slow", run=_pick_ladder),
    Item(item="3/6", title="field cases of picking", run=_pick_field_cases),
)


def verify(items: Sequence[Item], bench: Bench) -> list[Check]:
    """Run items one after the other; an item that cannot run is a check that does not hold."""
    rows: list[Check] = []
    for item in items:
        bench.say(f"{item.item} {item.title}")
        begin_s = time.monotonic()
        try:
            checks = item.run(bench)
        except (StartFailed, TimeoutError, OSError, subprocess.CalledProcessError) as error:
            checks = [Check(name=item.title, value=None, holds=False, note=f"could not run: {error}"[:400])]
        command = f"python -m tradewind.lab.verify --only {item.item}"
        rows += [replace(check, item=item.item, command=command) for check in checks]
        rows.append(replace(reported("took", time.monotonic() - begin_s, unit="s"), item=item.item, command=command))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tradewind.lab.verify", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=[item.item for item in ITEMS], help="this item; repeatable")
    parser.add_argument("--out", type=Path, default=Path("build/verify.json"))
    options = parser.parse_args(arguments)
    chosen = [item for item in ITEMS if not options.only or item.item in options.only]
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tradewind-verify-") as folder:
        rows = verify(chosen, Bench(Path(folder), lambda line: console.print(line, style="dim")))
    console.print(checks_table(rows, title="what must be true"))
    write_checks(options.out, rows, facts=machine_facts())
    return 0 if all_hold(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
