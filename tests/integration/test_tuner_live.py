"""The tuner of a live grid: orders act within a view, and a control that is killed goes on where it was."""

from pathlib import Path

from msgspec.structs import replace

from tests.integration.test_demo_scenarios import without
from tests.support.grid import assert_hold, small_grid, with_grid
from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios import tuner_live
from tradewind.lab.scenarios.common import failures_text, poisson_plan, under_load


def test_orders_act_and_a_killed_control_goes_on_with_weights_flag_and_history(tmp_path: Path) -> None:
    config = small_grid(tmp_path, cells_per_site=1)
    gateways = [replace(gateway, routing="pick") for gateway in config.gateways]

    async def script(grid: LiveGrid) -> list[Check]:
        async def orders(_observer: Observer) -> list[Check]:
            acted = await tuner_live.orders_act(grid)
            return [*acted, *await tuner_live.control_killed(grid, down_s=0.5)]

        plan = poisson_plan(seed=1, rate_per_s=20.0, for_s=3.0, prefix="tuner")
        loaded = await under_load(grid, plan, orders)
        failed = [record for record in loaded.records if not record.ok]
        sent = (await tuner_live.pick_of(grid))["samples_sent"]
        return [
            *loaded.result,
            at_most("requests lost", len(failed), 0, note=failures_text(failed)),
            at_least("samples told to control", sum(sent.values()), 1),
        ]

    checks = with_grid(tuner_live.tuned_grid(replace(config, gateways=gateways)), script)
    assert_hold(without(checks, "at the gateway after"))  # how soon is measured by `make verify`
