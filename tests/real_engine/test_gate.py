"""kill -9 of a real vLLM in which requests wait: what had no token is served by the other one."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.contract.client import DONE, Stream, eventually
from tests.contract.engine import LIMITS
from tests.contract.requests import CHAT, chat
from tests.real_engine.install import installed_or_skip
from tests.real_engine.vllm import RealEngine
from tests.support.up import Up, running_up
from tradewind.config.schema import CellConfig, GatewayConfig, GridConfig

pytestmark = pytest.mark.real_engine

DYING, LIVING = "east-0", "east-1"
STREAMS = 12
TOKENS = 60
BACK_S = 120.0
SERVED_S = 180.0  # the living one serves one request at a time


@dataclass
class Asked:
    """One client: when its first event came, how many came, and whether the stream ended as it should."""

    first_s: float | None = None
    events: list[object] = field(default_factory=list)
    status: int = 0
    whole: bool = False

    def run(self, up: Up, number: int) -> None:
        with contextlib.suppress(OSError):
            body = chat(f"wind {number}", max_tokens=TOKENS, stream=True)
            with Stream(up, CHAT, body, timeout_s=SERVED_S) as stream:
                self.status = stream.status
                for event in stream:
                    self.first_s = self.first_s or time.monotonic()
                    self.events.append(event)
                self.whole = stream.cut is False and self.events[-1] == DONE


@dataclass
class Pair:
    """Two engines that serve one request at a time, and the grid above them."""

    engines: dict[str, RealEngine]
    up: Up
    killed: bool = False

    def both_ready(self) -> None:
        if self.killed:
            self.restart(DYING)
        self.up.until(
            lambda cells: all(cell.weight is not None for cell in cells.values()), within_s=BACK_S, what="both serve"
        )

    def restart(self, cell: str) -> None:
        port = self.engines[cell].port
        self.engines[cell].close()
        self.engines[cell] = RealEngine(port=port, limits=ONE_AT_A_TIME)
        self.killed = False


ONE_AT_A_TIME = replace(LIMITS, max_num_seqs=1, max_num_queued_reqs=64)


def close_all(engines: dict[str, RealEngine]) -> None:
    for engine in engines.values():
        engine.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    installed_or_skip()
    engines: dict[str, RealEngine] = {}
    with contextlib.ExitStack() as ended:
        ended.callback(close_all, engines)
        for cell in (DYING, LIVING):  # one after the other: a start takes all the CPU there is
            engines[cell] = RealEngine(limits=ONE_AT_A_TIME)
        cells = [CellConfig(id=cell, site="east", url=f"http://127.0.0.1:{e.port}") for cell, e in engines.items()]
        grid = GridConfig(grid="gate", sites=["east"], gateways=[GatewayConfig(site="east")], cells=cells, dashboard="")
        yield Pair(engines, ended.enter_context(running_up(grid, tmp_path_factory.mktemp("gate"))))


@pytest.mark.parametrize("victim", ["EngineCore", "API server"])
def test_what_waits_in_an_engine_that_is_killed_is_served_by_the_other(pair: Pair, victim: str) -> None:
    pair.both_ready()
    asked = [Asked() for _ in range(STREAMS)]
    threads = [threading.Thread(target=one.run, args=(pair.up, number)) for number, one in enumerate(asked)]
    for thread in threads:
        thread.start()
    # Both serve one, so the rest waits in them with its headers sent, which the gate holds.
    eventually(lambda: sum(one.first_s is not None for one in asked) >= 2, within_s=60.0, what="both serve one")
    killed_s = time.monotonic()
    kill(pair.engines[DYING], victim)
    pair.killed = True
    for thread in threads:
        thread.join()
    waited = [one for one in asked if one.first_s is None or one.first_s > killed_s]
    assert len(waited) >= STREAMS // 2
    assert [(one.status, one.whole) for one in waited] == [(200, True)] * len(waited)
    assert all("error" not in str(event) for one in waited for event in one.events)
    eventually(lambda: moved(pair.up) > 0, within_s=10.0, what="retries are logged")


def moved(up: Up) -> int:
    """Requests that were served at a second attempt."""
    return sum(truth.attempts > 1 for truth in up.requests().values())


def kill(engine: RealEngine, victim: str) -> None:
    """kill -9 of the API server, or of the process that it calls its engine core."""
    pid = engine.pid if victim == "API server" else engine_core(engine.pid)
    os.kill(pid, signal.SIGKILL)


def engine_core(parent: int) -> int:
    """The child of the API server that names itself so."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == parent and b"EngineCore" in (entry / "cmdline").read_bytes():
                return int(entry.name)
    raise AssertionError(f"no EngineCore under {parent}")
