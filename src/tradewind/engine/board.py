"""An engine's GPU under stress: books its steps, lets heat and contention grow, and says what they cost the engine.

For real and for virtual time: a driver tells of steps as they begin and lets time pass by `advance`.
"""

import math
from dataclasses import dataclass

from tradewind.engine.gpu import DEFAULT_CLOCK_FLOOR, GpuModel, Occupancy
from tradewind.engine.law import HEALTHY, SlowDown, clock_slow_down

_COOLS_TAU_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A cooling failure: the heat sink's surroundings get warmer by `heat_c` with time constant `tau_s`."""

    heat_c: float = 45.0
    tau_s: float = 8.0
    floor: float = 0.35  # clock ratio at and above 92 degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """A neighbour on the host's PCIe link: what crosses it grows to the factors over `ramp_s`."""

    a0: float = 4.0  # host work of a step
    ingest: float = 2.0
    terms: float = 1.0  # all other terms of a step, for an engine whose weights or activations cross the link
    ramp_s: float = 3.0
    bytes_per_s: float = 20e9


class EngineBoard:
    """One board and the engine on it."""

    def __init__(self, model: GpuModel, *, now_s: float) -> None:
        self.model = model
        self.heat: Heat | None = None
        self.contention: Contention | None = None
        self._ticked_s = self._booked_s = self._step_end_s = now_s
        self._step_prefill = False
        self._step_tensor = 0.0
        self._prefill_s = self._decode_s = self._tensor_s = 0.0
        self._ramp = 0.0

    def on_step(self, start_s: float, end_s: float, *, prefill: bool, tensor_share: float) -> None:
        """A step, or a run of steps that only decode, begins."""
        self.book(start_s)
        self._booked_s, self._step_end_s = start_s, end_s
        self._step_prefill, self._step_tensor = prefill, tensor_share

    def ends(self, end_s: float) -> None:
        """The run under way will end earlier than was told."""
        self._step_end_s = end_s

    def book(self, until_s: float) -> None:
        """Books what is under way up to `until_s`; a hung step keeps the GPU as idle as a dead one does."""
        spent_s = min(until_s, self._step_end_s) - self._booked_s
        if spent_s <= 0.0:
            return
        self._booked_s += spent_s
        if self._step_prefill:
            self._prefill_s += spent_s
            self._tensor_s += spent_s * self._step_tensor
        else:
            self._decode_s += spent_s

    def advance(self, now_s: float) -> SlowDown:
        """Lets time pass up to now; what the engine's steps take from here. Often, while anything grows."""
        self.let_pass(now_s)
        return self._slow_down()

    def let_pass(self, now_s: float) -> None:
        """`advance` for who does not ask for the steps, but for what an exporter shows."""
        self.book(now_s)
        dt_s = now_s - self._ticked_s
        if dt_s > 0.0:
            self._ticked_s = now_s
            self._pass(dt_s)

    def _pass(self, dt_s: float) -> None:
        self._warm(dt_s)
        self.model.advance(
            Occupancy(
                dt_s=dt_s,
                prefill_s=min(self._prefill_s, dt_s),
                decode_s=min(self._decode_s, dt_s),
                tensor_s=min(self._tensor_s, dt_s),
            )
        )
        self._prefill_s = self._decode_s = self._tensor_s = 0.0
        self._contend(dt_s)

    def _warm(self, dt_s: float) -> None:
        heat, model = self.heat, self.model
        target_c, tau_s = (heat.heat_c, heat.tau_s) if heat else (0.0, _COOLS_TAU_S)
        model.clock_floor = heat.floor if heat else DEFAULT_CLOCK_FLOOR
        model.ambient_extra_c = target_c + (model.ambient_extra_c - target_c) * math.exp(-dt_s / tau_s)

    def _contend(self, dt_s: float) -> None:
        contention = self.contention
        if contention is None:
            self._ramp = self.model.pcie_extra_bytes_per_s = 0.0
            return
        self._ramp = min(1.0, self._ramp + dt_s / max(dt_s, contention.ramp_s))
        self.model.pcie_extra_bytes_per_s = contention.bytes_per_s * self._ramp

    def _slow_down(self) -> SlowDown:
        clock_ratio, contention = self.model.clock_ratio, self.contention
        slow = HEALTHY if clock_ratio == 1.0 else clock_slow_down(clock_ratio)
        if contention is None:
            return slow
        a0, ingest, terms = (
            1.0 + (full - 1.0) * self._ramp for full in (contention.a0, contention.ingest, contention.terms)
        )
        return slow.times(SlowDown(a0=a0, ingest=ingest, w=terms, b=terms, c=terms, d=terms, e=terms))
