"""The engines under test: the emulator in every run, a real vLLM under the marker `real_engine`."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.contract.client import eventually, get
from tests.contract.emulated import EmulatedEngine
from tests.contract.engine import Engine
from tests.contract.metrics import running, waiting
from tests.real_engine.install import installed_or_skip
from tests.real_engine.vllm import RealEngine

IDLE_S = 20.0


class Bench:
    """Holds one engine at a time and starts another when a check has ended it."""

    def __init__(self, start: Callable[[], Engine]) -> None:
        self._start = start
        self._engine: Engine | None = None

    def engine(self) -> Engine:
        """An engine that serves."""
        if self._engine is None or not serves(self._engine):
            self.close()
            self._engine = self._start()
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def serves(engine: Engine) -> bool:
    with contextlib.suppress(OSError):
        return get(engine, "/health").status == 200
    return False


@pytest.fixture(scope="package", params=["emulator", pytest.param("vllm", marks=pytest.mark.real_engine)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "vllm":
        installed_or_skip()
    bench = Bench(RealEngine if request.param == "vllm" else EmulatedEngine)
    yield bench
    bench.close()


@pytest.fixture
def engine(bench: Bench) -> Iterator[Engine]:
    """A serving engine with nothing to do; a check may end it, but not leave it busy."""
    engine = bench.engine()
    yield engine
    if serves(engine):
        eventually(
            lambda: running(engine) + waiting(engine) == 0, within_s=IDLE_S, what="the check left the engine idle"
        )
