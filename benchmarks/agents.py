"""What an agent costs: CPU per cell at 1 Hz scrapes of a full vLLM page, 500 ms heartbeats and 250 ms liveness."""

import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import msgspec

from tests.fakes.control import FakeControl
from tests.support.emulator import EngineSpec, emulator
from tradewind.config.schema import AgentConfig, CellConfig, ControlConfig, GridConfig
from tradewind.control.service import ACK_INTERVAL_S
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.instant.usage import cpu_s, rss_bytes

CELLS = (1, 9)
WARM_S = 6.0
WORK_INTERVAL_S = 0.5
_START = (
    "import sys; from pathlib import Path; from tradewind.config.load import load; "
    "from tradewind.agent.main import run; sys.exit(run(load(Path(sys.argv[1])), 'agent'))"
)


def bench(quick: bool) -> list[Check]:
    seconds = 10.0 if quick else 30.0
    rows = []
    for cells in CELLS:
        share, memory = measure(cells, seconds)
        what = "one cell" if cells == 1 else f"{cells} cells"
        name = f"agent of {what}, CPU per cell (1 Hz scrape, 2 Hz heartbeat)"
        rows.append(at_most(name, share * 100, 1.0, unit="% of a core"))
        rows.append(reported(f"agent of {what}, memory", memory, unit="MB"))
    return rows


def measure(count: int, seconds: float) -> tuple[float, float]:
    """(cores per cell, MB of the agent), while engines serve so much that no page is like the one before."""
    specs = [EngineSpec(cell=f"c{number}", profile="fast") for number in range(count)]
    control = FakeControl(reply_interval_s=ACK_INTERVAL_S)
    with emulator(*specs) as engines, control, tempfile.TemporaryDirectory() as name:
        urls = [engines.urls[spec.cell] for spec in specs]
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
            keep_busy(urls, WARM_S)
            before_s, started_s = cpu_s(agent.pid), time.perf_counter()
            keep_busy(urls, seconds)
            share = (cpu_s(agent.pid) - before_s) / (time.perf_counter() - started_s) / count
            return share, rss_bytes(agent.pid) / 1e6
        finally:
            agent.terminate()
            agent.wait()


def keep_busy(urls: list[str], seconds: float) -> None:
    """Some work for every engine, all of them in turn, once a scrape or more."""
    body = f'{{"model":"{EngineSpec().model}","prompt":"wind","max_tokens":8}}'.encode()
    until_s = time.perf_counter() + seconds
    while (left_s := until_s - time.perf_counter()) > 0:
        for url in urls:
            request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=10) as response:
                response.read()
        time.sleep(min(left_s, WORK_INTERVAL_S))
