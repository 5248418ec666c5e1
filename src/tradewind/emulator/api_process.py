"""The fault API as a process: small JSON over HTTP; errors say what to write.

GET /health, /state, /log, /faults (what can be injected), /scenario; POST /faults, /clear, /scenario (load a list),
/scenario/start, /scenario/stop; DELETE /faults/<id>.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import uvloop

from tradewind.emulator.fault_specs import SPECS, FaultError, FaultRequest
from tradewind.emulator.http import Exchange, HttpServer
from tradewind.emulator.injector import Injector
from tradewind.emulator.names import engine_name, exporter_name
from tradewind.emulator.plan import EmulationPlan
from tradewind.emulator.scenario import Scenario, parse_scenario
from tradewind.emulator.supervisor import Order, Report
from tradewind.emulator.wan import Listener

log = logging.getLogger(__name__)
_PACKET_BYTES = 1 << 20
Body = dict[str, object]
T = TypeVar("T")


class ClearRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to clear; nothing given clears everything."""

    id: int | None = None
    cell: str | None = None
    site: str | None = None
    path: tuple[str, str] | None = None


def run_api(plan: EmulationPlan, scenario: Scenario, control: socket.socket) -> int:
    """Runs until the other end of `control` closes or SIGTERM. Returns the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(plan, scenario, control))
    return 0


async def _main(plan: EmulationPlan, scenario: Scenario, control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    injector = Injector(plan, lambda order: _send(control, order), loop)
    api = Api(plan, injector, scenario)
    server = HttpServer(api, loop)
    control.setblocking(False)

    def on_control() -> None:
        packet = control.recv(_PACKET_BYTES)
        if packet:
            injector.on_report(msgspec.json.decode(packet, type=Report))
        else:
            loop.remove_reader(control.fileno())
            ended.set()

    loop.add_reader(control.fileno(), on_control)
    listener = Listener(address=plan.api, factory=server.factory(), loop=loop)
    log.info("event=emulator.api address=%s", listener.address)
    await ended.wait()
    listener.close()


def _send(control: socket.socket, order: Order) -> None:
    try:
        control.send(msgspec.json.encode(order), socket.MSG_DONTWAIT)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        log.warning("event=emulator.order_lost op=%s process=%s", order.op, order.name)


class Api:
    """Routes of the fault API."""

    def __init__(self, plan: EmulationPlan, injector: Injector, scenario: Scenario) -> None:
        self._plan = plan
        self._injector = injector
        self._scenario = scenario
        self._routes: dict[tuple[str, str], Callable[[bytes], Body]] = {
            ("GET", "/health"): lambda _: {"status": "ok"},
            ("GET", "/state"): lambda _: self._state(),
            ("GET", "/log"): lambda _: {"entries": msgspec.to_builtins(list(injector.log))},
            ("GET", "/faults"): lambda _: {"faults": _catalogue()},
            ("GET", "/scenario"): lambda _: {"events": msgspec.to_builtins(self._scenario.events)},
            ("POST", "/faults"): self._inject,
            ("POST", "/clear"): self._clear,
            ("POST", "/scenario"): self._load,
            ("POST", "/scenario/start"): self._start,
            ("POST", "/scenario/stop"): self._stop,
        }

    def handle(self, exchange: Exchange) -> None:
        """Answers one request."""
        method, path = exchange.request.method, exchange.request.path
        if method == "DELETE" and path.startswith("/faults/"):
            fault_id = path.removeprefix("/faults/")
            found = fault_id.isdigit() and self._injector.clear_id(int(fault_id))
            self._injector.when_applied(lambda: _answer(exchange, 200 if found else 404, {"cleared": int(found)}))
            return
        route = self._routes.get((method, path))
        if route is None:
            known = ", ".join(f"{known_method} {known_path}" for known_method, known_path in self._routes)
            _answer(exchange, 404, {"error": f"no {method} {path}; there are {known}, DELETE /faults/<id>"})
            return
        try:
            body = route(exchange.request.body)
            if method == "GET":
                _answer(exchange, 200, body)
            else:
                # A fault is in force when its request is answered: a test need not wait or guess.
                self._injector.when_applied(lambda: _answer(exchange, 200, body))
        except FaultError as error:
            _answer(exchange, 400, {"error": str(error)})

    def _inject(self, body: bytes) -> Body:
        example = SPECS["hang"].example
        request = _decode(body, FaultRequest, f"write e.g. {example}")
        return {"id": self._injector.inject(request)}

    def _clear(self, body: bytes) -> Body:
        request = _decode(body or b"{}", ClearRequest, 'write e.g. {"cell": "a1"}, {"id": 3} or {} for everything')
        if request.id is not None:
            return {"cleared": int(self._injector.clear_id(request.id))}
        return {"cleared": self._injector.clear(cell=request.cell, site=request.site, path=request.path)}

    def _load(self, body: bytes) -> Body:
        self._scenario = parse_scenario(_decode(body, object, "write a JSON list of events"), self._injector.known)
        return {"events": len(self._scenario.events)}

    def _start(self, _: bytes) -> Body:
        self._injector.start_scenario(self._scenario)
        return {"events": len(self._scenario.events)}

    def _stop(self, _: bytes) -> Body:
        self._injector.stop_scenario()
        return {}

    def _state(self) -> Body:
        injector = self._injector
        started_s = injector.scenario_started_s
        return {
            "engines": [
                {
                    "cell": engine.cell_id,
                    "site": engine.site,
                    "profile": engine.profile,
                    "address": engine.address,
                    "listen": {site: address for site, (address, _) in engine.paths.items()},
                    "gpu_uuids": list(engine.gpu_uuids),
                    "pid": injector.pids.get(engine_name(engine.cell_id)) or None,
                    "faults": self._faults_on(cell=engine.cell_id, site=engine.site),
                }
                for engine in self._plan.engines
            ],
            "exporters": [
                {
                    "site": exporter.site,
                    "address": exporter.address,
                    "pid": injector.pids.get(exporter_name(exporter.site)) or None,
                    "faults": self._faults_on(exporter_site=exporter.site),
                }
                for exporter in self._plan.exporters
            ],
            "scenario_s": None if started_s is None else round(time.monotonic() - started_s, 3),
        }

    def _faults_on(self, *, cell: str = "", site: str = "", exporter_site: str = "") -> list[Body]:
        return [
            {
                "id": entry.fault_id,
                "fault": entry.fault.name,
                "target": entry.fault.target,
                "params": msgspec.structs.asdict(entry.fault.params),
                "in_force_s": round(time.monotonic() - entry.injected_s, 3),
                "for_s": entry.fault.for_s,
            }
            for entry in self._injector.in_force.values()
            if (cell and (entry.fault.cell == cell or site in (entry.fault.path or ())))
            or (exporter_site and entry.fault.site == exporter_site)
        ]


def _catalogue() -> dict[str, Body]:
    return {
        name: {"targets": list(spec.targets), "params": list(spec.params.__struct_fields__), "example": spec.example}
        for name, spec in SPECS.items()
    }


def _decode(body: bytes, kind: type[T], advice: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FaultError(f"body: {error}; {advice}") from error


def _answer(exchange: Exchange, status: int, body: Body) -> None:
    payload = msgspec.json.encode(body)
    exchange.respond(status, payload, (("content-length", str(len(payload))), ("content-type", "application/json")))
