"""The tuner's order that this gateway follows, and the samples that each control has still to be told."""

from collections import deque
from itertools import islice

from tradewind.core.pick.picker import Picker
from tradewind.model.tuning import Sample, TuningOrder, Weights

MAX_KEPT = 4_096  # newest samples; a control that was away longer misses the older ones
MAX_PER_REPORT = 1_000  # about 100 bytes each; what is over waits for the next report


class Following:
    """Every sample is told to every control once: only the one whose order is followed learns from it."""

    def __init__(self) -> None:
        self.order: TuningOrder | None = None
        self.taken = 0  # samples since the start, also the number of the next one
        self.sent: dict[str, int] = {}  # by control
        self._kept: deque[Sample] = deque(maxlen=MAX_KEPT)
        self._told: dict[str, int] = {}  # by control: number of the first sample that it has not been told

    def follow(self, order: TuningOrder | None, picker: Picker | None) -> bool:
        """Picks go by this order from now on; True when it is another one than before."""
        changed, self.order = order != self.order, order
        if changed and picker is not None:
            picker.set_order(order)
        return changed

    def samples(self, control_id: str, picker: Picker | None, now_s: float) -> tuple[Sample, ...]:
        """For the next report to this control; one that asks for the first time is told nothing of what was before."""
        before = self.taken
        if picker is not None:
            fresh = picker.take_samples()
            self._kept.extend(fresh)
            self.taken += len(fresh)
        oldest = self.taken - len(self._kept)
        begin = max(self._told.get(control_id, before), oldest)
        told = tuple(s.moved(-now_s) for s in islice(self._kept, begin - oldest, begin - oldest + MAX_PER_REPORT))
        self._told[control_id] = begin + len(told)
        self.sent[control_id] = self.sent.get(control_id, 0) + len(told)
        return told


def described(order: TuningOrder | None) -> str:
    """For people."""
    if order is None:
        return "none: the policy's own weights"
    compared = f", {100 * order.child_share:.0f} % by {_weights(order.child)}" if order.child is not None else ""
    return f"{order.driver} generation {order.generation}: {_weights(order.weights)}{compared}"


def _weights(weights: Weights) -> str:
    return f"rtt {weights.rtt:.3g}, queue {weights.queue:.3g}"
