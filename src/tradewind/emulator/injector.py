"""Holds the faults in force, turns them into orders and states, and keeps the log of what was injected and when."""

import asyncio
import itertools
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tradewind.emulator.fault_specs import (
    DrainParams,
    Fault,
    FaultError,
    FaultRequest,
    StartParams,
    check,
    engine_state,
    exporter_state,
    known_in,
)
from tradewind.emulator.faults import EngineFaults, ExporterFaults
from tradewind.emulator.names import engine_name, exporter_name
from tradewind.emulator.plan import EmulationPlan
from tradewind.emulator.scenario import Scenario
from tradewind.emulator.supervisor import Order, Report

LOG_ENTRIES = 10_000  # older ones are dropped
COLD_START_DELAY_S = 10.0
APPLY_TIMEOUT_S = 2.0
_INSTANT = frozenset({"restart", "cold_start"})  # over once done: nothing to clear


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `at_s` counts from the start of the API, `time_s` is the wall clock."""

    at_s: float
    time_s: float
    event: str  # injected | cleared | started | exited | scenario
    fault: str = ""
    fault_id: int = 0
    target: str = ""
    params: dict[str, object] = {}
    detail: str = ""


@dataclass(slots=True)
class InForce:
    """A fault that has not been cleared."""

    fault_id: int
    fault: Fault
    injected_s: float
    timer: asyncio.TimerHandle | None = None


class _Once:
    """Runs an action the first time it is asked to."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def run(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class Injector:
    """State of the fault API; `send` passes an order to the supervisor."""

    def __init__(self, plan: EmulationPlan, send: Callable[[Order], None], loop: asyncio.AbstractEventLoop) -> None:
        self.known = known_in(plan)
        self.pids: dict[str, int] = {}  # process name -> pid, 0 when down
        self.log: deque[LogEntry] = deque(maxlen=LOG_ENTRIES)
        self.in_force: dict[int, InForce] = {}
        self.scenario_started_s: float | None = None
        self._plan = plan
        self._send = send
        self._loop = loop
        self._ids = itertools.count(1)
        self._began_s = time.monotonic()
        self._restarts: dict[str, float | None] = {}  # process name -> start delay, once it has exited
        self._scenario_timers: list[asyncio.TimerHandle] = []
        self._unapplied: dict[str, int] = {}  # process name -> states sent that it has not confirmed
        self._dying: set[str] = set()  # killed, and not yet reaped
        self._waiting: list[Callable[[], None]] = []

    # -- asked for ----------------------------------------------------------------------------------------------------

    def inject(self, request: FaultRequest) -> int:
        """Injects a fault; returns its id. Raises FaultError."""
        if request.fault == "clear":
            self.clear(cell=request.cell, site=request.site, path=request.path)
            return 0
        fault = check(request, self.known)
        fault_id = next(self._ids)
        entry = InForce(fault_id, fault, time.monotonic())
        if fault.name not in _INSTANT:
            self.in_force[fault_id] = entry
            if fault.for_s is not None:
                entry.timer = self._loop.call_later(fault.for_s, self.clear_id, fault_id)
        self._note("injected", fault=fault, fault_id=fault_id)
        self._send_states()
        self._act(fault)
        return fault_id

    def clear_id(self, fault_id: int) -> bool:
        """Ends one fault; a process that it ended starts again. False if it is not in force."""
        entry = self.in_force.pop(fault_id, None)
        if entry is None:
            return False
        if entry.timer is not None:
            entry.timer.cancel()
        self._note("cleared", fault=entry.fault, fault_id=fault_id)
        self._send_states()
        self._undo(entry.fault)
        return True

    def clear(self, *, cell: str | None = None, site: str | None = None, path: tuple[str, str] | None = None) -> int:
        """Ends every fault, or those of one target; returns how many."""
        cleared = 0
        for fault_id, entry in list(self.in_force.items()):
            fault = entry.fault
            wanted_path = path is not None and fault.path is not None and set(path) == set(fault.path)
            everything = cell is None and site is None and path is None
            if everything or wanted_path or (cell and fault.cell == cell) or (site and fault.site == site):
                cleared += self.clear_id(fault_id)
        return cleared

    def start_scenario(self, scenario: Scenario) -> None:
        """Starts a scenario; one that runs is stopped first, its faults stay. Raises FaultError for an empty one."""
        if not scenario.events:
            raise FaultError("scenario: is empty; name a file in emulation.scenario or POST a list to /scenario")
        self.stop_scenario()
        self.scenario_started_s = time.monotonic()
        self._note("scenario", detail=f"started, {len(scenario.events)} events")
        for event in scenario.events:
            timer = self._loop.call_later(event.at_s, self._run_event, event.request())
            self._scenario_timers.append(timer)

    def stop_scenario(self) -> None:
        """Cancels what has not happened yet."""
        for timer in self._scenario_timers:
            timer.cancel()
        self._scenario_timers.clear()
        self.scenario_started_s = None

    def when_applied(self, action: Callable[[], None]) -> None:
        """Calls `action` once everything asked for so far is in force, or after APPLY_TIMEOUT_S."""
        once = _Once(action)
        self._waiting.append(once.run)
        self._loop.call_later(APPLY_TIMEOUT_S, once.run)
        self._settle()

    # -- told by the supervisor ---------------------------------------------------------------------------------------

    def on_report(self, report: Report) -> None:
        """A process has started, has ended, or has taken over its faults."""
        if report.event == "applied":
            self._unapplied[report.name] = self._unapplied.get(report.name, 0) - 1
            self._settle()
            return
        self._unapplied.pop(report.name, None)
        self._dying.discard(report.name)
        self.pids[report.name] = report.pid if report.event == "started" else 0
        detail = f"pid {report.pid}" + (f", status {report.status}" if report.event == "exited" else "")
        self._note(report.event, target=report.name, detail=detail)
        if report.event == "started":
            self._send_state(report.name)
        elif report.name in self._restarts:
            self._send(Order(op="start", name=report.name, start_delay_s=self._restarts.pop(report.name)))
        self._settle()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _run_event(self, request: FaultRequest) -> None:
        self.inject(request)  # checked when the scenario was loaded

    def _act(self, fault: Fault) -> None:
        """The part of a fault that is an act on a process, not a state."""
        match fault.name:
            case "kill":
                self._signal(engine_name(fault.cell or ""), signal.SIGKILL)
            case "drain":
                assert isinstance(fault.params, DrainParams)
                self._signal(engine_name(fault.cell or ""), signal.SIGTERM)
            case "restart" | "cold_start":
                assert isinstance(fault.params, StartParams)
                delay_s = fault.params.start_delay_s
                if delay_s is None and fault.name == "cold_start":
                    delay_s = COLD_START_DELAY_S
                self._restart(engine_name(fault.cell or ""), delay_s)
            case "exporter_dead" if fault.site is not None:
                self._signal(exporter_name(fault.site), signal.SIGKILL)
            case _:
                return

    def _undo(self, fault: Fault) -> None:
        """Starts the process that a cleared fault had ended, unless another fault still wants it down."""
        if fault.name in ("kill", "drain") and not self._held_down(cell=fault.cell):
            self._start_when_down(engine_name(fault.cell or ""))
        elif fault.name == "exporter_dead" and fault.site is not None and not self._held_down(site=fault.site):
            self._start_when_down(exporter_name(fault.site))

    def _held_down(self, *, cell: str | None = None, site: str | None = None) -> bool:
        down = ("kill", "drain") if cell is not None else ("exporter_dead",)
        return any(
            entry.fault.name in down and (entry.fault.cell, entry.fault.site) == (cell, site)
            for entry in self.in_force.values()
        )

    def _restart(self, name: str, start_delay_s: float | None) -> None:
        """Ends a process that runs and starts it (again); ends the kills and drains that kept it down."""
        for fault_id, entry in list(self.in_force.items()):
            if entry.fault.name in ("kill", "drain") and engine_name(entry.fault.cell or "") == name:
                del self.in_force[fault_id]
                if entry.timer is not None:
                    entry.timer.cancel()
        self._restarts.pop(name, None)
        if self.pids.get(name):
            self._restarts[name] = start_delay_s
            self._signal(name, signal.SIGKILL)
        else:
            self._send(Order(op="start", name=name, start_delay_s=start_delay_s))

    def _start_when_down(self, name: str) -> None:
        if self.pids.get(name):
            self._restarts[name] = None  # a drain may still be running
        else:
            self._send(Order(op="start", name=name))

    def _settle(self) -> None:
        if self._dying or any(count > 0 for count in self._unapplied.values()):
            return
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def _signal(self, name: str, number: signal.Signals) -> None:
        if number == signal.SIGKILL and self.pids.get(name):
            self._dying.add(name)
        self._send(Order(op="signal", name=name, signal=int(number)))

    def _send_states(self) -> None:
        for name, pid in self.pids.items():
            if pid:
                self._send_state(name)

    def _send_state(self, name: str) -> None:
        faults = [entry.fault for entry in self.in_force.values()]
        for engine in self._plan.engines:
            if engine_name(engine.cell_id) == name:
                self._order_state(name, engine_state(faults, cell=engine.cell_id, site=engine.site))
        for exporter in self._plan.exporters:
            if exporter_name(exporter.site) == name:
                uuids = {
                    engine.cell_id: engine.gpu_uuids for engine in self._plan.engines if engine.site == exporter.site
                }
                self._order_state(name, exporter_state(faults, site=exporter.site, uuids_of=uuids))

    def _order_state(self, name: str, state: EngineFaults | ExporterFaults) -> None:
        self._unapplied[name] = self._unapplied.get(name, 0) + 1
        self._send(Order(op="state", name=name, state=msgspec.Raw(msgspec.json.encode(state))))

    def _note(
        self, event: str, *, fault: Fault | None = None, fault_id: int = 0, target: str = "", detail: str = ""
    ) -> None:
        self.log.append(
            LogEntry(
                at_s=round(time.monotonic() - self._began_s, 6),
                time_s=round(time.time(), 6),
                event=event,
                fault=fault.name if fault else "",
                fault_id=fault_id,
                target=fault.target if fault else target,
                params=msgspec.structs.asdict(fault.params) if fault else {},
                detail=detail,
            )
        )
