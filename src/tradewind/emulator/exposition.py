"""Prometheus text: histograms, numbers as the Python client writes them, and pages made from a captured template."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

_BIG_INTEGER_DIGITS = 6


def number(value: float) -> str:
    """Formats a value as prometheus_client does: `0.0`, `1.79e+09`."""
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > _BIG_INTEGER_DIGITS and "e" not in text:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text


class Histogram:
    """A cumulative histogram; `bounds` are the finite upper bounds, ascending."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # per bucket, not cumulative; the last one is +Inf
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Adds `times` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times

    def cumulative(self) -> list[int]:
        """Counts per bucket, +Inf last."""
        running = 0
        sums = []
        for count in self.counts:
            running += count
            sums.append(running)
        return sums


Piece = Callable[[], Iterable[str]]


class Page:
    """A page whose fixed lines are joined once and whose live lines are asked for at each render."""

    def __init__(self) -> None:
        self._pieces: list[str | Piece] = []
        self._fixed: list[str] = []

    def fixed(self, line: str) -> None:
        """Adds a line that never changes."""
        self._fixed.append(line)

    def live(self, piece: Piece) -> None:
        """Adds lines that are asked for at each render."""
        self._flush()
        self._pieces.append(piece)

    def scalar(self, series: str, value: Callable[[], float]) -> None:
        """Adds one live series."""
        self.live(lambda: (f"{series} {number(value())}",))

    def histogram(self, series: Sequence[str], histogram: Histogram) -> None:
        """Adds a histogram: bucket series in order, then its count and its sum series."""
        assert len(series) == len(histogram.counts) + 2, series[0]
        self.live(lambda: _histogram_lines(series, histogram))

    def render(self) -> bytes:
        """The page now."""
        self._flush()
        lines: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                lines.append(piece)
            else:
                lines.extend(piece())
        return ("\n".join(lines) + "\n").encode()

    def _flush(self) -> None:
        if self._fixed:
            self._pieces.append("\n".join(self._fixed))
            self._fixed = []


def _histogram_lines(series: Sequence[str], histogram: Histogram) -> Iterable[str]:
    values = [*histogram.cumulative(), histogram.count]
    for name, value in zip(series, values, strict=False):
        yield f"{name} {number(value)}"
    yield f"{series[-1]} {number(histogram.total)}"
