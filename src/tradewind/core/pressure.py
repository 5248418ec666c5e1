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
    """Mean of each signal over the READY cells of one class that know it."""

    members: int = 0
    means: Signals = UNKNOWN

    def update(self, members: Sequence[Signals]) -> None:
        """Takes the signals of all members."""
        self.members = len(members)
        columns = ([value for value in column if value is not None] for column in zip(*members, strict=True))
        self.means = tuple(sum(column) / len(column) if column else None for column in columns) or UNKNOWN


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
    if None in signals:
        gaps = means.means if means.members > 1 else own.values
        signals = tuple(gap if value is None else value for value, gap in zip(signals, gaps, strict=True))
    return weighted(signals, SIGNAL_WEIGHTS)


def weighted(signals: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Plain weighted mean over known signals, the rest renormalised (the published form)."""
    total = weight = 0.0
    for signal, share in zip(signals, weights, strict=True):
        if signal is not None:
            total += signal * share
            weight += share
    return total / weight if weight else None
