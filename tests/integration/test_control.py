"""Control over real gRPC and HTTP: registration, life cycle, views, drains, restarts."""

import asyncio
from pathlib import Path

from tests.support.control_clients import agent, gateway
from tests.support.polling import until
from tradewind.config.schema import CellConfig, ControlConfig, GridConfig
from tradewind.control.main import serve
from tradewind.model.heartbeat import Evidence


def config(state_dir: Path, *, ttl_s: float = 60.0, expected: int = 1) -> GridConfig:
    """A grid whose file names `expected` cells: control publishes as soon as it has heard them."""
    cells = [CellConfig(id=f"cell-{number:04}", site="site-1", url="http://127.0.0.1:1") for number in range(expected)]
    return GridConfig(state_dir=str(state_dir), controls=[ControlConfig(heartbeat_ttl_s=ttl_s)], cells=cells)


def test_a_cell_registers_and_a_gateway_sees_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, gateway(control.grpc_address) as west:
            await west.report()
            async with agent(control.grpc_address) as east:
                await east.beat(0, 1)
                await until(lambda: west.state("cell-0000") == "ready")
                assert west.deltas[0].full
                await east.beat(0, 2, evidence=Evidence(reachable=False, reason="refused"))
                await until(lambda: west.state("cell-0000") == "faulted")
                assert not west.deltas[-1].full

    asyncio.run(scenario())
