"""GPU state that an engine process shares with the exporter of its site: a slot of doubles per engine, in a mmap."""

import mmap
import struct
from dataclasses import astuple, dataclass, fields

from tradewind.engine.gpu import GpuCounters

_COUNTERS = len(fields(GpuCounters))
_STATES = 9
_LAYOUT = struct.Struct(f"<{_STATES + _COUNTERS}d")
_SLOT_BYTES = 256
assert _LAYOUT.size <= _SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Slot:
    """What an engine writes. `at_s` is time.monotonic(), the same clock in every process of a host."""

    at_s: float
    alive: float  # 0 once the process is gone: memory is free, the chip idles
    temperature_c: float
    power_w: float
    clock_ratio: float
    throttle_bits: float
    xid: float
    pcie_replays: float
    die_c: float
    counters: GpuCounters


class Board:
    """All slots. Anonymous shared memory: make it before forking."""

    def __init__(self, slots: int) -> None:
        self._map = mmap.mmap(-1, max(1, slots) * _SLOT_BYTES)

    def write(self, index: int, slot: Slot) -> None:
        """Publishes a slot."""
        values = (getattr(slot, name) for name in _STATE_NAMES)
        _LAYOUT.pack_into(self._map, index * _SLOT_BYTES, *values, *astuple(slot.counters))

    def read(self, index: int) -> Slot:
        """The newest state of a slot."""
        values = _LAYOUT.unpack_from(self._map, index * _SLOT_BYTES)
        counters = GpuCounters(**dict(zip(_NAMES, values[_STATES:], strict=True)))
        return Slot(**dict(zip(_STATE_NAMES, values[:_STATES], strict=True)), counters=counters)

    def mark_dead(self, index: int) -> None:
        """Says that the engine of this slot is gone."""
        struct.pack_into("<d", self._map, index * _SLOT_BYTES + 8, 0.0)


_NAMES = tuple(field.name for field in fields(GpuCounters))
_STATE_NAMES = tuple(field.name for field in fields(Slot) if field.name != "counters")
assert len(_STATE_NAMES) == _STATES
