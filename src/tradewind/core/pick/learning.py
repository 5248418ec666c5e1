"""What outcomes teach the picker: slowness, class rates, output lengths, limits, cool-downs, hits served."""

from tradewind.core.numbers import known
from tradewind.core.outcomes import Kind, kind_of, kind_of_attempt
from tradewind.core.pick.calibration import ClassRatio
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.eligible import Eligibility
from tradewind.core.pick.fleet import PickFleet
from tradewind.core.pick.refusals import Size
from tradewind.core.pick.settings import PickSettings
from tradewind.core.pick.work import Booking, Phase
from tradewind.model.outcome import Outcome

TOO_LONG = frozenset({400, 413})
CALM_SHARE = 0.5  # of the engine's time in prefill
MIN_DECODES = 16  # inter-token times of fewer tokens are noise
MAX_MODELS = 1_024  # with an output length of their own
DOUBT_S = 1.0  # a cell that could not be reached is avoided for so long


class Teacher:
    """Everything learned is per gateway and lives in memory."""

    def __init__(self, settings: PickSettings, fleet: PickFleet, eligibility: Eligibility) -> None:
        self._settings = settings
        self._fleet = fleet
        self._eligibility = eligibility
        self._outputs: dict[str, float] = {}

    def output_tokens(self, model: str) -> float:
        """Expected length of an answer."""
        return self._outputs.get(model, self._settings.cost.output_tokens)

    def calibration(self) -> tuple[ClassRatio, ...]:
        """Per hardware class, how far the table is off; `alert` where it is far."""
        return self._fleet.calibration.report()

    def on_sent(self, cell: PickCell, booking: Booking) -> None:
        """A request was booked on the cell."""
        cell.rates.trials = max(0, cell.rates.trials - 1)
        cell.samples.on_dispatch(booking.prefill_s, booking.dispatched_s)
        if not cell.learned.quiet:
            cell.learned.on_sent(_size(booking), booking.dispatched_s)

    def first_token_s(self, booking: Booking, outcome: Outcome) -> float | None:
        """When the first token of a finished request came, if it was not reported while it ran."""
        ttft_s = known(outcome.ttft_s)
        if booking.phase is not Phase.WAITING or not booking.stream or ttft_s is None:
            return None
        return booking.dispatched_s + ttft_s if outcome.attempts == 1 and kind_of(outcome) is Kind.SERVED else None

    def on_first_token(self, booking: Booking, at_s: float) -> None:
        """How long the engine took against what was predicted."""
        cell = self._fleet.get(booking.cell_id)
        if cell is None or booking.moved or not booking.stream:
            return
        observed_s = at_s - booking.starts_s
        cell.work.slowness.learn(observed_s=observed_s, predicted_s=booking.predicted_s, now_s=at_s, calm=booking.calm)
        if booking.calm:
            nominal_s = booking.predicted_s / cell.rates.prefill_factor
            self._fleet.calibration.on_prefill(cell.rates, cell.samples, observed_s=observed_s, predicted_s=nominal_s)

    def on_outcome(self, booking: Booking | None, outcome: Outcome, now_s: float) -> None:
        """One outcome; `booking` None if its decision is not known."""
        for cell_id, failure in zip(outcome.attempted_cells, outcome.attempt_failures, strict=False):
            self._on_attempt(self._fleet.get(cell_id), kind_of_attempt(failure), None, now_s)
        cell = self._fleet.get(outcome.cell_id) if outcome.cell_id is not None else None
        if cell is None:
            return
        kind = kind_of(outcome)
        self._on_attempt(cell, kind, outcome.retry_after_s, now_s)
        if booking is None:
            return
        if kind is Kind.SERVED:
            self._on_served(cell, booking, outcome, now_s)
        elif kind is Kind.REFUSAL and (outcome.stream_error_code or outcome.status) in TOO_LONG:
            self._on_refused(cell, booking, outcome, now_s)
        elif kind is Kind.REFUSAL:
            cell.learned.on_refused_otherwise(_size(booking))

    def _on_attempt(self, cell: PickCell | None, kind: Kind, retry_after_s: float | None, now_s: float) -> None:
        if cell is None:
            return
        settings = self._settings
        if kind is Kind.BACKPRESSURE:
            asked_s = known(retry_after_s)
            wait_s = settings.cooldown_s if asked_s is None else max(0.0, asked_s)
            cell.cooling_s = max(cell.cooling_s, now_s + min(settings.cooldown_max_s, wait_s))
            self._eligibility.trouble(cell.cooling_s)
        elif kind is Kind.UNREACHED:
            cell.doubtful_s = now_s + DOUBT_S
            self._eligibility.trouble(cell.doubtful_s)

    def _on_served(self, cell: PickCell, booking: Booking, outcome: Outcome, now_s: float) -> None:
        self._learn_limit_served(cell, _size(booking), booking.dispatched_s, now_s)
        if outcome.cached_tokens is not None:
            cell.predicted_hit_tokens += booking.matched_tokens
            cell.served_hit_tokens += outcome.cached_tokens
        completion = outcome.completion_tokens
        if completion is None or completion < 1:
            return
        self._learn_output(booking.model, completion)
        self._learn_decode(cell, booking, outcome, now_s)

    def _learn_decode(self, cell: PickCell, booking: Booking, outcome: Outcome, now_s: float) -> None:
        """The mean inter-token time of a calm request; where prefill has most of the engine it says little."""
        ttft_s, completion = known(outcome.ttft_s), outcome.completion_tokens or 0
        share = cell.samples.prefill_share(now_s)
        if booking.moved or outcome.attempts > 1 or not (booking.stream and booking.calm) or share > CALM_SHARE:
            return
        if ttft_s is None or completion < MIN_DECODES or outcome.duration_s <= ttft_s:
            return
        step_s = (outcome.duration_s - ttft_s) / (completion - 1)
        nominal_s = booking.decode_s / cell.rates.decode_factor
        observed_s = step_s * (1.0 - share)
        self._fleet.calibration.on_decode(cell.rates, cell.samples, observed_s=observed_s, predicted_s=nominal_s)

    def _learn_output(self, model: str, completion: int) -> None:
        old = self._outputs.get(model)
        if old is None:
            if len(self._outputs) >= MAX_MODELS:
                return
            old = self._settings.cost.output_tokens
        self._outputs[model] = old + self._settings.cost.output_alpha * (completion - old)

    def _learn_limit_served(self, cell: PickCell, size: Size, sent_s: float, now_s: float) -> None:
        quiet = cell.learned.quiet and not self._fleet.suspects
        if quiet and not cell.learned.longer(size):
            return
        cell.learned.on_served(size, sent_s=sent_s, now_s=now_s)
        if quiet:
            return
        for peer in self._fleet.peers(cell) if self._fleet.suspects else ():
            peer.learned.on_peer_served(size, now_s)
        self._fleet.limits_changed()

    def _on_refused(self, cell: PickCell, booking: Booking, outcome: Outcome, now_s: float) -> None:
        size, peers = _size(booking), self._fleet.peers(cell)
        if any(peer.learned.suspects(size) for peer in peers):  # the like was refused there as well
            for peer in peers:
                peer.learned.on_peer_refused(size)
        else:
            cell.learned.on_refused(
                size,
                answered=any(peer.learned.speaks_for(size) for peer in peers),
                sent_s=booking.dispatched_s if outcome.attempts == 1 else now_s,
                now_s=now_s,
                request_bytes=outcome.request_bytes,
            )
        self._fleet.limits_changed()


def _size(booking: Booking) -> Size:
    return Size(booking.prompt_tokens, booking.total_tokens - booking.prompt_tokens)
