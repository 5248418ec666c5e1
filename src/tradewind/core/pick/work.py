"""What this gateway has in flight on one cell: prefills that wait for a first token, decodes, and the KV they hold."""

from collections import OrderedDict
from enum import Enum
from math import inf

from tradewind.core.pick.later import Later
from tradewind.core.pick.rates import Rates
from tradewind.core.pick.slowness import Slowness
from tradewind.model.tuning import TuningOrder


class Phase(Enum):
    """Where a request in flight stands; a release empties the place it is in."""

    WAITING = "waiting"  # no first token yet
    DECODING = "decoding"
    RELEASED = "released"


class Booking:
    """One request in flight, with what was predicted for it at dispatch."""

    __slots__ = (
        "blocks",
        "calm",
        "cell_id",
        "child",
        "decision_id",
        "decode_s",
        "dispatched_s",
        "expected_s",
        "factor",
        "least_uncached_tokens",
        "matched_tokens",
        "model",
        "moved",
        "number",
        "order",
        "output_tokens",
        "patience_s",
        "phase",
        "predicted_s",
        "prefill_s",
        "prompt_tokens",
        "rtt_s",
        "starts_s",
        "stream",
        "total_tokens",
        "uncached_tokens",
        "work",
    )

    number: int
    decision_id: str
    cell_id: str
    work: "Work"
    model: str
    phase: Phase
    dispatched_s: float
    starts_s: float  # when the engine has it: dispatch + RTT + ingest
    expected_s: float  # of the first token
    patience_s: float  # engine time without a first token after which the cell counts as stalled
    predicted_s: float  # backlog + prefill, nominal
    prefill_s: float  # nominal
    decode_s: float  # one step of the batch that it joins
    rtt_s: float
    prompt_tokens: int
    uncached_tokens: int
    output_tokens: int  # expected
    total_tokens: int  # prompt and allowed output: what the context limit is about
    matched_tokens: int
    blocks: tuple[int, ...]
    stream: bool  # a first token can be seen
    moved: bool  # another cell has it than the predictions are for
    factor: float  # the cell's slowness at dispatch
    least_uncached_tokens: int  # on the best of the cells
    order: TuningOrder | None  # that it followed
    child: bool  # by the child's weights
    calm: bool  # no queue and no KV pressure at dispatch: fit for slow calibration


