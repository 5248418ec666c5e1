"""Ten signals to one load pressure: a weighted mean, a cell's gaps filled from its class (recipe lines 5-7).

Dropping an unknown signal and renormalising is not neutral: it moved the share of a cell whose exporter died by 46 %.
So an unknown is imputed from the cells of the same class; only what nobody knows drops out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.core.signals import SIGNAL_NAMES, EngineSignals, GpuSignals, PathSignals

_COUNT = len(SIGNAL_NAMES)
SIGNAL_WEIGHTS: tuple[float, ...] = (
    *(0.30, 0.25, 0.15),  # queue, ttft, kv
    *(0.10, 0.04, 0.02, 0.02, 0.02),  # tensor, sm, dram, util, vram
    *(0.06, 0.04),  # rtt, jitter
)
assert len(SIGNAL_WEIGHTS) == _COUNT

Signals = tuple[float | None, ...]  # in the order of SIGNAL_NAMES
UNKNOWN: Signals = (None,) * _COUNT


def join(engine: EngineSignals, gpu: GpuSignals, path: PathSignals) -> Signals:
    """The ten in one tuple."""
    return (*engine, *gpu, *path)


def named(signals: Signals) -> tuple[tuple[str, float | None], ...]:
    """The ten with their names, for people."""
    return tuple(zip(SIGNAL_NAMES, signals, strict=True))


@dataclass(slots=True)
class ClassMeans:
    """Running means of each signal over the READY cells of one class; members come, change and go in O(1)."""

    members: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * _COUNT)
    counts: list[int] = field(default_factory=lambda: [0] * _COUNT)

    def replace(self, old: Signals, new: Signals) -> None:
        """A member's signals change; `UNKNOWN` stands for none."""
        for index in range(_COUNT):
            before, after = old[index], new[index]
            if before is not None:
                self.sums[index] -= before
                self.counts[index] -= 1
            if after is not None:
                self.sums[index] += after
                self.counts[index] += 1

    def mean(self, index: int) -> float | None:
        """Mean of one signal; None when no member knows it."""
        count = self.counts[index]
        return min(1.0, max(0.0, self.sums[index] / count)) if count else None


@dataclass(slots=True)
class OwnMeans:
    """A cell's own recent mean of each signal, for a cell that is alone in its class."""

    values: list[float | None] = field(default_factory=lambda: [None] * _COUNT)
    read_s: float = 0.0

    def update(self, signals: Signals, *, span_s: float, now_s: float) -> None:
        """Folds one set in, with a memory of about `span_s`."""
        share = min(1.0, max(0.0, now_s - self.read_s) / span_s)
        for index, signal in enumerate(signals):
            if signal is not None:
                old = self.values[index]
                self.values[index] = signal if old is None else old + share * (signal - old)
        self.read_s = now_s


def load_pressure(signals: Signals, means: ClassMeans, own: OwnMeans) -> float | None:
    """Weighted mean of the ten in 0..1, unknowns imputed; None when nothing at all is known."""
    total = weight = 0.0
    for index, share in enumerate(SIGNAL_WEIGHTS):
        value = signals[index]
        if value is None:
            value = means.mean(index) if means.members > 1 else own.values[index]
            if value is None:
                continue
        total += share * value
        weight += share
    return total / weight if weight else None


def weighted(signals: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Plain weighted mean over known signals, the rest renormalised (the published form)."""
    total = weight = 0.0
    for signal, share in zip(signals, weights, strict=True):
        if signal is not None:
            total += signal * share
            weight += share
    return total / weight if weight else None
