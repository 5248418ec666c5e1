"""A live grid under a programme's control: started, broken, watched, loaded and ended by demo, checks and tests."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from tradewind.config.check import check
from tradewind.config.resolve import resolve, write_resolved
from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.lab import watch
from tradewind.lab.client import LoadClient, Target
from tradewind.lab.emulated import EmulatedCells
from tradewind.lab.processes import envoy_name, process_specs, worker_name
from tradewind.lab.truth import RequestTruth, join_truth, read_request_log
from tradewind.lab.up import until_routable
from tradewind.measure.record import Record
from tradewind.runtime.ask import ask_async
from tradewind.runtime.supervise import ProcessSpec, Supervisor
from tradewind.workload.plan import Plan

POLL_S = 0.02
LOG_SETTLE_S = 5.0  # at most
LOG_QUIET_S = 1.5  # the gateway appends its request log twice a second: what is not in it by then will not come


class LiveGrid:
    """Async context manager over a supervised grid. Enter it from the main thread."""

    def __init__(
        self,
        grid: GridConfig,
        *,
        say: Callable[[str], None] = lambda _line: None,
        change: Callable[[list[ProcessSpec]], list[ProcessSpec]] = lambda specs: specs,
    ) -> None:
        """`change` may add to or alter the processes, e.g. put a real engine beside the emulated ones."""
        self.grid = resolve(check(grid))
        self._say = say
        self._change = change
        self._supervisor = Supervisor(Path(self.grid.state_dir))
        self.emulated = EmulatedCells(self.grid)

    async def __aenter__(self) -> Self:
        path = write_resolved(self.grid)
        await self._supervisor.__aenter__()
        try:
            for spec in self._change(process_specs(self.grid, path)):
                self._supervisor.add(spec)
            await self._supervisor.start_all(self._say)
            await until_routable(self.grid, self._say)
        except BaseException:
            await self._supervisor.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._supervisor.__aexit__(*exc)

    # --- names ------------------------------------------------------------------------------------------------

    @property
    def gateway(self) -> GatewayConfig:
        """The first gateway."""
        return self.grid.gateways[0]

    @property
    def worker(self) -> str:
        """The process of the first gateway."""
        return worker_name(self.gateway)

    @property
    def envoy(self) -> str:
        """The process of the first gateway's Envoy."""
        return envoy_name(self.gateway)

    @property
    def control(self) -> str:
        """The process of the first control."""
        return f"control-{self.grid.controls[0].id}"

    @property
    def agent(self) -> str:
        """The process of the first agent."""
        return f"agent-{self.grid.agents[0].id}"

    @property
    def cell_ids(self) -> list[str]:
        """All cells of the file."""
        return [cell.id for cell in self.grid.cells]

    def target(self, *, model: str = "", timeout_s: float = 120.0) -> Target:
        """The gateway's address as a load target."""
        chosen = model or (self.grid.models[0] if self.grid.models else "")
        return Target(address=self.gateway.listen, model=chosen, timeout_s=timeout_s)

    # --- faults -----------------------------------------------------------------------------------------------

    async def inject(
        self,
        fault: str,
        *,
        cell: str | None = None,
        site: str | None = None,
        path: tuple[str, str] | None = None,
        for_s: float | None = None,
        params: Mapping[str, object] | None = None,
    ) -> int:
        """Inject a fault of the emulator and return its id. Raises AskFailed with the emulator's advice."""
        return await self.emulated.inject(fault, cell=cell, site=site, path=path, for_s=for_s, params=params)

    async def clear(self, fault_id: int) -> None:
        """End one fault; a process that it ended starts again. Raises AskFailed."""
        await self.emulated.clear(fault_id)

    async def clear_all(self) -> None:
        """End every fault. Raises AskFailed."""
        await self.emulated.clear_all()

    async def engine_pid(self, cell: str) -> int | None:
        """The pid of an emulated engine, None while it is down. Raises AskFailed."""
        return await self.emulated.pid(cell)

    async def start_engine(self, cell: str) -> None:
        """Start an emulated engine that was killed from outside, and wait until the gateway routes to it again."""
        await self.inject("restart", cell=cell)
        await self.until(lambda cells: cells[cell].weight is not None, within_s=30, what=f"{cell} is back")

    # --- processes --------------------------------------------------------------------------------------------

    async def stop(self, name: str) -> None:
        """End a process, by SIGTERM, and keep it down."""
        await self._supervisor.stop(name)

    async def crash(self, name: str) -> None:
        """Kill a process with SIGKILL and keep it down."""
        await self._supervisor.stop(name, number=9)

    async def start(self, name: str) -> None:
        """Start a process that is down, and wait until it is ready. Raises StartFailed."""
        await self._supervisor.start(name)

    def forget(self, name: str) -> None:
        """Take a control's memory from it; it must be down."""
        for path in Path(self.grid.state_dir).glob(f"{name}.sqlite*"):
            path.unlink()

    def pid(self, name: str) -> int | None:
        """The pid of a running process."""
        return self._supervisor.pid(name)

    def log_path(self, name: str) -> Path:
        """Where a process writes."""
        return self._supervisor.log_path(name)

    async def drain(self, cell: str) -> None:
        """An operator's drain. Raises AskFailed."""
        await ask_async(self.grid.controls[0].admin, f"/v1/cells/{cell}/drain", method="POST", body={"reason": "lab"})

    async def undrain(self, cell: str) -> None:
        """The end of an operator's drain. Raises AskFailed."""
        await ask_async(self.grid.controls[0].admin, f"/v1/cells/{cell}/undrain", method="POST")

    # --- watching ---------------------------------------------------------------------------------------------

    async def cells(self) -> dict[str, watch.CellSeen]:
        """The cells as the first gateway sees them. Raises AskFailed."""
        return {cell.cell_id: cell for cell in await watch.gateway_cells(self.gateway)}

    async def max_model_len(self, cell: str) -> int | None:
        """The limit that control knows of a cell; None when the engine did not say. Raises AskFailed."""
        row = await ask_async(self.grid.controls[0].admin, f"/v1/cells/{cell}")
        known = row.get("max_model_len") if isinstance(row, dict) else None
        return known if isinstance(known, int) else None

    async def shares(self) -> dict[str, float]:
        """Share of the gateway's weight by cell; a cell in no pool has 0. Raises AskFailed."""
        return {cell_id: cell.share for cell_id, cell in (await self.cells()).items()}

    async def until(
        self, holds: Callable[[Mapping[str, watch.CellSeen]], bool], *, within_s: float, what: str = "condition"
    ) -> float:
        """Poll the cells until they are as wanted; returns the seconds it took. Raises TimeoutError naming `what`."""
        begin_s = time.monotonic()
        while not holds(await self.cells()):
            if time.monotonic() - begin_s > within_s:
                raise TimeoutError(f"{what}: not within {within_s:g} s")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - begin_s

    # --- load -------------------------------------------------------------------------------------------------

    async def load(self, plan: Plan, *, client: LoadClient | None = None) -> list[Record]:
        """Run a plan against the gateway; the records know which cell served them."""
        chosen = client or LoadClient(self.target())
        return await self.join(await chosen.run(plan))

    async def join(self, records: Sequence[Record]) -> list[Record]:
        """Add to records what the gateway's request log knows of them: cell, attempts, start of the served attempt."""
        wanted = {record.request_id for record in records if record.headers_s is not None}
        deadline_s = time.monotonic() + LOG_SETTLE_S
        quiet_until_s = 0.0
        truth: dict[str, RequestTruth] = {}
        while wanted - truth.keys() and time.monotonic() < deadline_s:
            known = await asyncio.to_thread(self.request_truth)
            now_s = time.monotonic()
            if len(known) > len(truth) or not quiet_until_s:
                quiet_until_s = now_s + LOG_QUIET_S
            truth = known
            if now_s > quiet_until_s:
                break
            await asyncio.sleep(0.1)
        return [join_truth(record, truth.get(record.request_id)) for record in records]

    def request_truth(self) -> dict[str, RequestTruth]:
        """What the gateways' request logs say, by request id."""
        known: dict[str, RequestTruth] = {}
        for gateway in self.grid.gateways:
            known.update(read_request_log(Path(self.grid.state_dir) / f"gateway-{gateway.id}" / "requests.ndjson"))
        return known


def without_agent_links(grid: GridConfig) -> GridConfig:
    """The grid with an agent that cannot reach any control: for tests of silence."""
    return replace(grid, controls=[replace(control, listen="127.0.0.1:9") for control in grid.controls])
