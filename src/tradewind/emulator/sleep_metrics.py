"""The sleep-mode families of vLLM's page: they are on it once a sleep or wake-up has been asked for."""

import time
from collections.abc import Iterator

from tradewind.emulator.exposition import Histogram, number

BOUNDS = (0.01, 0.1, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_DURATION = "vllm:sleep_mode_operation_duration_seconds"
_IN_FLIGHT = "vllm:sleep_mode_operations_in_flight"
_DURATION_HELP = "Duration of one sleep-mode operation."


class SleepMetrics:
    """Counts operations by name."""

    def __init__(self) -> None:
        self._operations: dict[str, tuple[Histogram, float]] = {}

    def observe(self, operation: str, duration_s: float) -> None:
        """Counts one operation, "sleep" or "wake_up"."""
        if operation not in self._operations:
            self._operations[operation] = (Histogram(BOUNDS), time.time())
        self._operations[operation][0].observe(duration_s)

    def lines(self) -> Iterator[str]:
        """The families, or nothing."""
        if not self._operations:
            return
        yield from _head(_DURATION, _DURATION_HELP, "histogram")
        for operation, (histogram, _) in self._operations.items():
            for bound, value in zip((*BOUNDS, "+Inf"), histogram.cumulative(), strict=True):
                yield f'{_DURATION}_bucket{{le="{bound}",operation="{operation}"}} {number(value)}'
            yield f'{_DURATION}_count{{operation="{operation}"}} {number(histogram.count)}'
            yield f'{_DURATION}_sum{{operation="{operation}"}} {number(histogram.total)}'
        yield from _head(f"{_DURATION}_created", _DURATION_HELP, "gauge")
        for operation, (_, created_s) in self._operations.items():
            yield f'{_DURATION}_created{{operation="{operation}"}} {number(created_s)}'
        yield from _head(_IN_FLIGHT, "Sleep-mode operations currently awaited.", "gauge")
        for operation in self._operations:
            yield f'{_IN_FLIGHT}{{operation="{operation}"}} 0.0'


def _head(family: str, help_text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {family} {help_text}"
    yield f"# TYPE {family} {kind}"
