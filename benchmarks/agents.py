"""What an agent costs: CPU per cell at 1 Hz scrapes of a full vLLM page, 500 ms heartbeats and 250 ms liveness."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.usage import cpu_s, rss_bytes
from tests.fakes.control import FakeControl
from tests.support.emulator import EngineSpec, emulator
from tradewind.config.schema import AgentConfig, CellConfig, ControlConfig, GridConfig
from tradewind.lab.checks import Check, at_most, reported

CELLS = 9
WARM_S = 6.0
_START = (
    "import sys; from pathlib import Path; from tradewind.config.load import load; "
    "from tradewind.agent.main import run; sys.exit(run(load(Path(sys.argv[1])), 'agent'))"
)


def bench(quick: bool) -> list[Check]:
    seconds = 10.0 if quick else 30.0
    specs = [EngineSpec(cell=f"c{number}", profile="fast") for number in range(CELLS)]
    with emulator(*specs) as engines, FakeControl() as control, tempfile.TemporaryDirectory() as name:
        cells = [CellConfig(id=spec.cell, site="east", url=engines.urls[spec.cell]) for spec in specs]
        config = GridConfig(
            state_dir=name,
            controls=[ControlConfig(id="control", listen=control.address)],
            agents=[AgentConfig(id="agent")],
            cells=cells,
        )
        path = Path(name) / "grid.json"
        path.write_bytes(msgspec.json.encode(config))
        agent = subprocess.Popen([sys.executable, "-c", _START, str(path)], stderr=subprocess.DEVNULL)
        try:
            control.wait_for(lambda beat: beat.evidence.warmed_up, timeout_s=20)
            time.sleep(WARM_S)
            before_s, started_s = cpu_s(agent.pid), time.perf_counter()
            time.sleep(seconds)
            share = (cpu_s(agent.pid) - before_s) / (time.perf_counter() - started_s) / CELLS
            memory = rss_bytes(agent.pid) / 1e6
        finally:
            agent.terminate()
            agent.wait()
    return [
        at_most("agent, CPU per cell (1 Hz scrape, 2 Hz heartbeat)", share * 100, 1.0, unit="% of a core"),
        reported("agent, memory for nine cells", memory, unit="MB"),
    ]
