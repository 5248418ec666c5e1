"""The promises of issue 2 as shortened live runs on small grids; `make verify` runs them in full."""

from pathlib import Path

from tests.support.grid import assert_hold, small_grid, with_grid
from tradewind.config.schema import AgentConfig, GridConfig
from tradewind.lab.checks import Check
from tradewind.lab.grid import LiveGrid
from tradewind.lab.scenarios.failover import FailoverOptions, failover
from tradewind.lab.scenarios.mismatch import MismatchOptions, client_errors_move_nothing, leak_checks, leak_of
from tradewind.lab.scenarios.restarts import (
    control_restarts_empty,
    drain,
    envoy_restarts_without_control,
    gateway_restarts_without_control,
)
from tradewind.lab.scenarios.telemetry import agent_cut, exporters_die


def without(checks: list[Check], *words: str) -> list[Check]:
    """Without the checks of how fast this machine is: a test never asserts tight times."""
    return [check for check in checks if not any(word in check.name for word in words)]


def test_killed_engine_costs_only_the_streams_that_had_begun_on_it(tmp_path: Path) -> None:
    options = FailoverOptions(
        cell="west-0", rate_per_s=20, for_s=5, kill_at_s=2, burst_requests=60, burst_tokens=4_000, burst_lead_s=0.3
    )

    async def script(grid: LiveGrid) -> list[Check]:
        return await failover(grid, options)

    checks = with_grid(small_grid(tmp_path), script)
    assert_hold(without(checks, "out of the set", "reroute"))
    lost = next(check for check in checks if "lost before a token" in check.name)
    assert (lost.value, lost.bound) == (0, "<= 0"), "the gate is in force"


def test_drained_cell_gets_nothing_new_and_its_streams_finish(tmp_path: Path) -> None:
    async def script(grid: LiveGrid) -> list[Check]:
        return await drain(grid, cell="east-1", rate_per_s=20, before_s=2, rest_s=2)

    assert_hold(with_grid(small_grid(tmp_path), script))


def test_restarts_of_control_gateway_and_envoy_fail_no_request(tmp_path: Path) -> None:
    async def script(grid: LiveGrid) -> list[Check]:
        checks = await control_restarts_empty(grid, warm_s=1, down_s=3, rate_per_s=15, rest_s=2)
        checks += await gateway_restarts_without_control(grid, warm_s=1, down_s=2, rate_per_s=15, rest_s=2)
        return checks + await envoy_restarts_without_control(grid, warm_s=1, rate_per_s=15, rest_s=2)

    assert_hold(with_grid(small_grid(tmp_path), script))


def test_dead_exporter_fails_nothing_and_is_flagged(tmp_path: Path) -> None:
    async def script(grid: LiveGrid) -> list[Check]:
        return await exporters_die(grid, sites=["east"], rate_per_s=15, dead_s=3, rest_s=2)

    checks = with_grid(small_grid(tmp_path, exporters=True), script)
    flag = next(check for check in checks if "flag" in check.name)
    assert flag.value is not None
    assert_hold(without(checks, "flag after", "share moved"))


def test_cell_of_a_silent_agent_keeps_serving(tmp_path: Path) -> None:
    grid = small_grid(tmp_path)
    lonely, rest = "west-1", [cell.id for cell in grid.cells if cell.id != "west-1"]
    agents = [AgentConfig(id="lonely", cells=[lonely]), AgentConfig(id="rest", cells=rest)]

    async def script(live: LiveGrid) -> list[Check]:
        return await agent_cut(live, agent="agent-lonely", cell=lonely, rate_per_s=15, warm_s=3, cut_s=4)

    checks = with_grid(_with_agents(grid, agents), script)
    assert_hold(without(checks, "share kept"))


def _with_agents(grid: GridConfig, agents: list[AgentConfig]) -> GridConfig:
    from msgspec.structs import replace as with_fields

    return with_fields(grid, agents=agents)


def test_refusing_cell_is_found_and_left_out(tmp_path: Path) -> None:
    options = MismatchOptions(cell="west-1", rate_per_s=25, for_s=7)

    async def script(grid: LiveGrid) -> list[Check]:
        run = await leak_of(grid, options, name="weights")
        # A quarter of the long prompts leaks without a verdict; a short run has few of them.
        checks = leak_checks([run], name="weights", bound=0.05)
        return checks + await client_errors_move_nothing(grid, rate_per_s=10, for_s=5, good_s=2)

    assert_hold(without(with_grid(small_grid(tmp_path), script), "lowest share"))


def test_advertised_limit_leaks_nothing(tmp_path: Path) -> None:
    options = MismatchOptions(cell="west-1", rate_per_s=20, for_s=5, advertise=True)

    async def script(grid: LiveGrid) -> list[Check]:
        return leak_checks([await leak_of(grid, options, name="advertised")], name="advertised", bound=0.0)

    assert_hold(with_grid(small_grid(tmp_path), script))
