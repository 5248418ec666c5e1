"""A grid file that changes while the grid is up: a valid change is applied, an invalid one is said and ignored."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tradewind.config.errors import ConfigError
from tradewind.config.resolve import resolve, write_resolved
from tradewind.config.schema import AgentConfig, CellConfig, GridConfig
from tradewind.gateway.reload import ConfigWatch
from tradewind.lab.processes import process_specs
from tradewind.runtime.supervise import StartFailed, Supervisor

POLL_S = 1.0


class Reloader:
    """Follows one grid file. Gateways watch the settled file themselves; the rest is restarted where it changed.

    No port moves and no Envoy is touched, so requests in flight never notice.
    """

    def __init__(
        self,
        file: Path,
        grid: GridConfig,
        supervisor: Supervisor,
        *,
        override: Callable[[GridConfig], GridConfig],
        say: Callable[[str], None],
    ) -> None:
        self.grid = grid
        self._watch = ConfigWatch(file, grid)
        self._supervisor = supervisor
        self._override = override
        self._say = say
        self._failures_said = 0
        self._refused_said = ""

    async def run(self) -> None:
        """Poll for ever."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.poll()

    async def poll(self) -> None:
        """Apply the file if it has changed."""
        changed = self._watch.poll()
        if self._watch.failures > self._failures_said:
            self._failures_said = self._watch.failures
            self._say(f"the grid file has a mistake, the old one stays in force:\n{self._watch.last_error}")
        if changed is None:
            return
        try:
            new = resolve(self._override(changed), keep=self.grid)
            if new == self.grid:
                return
            path = write_resolved(new)
        except (ConfigError, OSError) as error:
            # The file stays as it is; a disk that is full, or a port that is taken, does not.
            self._refuse(str(error), for_now=isinstance(error, OSError))
            return
        self._refused_said = ""
        old, self.grid = self.grid, new
        await self._follow(old, new, path)

    def _refuse(self, reason: str, *, for_now: bool) -> None:
        self._watch.refuse(reason, for_now=for_now)
        self._failures_said = self._watch.failures
        if reason != self._refused_said:
            self._refused_said = reason
            self._say(f"the changed grid file cannot be applied, the old one stays in force: {reason}")

    async def _follow(self, old: GridConfig, new: GridConfig, path: Path) -> None:
        wanted = {spec.name: spec for spec in process_specs(new, path)}
        running = set(self._supervisor.names())
        for name in sorted(running - wanted.keys()):
            await self._supervisor.remove(name)
            self._say(f"{name} is gone from the file and was stopped")
        for name, spec in wanted.items():
            if name not in running:
                self._supervisor.add(spec)
        for name in [*changed_processes(old, new), *sorted(wanted.keys() - running)]:
            if name in wanted:
                await self._restart(name)
        self._say("the changed grid file is in force")
        if old.emulation != new.emulation:
            self._say("changes of the emulation take effect at the next start of `tradewind up`")

    async def _restart(self, name: str) -> None:
        try:
            await self._supervisor.restart(name)
        except StartFailed as error:
            self._say(str(error))


def changed_processes(old: GridConfig, new: GridConfig) -> list[str]:
    """Names of the processes of both grids that must be restarted to see what changed."""
    controls = {item.id: item for item in old.controls}
    agents = {item.id: item for item in old.agents}
    names = [f"control-{item.id}" for item in new.controls if item.id in controls and controls[item.id] != item]
    names += [
        f"agent-{item.id}"
        for item in new.agents
        if item.id in agents
        and (agents[item.id] != item or _cells_of(agents[item.id], old) != _cells_of(item, new) or _controls(old, new))
    ]
    if old.dashboard and new.dashboard and (old.dashboard != new.dashboard or _controls(old, new)):
        names.append("dashboard")
    return names


def _cells_of(agent: AgentConfig, grid: GridConfig) -> list[CellConfig]:
    return [cell for cell in grid.cells if not agent.cells or cell.id in agent.cells]


def _controls(old: GridConfig, new: GridConfig) -> bool:
    return [(item.id, item.listen) for item in old.controls] != [(item.id, item.listen) for item in new.controls]
