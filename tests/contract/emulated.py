"""The emulated engine, as the contract handles engines."""

import os
import signal
from urllib.parse import urlsplit

from tests.contract.client import eventually
from tests.contract.engine import LIMITS, MODEL
from tests.support.emulator import EngineSpec, start_emulator

CELL = "a1"
DEAD_S = 10.0


class EmulatedEngine:
    """One emulated engine on the fast profile. Starting it blocks until it serves."""

    def __init__(self) -> None:
        self._emulator = start_emulator(
            EngineSpec(
                cell=CELL,
                model=MODEL,
                max_model_len=LIMITS.max_model_len,
                max_num_seqs=LIMITS.max_num_seqs,
                max_num_queued_reqs=LIMITS.max_num_queued_reqs,
            )
        )
        port = urlsplit(self._emulator.url).port
        assert port is not None
        self.port = port

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        eventually(lambda: self._emulator.pid(CELL) is None, within_s=DEAD_S, what="the killed engine is gone")

    def close(self) -> None:
        self._emulator.stop()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._emulator.pid(CELL)
        assert pid is not None
        os.kill(pid, number)
