"""The HTTP families of vLLM's page (its instrumentator): requests, sizes and durations by handler."""

import time
from collections.abc import Iterator

from tradewind.emulator.exposition import Histogram, number

HIGHR_BOUNDS = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    *(half / 2 for half in range(2, 11)),
    7.5,
    10.0,
    30.0,
    60.0,
)
LOWR_BOUNDS = (0.1, 0.5, 1.0)
NOT_COUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})
_EPOCH_MINUS_MONOTONIC_S = time.time() - time.monotonic()


class HttpMetrics:
    """Counts responses. `handler` is the route's path, "none" for paths that no route has."""

    def __init__(self) -> None:
        self.highr = Histogram(HIGHR_BOUNDS)
        self._requests: dict[tuple[str, str, str], list[float]] = {}  # (handler, method, class) -> [count, created]
        self._request_bytes: dict[str, list[float]] = {}  # handler -> [count, sum, created]
        self._response_bytes: dict[str, list[float]] = {}
        self._durations: dict[tuple[str, str], tuple[Histogram, float]] = {}

    def observe(
        self, *, handler: str, method: str, status: int, request_bytes: int, response_bytes: int, duration_s: float
    ) -> None:
        """Counts one response; streams have no content length and count 0 response bytes."""
        if handler in NOT_COUNTED:
            return
        now_s = _EPOCH_MINUS_MONOTONIC_S + time.monotonic()
        self._requests.setdefault((handler, method, f"{status // 100}xx"), [0.0, now_s])[0] += 1
        for table, size in ((self._request_bytes, request_bytes), (self._response_bytes, response_bytes)):
            row = table.setdefault(handler, [0.0, 0.0, now_s])
            row[0] += 1
            row[1] += size
        self.highr.observe(duration_s)
        if (handler, method) not in self._durations:
            self._durations[(handler, method)] = (Histogram(LOWR_BOUNDS), now_s)
        self._durations[(handler, method)][0].observe(duration_s)

    def requests_lines(self, help_text: str) -> Iterator[str]:
        """Samples of http_requests_total and its `_created` family."""
        label = 'handler="{}",method="{}",status="{}"'
        for key, (count, _) in self._requests.items():
            yield f"http_requests_total{{{label.format(*key)}}} {number(count)}"
        if self._requests:
            yield from _created_head("http_requests", help_text)
        for key, (_, created_s) in self._requests.items():
            yield f"http_requests_created{{{label.format(*key)}}} {number(created_s)}"

    def size_lines(self, family: str, help_text: str) -> Iterator[str]:
        """Samples of http_request_size_bytes or http_response_size_bytes and their `_created` family."""
        table = self._request_bytes if family == "http_request_size_bytes" else self._response_bytes
        for handler, (count, total, _) in table.items():
            yield f'{family}_count{{handler="{handler}"}} {number(count)}'
            yield f'{family}_sum{{handler="{handler}"}} {number(total)}'
        if table:
            yield from _created_head(family, help_text)
        for handler, (_, _, created_s) in table.items():
            yield f'{family}_created{{handler="{handler}"}} {number(created_s)}'

    def duration_lines(self, help_text: str) -> Iterator[str]:
        """Samples of http_request_duration_seconds and its `_created` family."""
        family = "http_request_duration_seconds"
        for (handler, method), (histogram, _) in self._durations.items():
            for bound, value in zip((*LOWR_BOUNDS, "+Inf"), histogram.cumulative(), strict=True):
                yield f'{family}_bucket{{handler="{handler}",le="{bound}",method="{method}"}} {number(value)}'
            labels = f'handler="{handler}",method="{method}"'
            yield f"{family}_count{{{labels}}} {number(histogram.count)}"
            yield f"{family}_sum{{{labels}}} {number(histogram.total)}"
        if self._durations:
            yield from _created_head(family, help_text)
        for (handler, method), (_, created_s) in self._durations.items():
            yield f'{family}_created{{handler="{handler}",method="{method}"}} {number(created_s)}'


def _created_head(family: str, help_text: str) -> Iterator[str]:
    yield f"# HELP {family}_created {help_text}"
    yield f"# TYPE {family}_created gauge"
