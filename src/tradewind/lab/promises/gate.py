"""Issue 4: no request lost before its first token."""

from tradewind.lab import watch
from tradewind.lab.checks import Check, at_least, without_bounds
from tradewind.lab.grid import LiveGrid
from tradewind.lab.promises.bench import Bench, Item, bench_rows, tests_pass
from tradewind.lab.promises.pick import REROUTE_P99_S
from tradewind.lab.scenarios import late
from tradewind.lab.scenarios.failover import FailoverOptions, failover
from tradewind.lab.soak.run import SoakOptions, soak, soak_grid

# Five a cell: the engine that dies has requests in prefill and requests that wait.
KILL = FailoverOptions(burst_requests=45, reroute_p99_s=REROUTE_P99_S)


def _matrix(bench: Bench) -> list[Check]:
    bench.say("the matrix of deaths, late tokens and hedges, and whole queues that die, on a real Envoy")
    names = ("matrix", "queues")
    return [tests_pass(f"tests of the {name}", [f"tests/integration/test_gate_{name}.py"]) for name in names]


def _soak(bench: Bench) -> list[Check]:
    options = SoakOptions()

    async def script(grid: LiveGrid) -> list[Check]:
        bench.say(f"an engine killed every {options.kill_every_s:g} s: {options.for_s:g} s")
        return await soak(grid, options, say=bench.say)

    return bench.live(soak_grid(bench.state_dir), script)


def _cost(bench: Bench) -> list[Check]:
    bench.say("make bench, the gate's rows")
    return bench_rows(bench, "gate") + _late(bench)


def _late(bench: Bench) -> list[Check]:
    checks: list[Check] = []
    for name, first_token in late.ARMS.items():

        async def script(grid: LiveGrid, name: str = name) -> list[Check]:
            options = late.LateOptions()
            bench.say(f"late first tokens, {name}: {options.for_s:g} s")
            return await late.late(grid, options, name=name)

        checks += bench.live(late.late_grid(bench.state_dir, first_token), script)
    return checks


def _kill(bench: Bench) -> list[Check]:
    async def gated(grid: LiveGrid) -> list[Check]:
        bench.say(f"kill -9 at {KILL.rate_per_s:g} RPS with the gate: {KILL.for_s:g} s")
        mode = watch.gate_mode(await watch.gateway_status(grid.gateway))
        there = at_least("the gate is in force", float(mode in ("wasm", "native")), 1, note=mode)
        return [there, *await failover(grid, KILL, name="gate")]

    async def bare(grid: LiveGrid) -> list[Check]:
        bench.say(f"the same without the gate: {KILL.for_s:g} s")
        return without_bounds(await failover(grid, KILL, name="no gate"))

    checks = bench.live(bench.nine_cells(policy="cost"), gated)
    return checks + bench.live(bench.nine_cells(policy="cost", gate="none"), bare)


def _broken(bench: Bench) -> list[Check]:
    bench.say("gates that Envoy refuses and that trap")
    return [tests_pass("tests of a broken gate", ["tests/integration/test_gate_broken.py"])]


ITEMS: tuple[Item, ...] = (
    Item(item="4/1", title="the gate's matrix", run=_matrix),
    Item(item="4/2", title="soak of kills, with the gate and without", run=_soak),
    Item(item="4/3", title="what the gate costs, and time limits and hedges", run=_cost),
    Item(item="4/4", title="kill -9 in the demo grid, with the gate and without", run=_kill),
    Item(item="4/5", title="a gate that traps", run=_broken),
)
