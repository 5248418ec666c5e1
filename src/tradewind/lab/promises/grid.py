"""Issue 2: the grid, its shares, its faults and its restarts."""

import asyncio
import shutil
import subprocess
import time

from msgspec.structs import replace

from tradewind.config.schema import AgentConfig
from tradewind.lab.checks import Check, at_most
from tradewind.lab.grid import LiveGrid
from tradewind.lab.promises.bench import PYTEST, Bench, Item, bench_rows, last_line
from tradewind.lab.scenarios import failover, mismatch, restarts, shares, telemetry

MISMATCH_SEEDS = (1, 2, 3)  # a run has about 340 long prompts, so that one refusal is 0.3 %
BASELINES = ("round-robin", "least-request", "least-request:9")
FIELD_CASES = (1, 2, 5, 6, 8, 9, 11, *range(13, 22), 26, 27, 28, *range(30, 34), *range(35, 46), 48, *range(62, 66))
CLONE_BOUND_S = 300.0


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
    listed = subprocess.run([*PYTEST, "--collect-only", "-k", "fc_"], capture_output=True, text=True, check=False)
    missing = [f"FC-{case:02}" for case in FIELD_CASES if f"test_fc_{case:02}_" not in listed.stdout]
    done = subprocess.run([*PYTEST, "-k", "fc_"], capture_output=True, text=True, check=False)
    return [
        at_most("field cases without a test of their name", len(missing), 0, unit="cases", note=" ".join(missing)),
        at_most("field-case tests: exit status", done.returncode, 0, note=last_line(done.stdout)),
    ]


def _benchmarks(bench: Bench) -> list[Check]:
    bench.say("make bench")
    return bench_rows(bench)


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
)