class Work:
    """Everything booked on one cell. Sums return to exactly zero when nothing is in flight."""

    __slots__ = (
        "_later",
        "_waiting",
        "decoding",
        "dispatches",
        "floor_s",
        "growth_s",
        "kv_tokens",
        "need_tokens",
        "next_s",
        "oldest",
        "prompt_tokens",
        "queued_at_s",
        "queued_s",
        "rates",
        "requests",
        "room_requests",
        "room_tokens",
        "saturated",
        "saturation",
        "slowness",
        "step_s",
        "tight",
        "waiting_s",
        "waiting_tokens",
    )

    def __init__(self, rates: Rates, slowness: Slowness, *, saturation: float) -> None:
        self.rates = rates
        self.slowness = slowness
        self.saturation = saturation
        self._waiting: OrderedDict[int, Booking] = OrderedDict()  # in order of dispatch; a dict finds its first slowly
        self._later = Later()
        self.queued_s = 0.0
        self.queued_at_s = 0.0
        self.requests = 0
        self.decoding = 0
        self.dispatches = 0  # ever
        self.kv_tokens = 0  # context of the decoding ones
        self.need_tokens = 0  # uncached + expected output of all
        self.prompt_tokens = 0  # full prompts of all
        self.waiting_tokens = 0  # uncached, of those without a first token
        self.waiting_s = 0.0  # their nominal prefill
        self.floor_s = 0.0
        self.oldest: Booking | None = None  # without a first token
        self.room_tokens = inf  # KV spoken for beyond this is penalised
        self.room_requests = inf
        self._settle(0.3)

    @property
    def waiting(self) -> int:
        """Requests without a first token."""
        return len(self._waiting)

    def backlog_s(self, now_s: float) -> float:
        """Nominal seconds of prefill work believed to be ahead of a new request (recipe 1.2)."""
        if not self._waiting:
            return 0.0
        left_s = self.queued_s - (now_s - self.queued_at_s) * self.slowness.inverse
        return left_s if left_s > self.floor_s else self.floor_s

    def set_room(self, tokens: float, requests: float) -> None:
        """From where on the cell counts as tight."""
        self.room_tokens, self.room_requests = tokens, requests
        self.tight = self.need_tokens > tokens or self.requests >= requests

    def dispatch(self, booking: Booking, now_s: float, *, floor: float) -> None:
        """The request is on its way."""
        self.queued_s = self.backlog_s(now_s) + booking.prefill_s
        self.queued_at_s = now_s
        self._waiting[booking.number] = booking
        self._later.join(booking.number, booking.prefill_s)
        booking.work, booking.phase = self, Phase.WAITING
        self.requests += 1
        self.dispatches += 1
        self.need_tokens += booking.uncached_tokens + booking.output_tokens
        self.prompt_tokens += booking.prompt_tokens
        self.waiting_tokens += booking.uncached_tokens
        self.waiting_s += booking.prefill_s
        self._settle(floor)

    def first_token(self, booking: Booking, at_s: float, *, floor: float) -> None:
        """The engine has prefilled it: what was dispatched later is the backlog now. `at_s` may lie in the past."""
        if booking.phase is not Phase.WAITING:
            return
        later_s = self._later.behind_s(booking.number)
        self._leave_queue(booking)
        self.queued_s = max(0.0, later_s - 0.5 * booking.rtt_s * self.slowness.inverse)
        self.queued_at_s = at_s
        booking.phase = Phase.DECODING
        self.decoding += 1
        self.kv_tokens += booking.prompt_tokens
        self._settle(floor)

    def pass_unseen(self, now_s: float, *, floor: float) -> None:
        """Requests whose first token nobody can see go by the prediction."""
        while (oldest := self.oldest) is not None and not oldest.stream and now_s >= oldest.expected_s:
            self.first_token(oldest, oldest.expected_s, floor=floor)

    def release(self, booking: Booking, now_s: float, *, floor: float) -> None:
        """The request is over; out of whichever place it is in. A second release changes nothing."""
        if booking.phase is Phase.RELEASED:
            return
        if booking.phase is Phase.WAITING:
            left_s = self.backlog_s(now_s)
            self._leave_queue(booking)
            self.queued_s = max(0.0, left_s - booking.prefill_s)
            self.queued_at_s = now_s
        else:
            self.decoding -= 1
            self.kv_tokens -= booking.prompt_tokens
        booking.phase = Phase.RELEASED
        self.requests -= 1
        self.need_tokens -= booking.uncached_tokens + booking.output_tokens
        self.prompt_tokens -= booking.prompt_tokens
        self._settle(floor)

    def _leave_queue(self, booking: Booking) -> None:
        del self._waiting[booking.number]
        self._later.leave(booking.number)
        self.waiting_tokens -= booking.uncached_tokens
        self.waiting_s = self.waiting_s - booking.prefill_s if self._waiting else 0.0

    def _settle(self, floor: float) -> None:
        """What the cost of every later request needs, computed once per change instead of once per request."""
        rates, decoding = self.rates, self.decoding
        self.oldest = next(iter(self._waiting.values()), None)
        self.floor_s = floor * self.waiting_s
        self.step_s = rates.a0_s + rates.c_s * decoding + rates.d_s * self.kv_tokens
        steps_s, last = rates.step_s, len(rates.step_s) - 1
        here_s, next_s = steps_s[min(self.requests, last)], steps_s[min(self.requests + 1, last)]
        self.next_s = rates.decode_factor * (next_s + rates.d_s * self.kv_tokens)
        self.growth_s = self.requests * rates.decode_factor * (next_s - here_s)
        self.tight = self.need_tokens > self.room_tokens or self.requests >= self.room_requests
        self.saturated = decoding / (1.0 + decoding / self.saturation)
