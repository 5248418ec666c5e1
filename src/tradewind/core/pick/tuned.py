"""A tuner's order as one picker follows it, and what it tells the tuner of the requests that did."""

from collections import deque

from tradewind.core.numbers import known
from tradewind.core.outcomes import Kind, kind_of
from tradewind.core.pick.work import Booking
from tradewind.core.tuner.arms import weights_for
from tradewind.model.outcome import Outcome
from tradewind.model.tuning import Sample, TuningOrder, Weights

MAX_SAMPLES = 4_096  # that wait to be taken; beyond it the oldest are lost


class Tuned:
    """Without an order, the policy's own weights are in force and nothing is told."""

    def __init__(self) -> None:
        self.order: TuningOrder | None = None
        self.child = False  # whether the last request asked for goes by the child's weights
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)

    def weights(self, request_id: str) -> Weights | None:
        """For this request."""
        order = self.order
        if order is None:
            self.child = False
            return None
        weights, self.child = weights_for(order, request_id)
        return weights

    def finished(self, booking: Booking, outcome: Outcome, now_s: float) -> None:
        """A request ended. One that another cell had, was tried twice, or says nothing of its cell, is no sample."""
        order, kind = booking.order, kind_of(outcome)
        failed = kind in (Kind.FAILURE, Kind.UNREACHED)
        if order is None or not (failed or kind is Kind.SERVED):
            return
        if not failed and (booking.moved or outcome.attempts > 1):
            return
        ttft_s, e2e_s = (None, None) if failed else (known(outcome.ttft_s), known(outcome.duration_s))
        self._samples.append(
            Sample(
                driver=order.driver,
                generation=order.generation,
                child=booking.child,
                cell_id=booking.cell_id,
                dispatched_s=booking.dispatched_s,
                finished_s=now_s,
                rtt_s=booking.rtt_s,
                queue_s=booking.factor * (booking.predicted_s - booking.prefill_s),
                prefill_s=booking.factor * booking.prefill_s,
                prompt_tokens=booking.prompt_tokens,
                uncached_tokens=booking.uncached_tokens,
                least_uncached_tokens=booking.least_uncached_tokens,
                ttft_s=ttft_s if booking.stream else None,
                e2e_s=e2e_s,
                itl_s=_itl_s(ttft_s if booking.stream else None, e2e_s, outcome.completion_tokens),
                failed=failed,
            )
        )

    def take(self) -> tuple[Sample, ...]:
        """What waits."""
        taken = tuple(self._samples)
        self._samples.clear()
        return taken


def _itl_s(ttft_s: float | None, e2e_s: float | None, completion: int | None) -> float | None:
    if ttft_s is None or e2e_s is None or completion is None or completion < 2 or e2e_s < ttft_s:
        return None
    return (e2e_s - ttft_s) / (completion - 1)
