"""`tradewind emulate`: runs the emulation section of a grid until SIGTERM or ^C."""

import logging
import socket
from dataclasses import replace

from tradewind.config.schema import GridConfig
from tradewind.emulator.api_process import run_api
from tradewind.emulator.engine_process import run_engine
from tradewind.emulator.exporter_process import run_exporter
from tradewind.emulator.fault_specs import FaultError, known_in
from tradewind.emulator.names import engine_name, exporter_name
from tradewind.emulator.plan import EmulationError, EmulationPlan, EngineSettings, ExporterSettings, build_plan
from tradewind.emulator.scenario import Scenario, load_scenario
from tradewind.emulator.shared import Board
from tradewind.emulator.supervisor import API, Child, Supervisor

log = logging.getLogger(__name__)


def run(config: GridConfig) -> int:
    """Blocks until told to stop; returns the exit status. Raises EmulationError for a section that cannot be run.

    Forks one process per engine and exporter and one for the fault API. Call it from a process without threads or
    event loops.
    """
    plan = build_plan(config)
    try:
        scenario = load_scenario(plan.scenario, known_in(plan))
    except FaultError as error:
        raise EmulationError(str(error)) from error
    board = Board(len(plan.engines))
    children = [_engine_child(engine, board) for engine in plan.engines]
    children += [_exporter_child(exporter, board) for exporter in plan.exporters]
    children.append(_api_child(plan, scenario))
    return Supervisor(children).run()


def _engine_child(settings: EngineSettings, board: Board) -> Child:
    def main(control: socket.socket, start_delay_s: float | None) -> int:
        delay_s = settings.start_delay_s if start_delay_s is None else start_delay_s
        return run_engine(replace(settings, start_delay_s=delay_s), control, board)

    return Child(engine_name(settings.cell_id), main, lambda: board.mark_dead(settings.slot))


def _exporter_child(settings: ExporterSettings, board: Board) -> Child:
    return Child(exporter_name(settings.site), lambda control, _: run_exporter(settings, control, board), _nothing)


def _api_child(plan: EmulationPlan, scenario: Scenario) -> Child:
    return Child(API, lambda control, _: run_api(plan, scenario, control), _nothing)


def _nothing() -> None:
    return
