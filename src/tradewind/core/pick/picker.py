"""The per-request decision of one gateway: `pick` chooses and books, outcomes release and teach.

Used by one thread. Time comes in; `first_token` and `finished` may come late and carry the time of the event.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from random import Random

from tradewind.core.memory import LimitMemory
from tradewind.core.outcomes import Kind, kind_of
from tradewind.core.pick.ask import Ask, Choice, Policy
from tradewind.core.pick.cell import OthersLoad, PickCell
from tradewind.core.pick.cost import CostModel
from tradewind.core.pick.eligible import Eligibility
from tradewind.core.pick.explain import candidates
from tradewind.core.pick.fleet import PickFleet
from tradewind.core.pick.learning import Teacher
from tradewind.core.pick.ledger import Ledger
from tradewind.core.pick.policies import policy_named
from tradewind.core.pick.policies.own import OwnPolicyError
from tradewind.core.pick.prefixes import PrefixView
from tradewind.core.pick.settings import PickSettings
from tradewind.core.pick.tape import Heard, Tape, answer_kind
from tradewind.core.pick.tuned import Tuned
from tradewind.core.pick.work import Booking
from tradewind.model.decision import Decision, Refusal, RefusalKind
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.routing import WeightRow
from tradewind.model.tuning import Sample, TuningOrder
from tradewind.model.view import GridView, PathReading, Placed

FORGOTTEN = 0.02  # other gateways' work counts as nothing below this weight
ONE_HOME = 2.0  # requests per prefix up to which a second home cannot pay
NO_MATCHES: Mapping[str, int] = {}


@dataclass(slots=True)
class PickCounters:
    """Plain counts since the start, for metrics."""

    picks: int = 0  # decisions made
    ties: int = 0  # of them drawn among several
    moved: int = 0  # served by another cell than was picked
    policy_failures: int = 0  # of a policy of one's own: the spare policy decided
    refusals: Counter[RefusalKind] = field(default_factory=Counter)


class Picker:
    """One per gateway. `policy` is "cost", the name of a policy for comparison, see `policies`, or one of one's own."""

    def __init__(
        self,
        settings: PickSettings,
        *,
        policy: str | Policy = "cost",
        index: PrefixView,
        spare: Policy | None = None,
        tape: Tape | None = None,
    ) -> None:
        """`spare` decides where a policy of one's own fails. `tape` hears all that decisions depend on, and them."""
        self._settings = settings
        self._index = index
        self._cost = CostModel(settings.cost)
        self._policy = policy_named(policy, settings, self._cost) if isinstance(policy, str) else policy
        self._spare = spare
        self.last_failure = ""  # of a policy of one's own
        self._fleet = PickFleet(settings, index)
        self._eligibility = Eligibility(settings)
        self._ledger = Ledger(lease_s=settings.lease_s, most=settings.max_bookings, floor=settings.cost.queue_floor)
        self._teacher = Teacher(settings, self._fleet, self._eligibility)
        self._tuned = Tuned()
        self._others_s = -1e9  # when other gateways were last heard of
        self._number = 0
        self._tape = tape
        self.counters = PickCounters()

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self._policy.name

    @property
    def ledger(self) -> Ledger:
        """Counts of released, expired and unknown."""
        return self._ledger

    @property
    def fleet(self) -> PickFleet:
        """The cells, for metrics and status."""
        return self._fleet

    @property
    def teacher(self) -> Teacher:
        """What was learned, for metrics and alerts."""
        return self._teacher

    def observe_view(self, view: GridView, now_s: float) -> None:
        """The newest grid view: cells come, change and go."""
        if self._tape is not None:
            self._tape.note(Heard.VIEW, now_s, view)
        self._fleet.observe_view(view, now_s)

    def observe_path(self, reading: PathReading, now_s: float) -> None:
        """A probe of the path to one cell came back."""
        if self._tape is not None:
            self._tape.note(Heard.PATH, now_s, reading)
        self._fleet.observe_path(reading)

    def observe_pressure(self, rows: Sequence[WeightRow], now_s: float) -> None:
        """The newest weights; drained cells get nothing while their pool keeps another."""
        if self._tape is not None:
            self._tape.note(Heard.PRESSURE, now_s, rows)
        self._fleet.observe_pressure(rows)

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        """What other gateways have in flight per cell, summed over them; cells left out have none."""
        if self._tape is not None:
            self._tape.note(Heard.OTHERS, now_s, loads)
        self._others_s = now_s
        self._fleet.observe_others(loads)

    def set_reach(self, reach: Mapping[str, str]) -> None:
        """Cell id -> "ip:port" by which this gateway reaches it, where it is not the agent's address."""
        if self._tape is not None:
            self._tape.note(Heard.REACH, 0.0, reach)
        self._fleet.set_reach(reach)

    def set_unroutable(self, cell_ids: frozenset[str]) -> None:
        """Exactly these cells cannot be reached by their address through the proxy, so that nothing is sent there."""
        if self._tape is not None:
            self._tape.note(Heard.UNROUTABLE, 0.0, sorted(cell_ids))
        self._fleet.set_unroutable(cell_ids)

    def set_order(self, order: TuningOrder | None) -> None:
        """Weights by a tuner from the next pick on; None = the policy's own again."""
        if self._tape is not None:
            self._tape.note(Heard.ORDER, 0.0, order)
        self._tuned.order = order

    def take_samples(self) -> tuple[Sample, ...]:
        """What finished since the last call of requests that followed an order, in the order of their end."""
        return self._tuned.take()

    def probe_served(self, cell_id: str, prompt_bytes: int, prompt_tokens: int | None, now_s: float) -> None:
        """A cell served a probe of so many bytes, and tokens where it counted them: what refusals taught may end."""
        if self._tape is not None:
            self._tape.note(Heard.PROBE_SERVED, now_s, (cell_id, prompt_bytes, prompt_tokens))
        self._fleet.on_probe_served(cell_id, prompt_bytes, prompt_tokens, now_s)

    def recall(self, limits: Sequence[LimitMemory], now_s: float) -> None:
        """Go on from limits that were learned before a restart."""
        if self._tape is not None:
            self._tape.note(Heard.RECALL, now_s, limits)
        self._fleet.recall(limits, now_s)

    def pick(self, request: Request, *, now_s: float, rng: Random) -> Decision | Refusal:
        """A cell for this request, with its work booked at once; or why there is none.

        Raises OwnPolicyError, with nothing booked, where a policy of one's own fails and there is no spare one.
        """
        if self._tape is None:
            return self._pick(request, now_s, rng)
        self._tape.note(Heard.PICK, now_s, request)
        found = self._pick(request, now_s, rng)
        self._tape.note(answer_kind(found), now_s, found)
        return found

    def _pick(self, request: Request, now_s: float, rng: Random) -> Decision | Refusal:
        pool = self._fleet.pool(request.model)
        if pool is None:
            kind, text = RefusalKind.UNKNOWN_MODEL, "no cell serves this model"
            if not self._fleet.seen:
                kind, text = RefusalKind.NO_CELL, "no cell is known yet"
            return self._refuse(Refusal(request_id=request.request_id, kind=kind, message=text))
        narrowed = self._eligibility.narrow(pool, request, now_s)
        if narrowed.kind is not None:
            return self._refuse(
                Refusal(
                    request_id=request.request_id,
                    kind=narrowed.kind,
                    message=narrowed.message,
                    retry_after_s=narrowed.retry_after_s,
                    excluded=narrowed.excluded,
                )
            )
        if self._ledger.has_unseen:
            for cell in narrowed.cells:
                self._ledger.pass_unseen(cell.work, now_s)
        ask = self._ask(request, narrowed.cells, now_s, rng)
        policy, choice = self._choose(ask)
        return self._decide(ask, policy, choice, narrowed.excluded)

    def first_token(self, decision_id: str, now_s: float) -> None:
        """The first body byte of the answer passed the gateway at `now_s`, which may lie in the past."""
        if self._tape is not None:
            self._tape.note(Heard.FIRST_TOKEN, now_s, decision_id)
        self._first_token(decision_id, now_s)

    def _first_token(self, decision_id: str, now_s: float) -> None:
        booking = self._ledger.first_token(decision_id, now_s)
        if booking is not None:
            self._teacher.on_first_token(booking, now_s)

    def served_by(self, decision_id: str, cell_id: str, now_s: float) -> None:
        """Another cell than was picked has the request: the work in flight and the prefix go with it."""
        if self._tape is not None:
            self._tape.note(Heard.SERVED_BY, now_s, (decision_id, cell_id))
        self._served_by(decision_id, cell_id, now_s)

    def _served_by(self, decision_id: str, cell_id: str, now_s: float) -> None:
        booking, cell = self._ledger.get(decision_id), self._fleet.get(cell_id)
        if booking is None or cell is None or booking.cell_id == cell_id:
            return
        self.counters.moved += 1
        self._ledger.move(booking, cell_id, cell.work, now_s)
        if booking.blocks:
            self._index.record(cell_id, booking.blocks, now_s)

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        """The outcome: releases exactly once and teaches. An unknown decision is counted, its outcome still teaches."""
        if self._tape is not None:
            self._tape.note(Heard.FINISHED, now_s, (decision_id, outcome))
        booking = self._ledger.get(decision_id)
        if booking is not None:
            if outcome.cell_id is not None:
                self._served_by(decision_id, outcome.cell_id, now_s)
            if (at_s := self._teacher.first_token_s(booking, outcome)) is not None:
                self._first_token(decision_id, min(at_s, now_s))
        self._ledger.release(decision_id, now_s)
        if booking is not None:
            if booking.blocks and self._fleet.tells(booking.cell_id) and kind_of(outcome) is Kind.SERVED:
                self._index.touch(booking.cell_id, booking.blocks, now_s)  # its engine had them in use until now
            self._tuned.finished(booking, outcome, now_s)
        self._teacher.on_outcome(booking, outcome, now_s)

    def release(self, decision_id: str, now_s: float) -> None:
        """A decision that nobody followed: its work is nowhere, and there is nothing to learn."""
        if self._tape is not None:
            self._tape.note(Heard.RELEASE, now_s, decision_id)
        self._ledger.release(decision_id, now_s)

    def expire(self, now_s: float) -> int:
        """Releases requests whose lease is over; returns how many. Call it every second or so."""
        if self._tape is not None:
            self._tape.note(Heard.EXPIRE, now_s, None)
        return self._ledger.expire(now_s)

    def take_placed(self) -> tuple[Placed, ...]:
        """What went where since the last call, for other gateways; nothing while the index keeps none of it."""
        return tuple(Placed(cell_id=cell_id, blocks=tuple(blocks)) for cell_id, blocks in self._index.take_placed())

    def observe_placed(self, placed: Sequence[Placed], now_s: float) -> None:
        """What other gateways have sent where. Cells that this one does not know are left out."""
        if self._tape is not None:
            self._tape.note(Heard.PLACED, now_s, placed)
        for prompt in placed:
            if prompt.blocks and self._fleet.get(prompt.cell_id) is not None:
                self._index.heard(prompt.cell_id, prompt.blocks, now_s)

    def renamed(self, now_s: float) -> None:
        """Blocks have other names from now on: none that is believed to be anywhere will match again."""
        if self._tape is not None:
            self._tape.note(Heard.RENAMED, now_s, None)
        self._index.forget_all()

    def outstanding(self) -> dict[str, OthersLoad]:
        """Own requests in flight per cell, for other gateways; cells without any are left out."""
        found = {}
        for cell in self._fleet.cells():
            work = cell.work
            if work.requests:
                found[cell.cell_id] = OthersLoad(work.requests, work.waiting_tokens, work.decoding)
        return found

    def cooling(self, now_s: float) -> dict[str, float]:
        """Cell id -> seconds until it is asked again, for cells that asked for less."""
        return {c.cell_id: c.cooling_s - now_s for c in self._fleet.cells() if c.cooling_s > now_s}

    def _choose(self, ask: Ask) -> tuple[Policy, Choice]:
        try:
            return self._policy, self._policy.choose(ask)
        except OwnPolicyError as error:
            if self._spare is None:
                raise
            self.counters.policy_failures += 1
            self.last_failure = str(error)
            return self._spare, self._spare.choose(ask)

    def _refuse(self, refusal: Refusal) -> Refusal:
        self.counters.refusals[refusal.kind] += 1
        return refusal

    def _ask(self, request: Request, cells: Sequence[PickCell], now_s: float, rng: Random) -> Ask:
        usual = self._teacher.output_tokens(request.model)
        allowed = request.max_output_tokens
        others = exp(min(0.0, self._others_s - now_s) / self._settings.others_decay_s)
        ask = Ask(
            request,
            cells,
            matches=self._index.matches(request.blocks) if request.blocks else NO_MATCHES,
            now_s=now_s,
            rng=rng,
            output_tokens=usual if allowed is None else min(usual, allowed),
            load_output_tokens=usual,
            others_weight=others if others > FORGOTTEN else 0.0,
            unknown_rtt_s=self._fleet.unknown_rtt_s,
            weights=self._tuned.weights(request.request_id),
        )
        if ask.matches:
            self._weigh_heat(ask)
        return ask

    def _weigh_heat(self, ask: Ask) -> None:
        """Recipe 1.5: a prefix that many requests share is worth a second home."""
        if not self._settings.cost.heat or self._heat(ask, max(ask.matches.values())) <= ONE_HOME:
            return
        depths = [ask.matches.get(cell.cell_id, 0) for cell in ask.cells]
        ask.deepest = max(depths)
        per_home = self._heat(ask, ask.deepest) / (depths.count(ask.deepest) + 1) if ask.deepest else 0.0
        if per_home > 1.0:
            ask.discount = 1.0 - 1.0 / per_home

    def _heat(self, ask: Ask, depth: int) -> float:
        """Requests, this one too, whose deepest match was this block."""
        return 1.0 + self._index.heat(ask.request.blocks, depth, ask.now_s)

    def _decide(self, ask: Ask, policy: Policy, choice: Choice, excluded: tuple[tuple[str, str], ...]) -> Decision:
        request, settings = ask.request, self._settings
        cost_s, cell = choice.ranked[choice.place]
        self._number += 1
        booking = self._booking(ask, cell)
        shown = candidates(ask, choice, self._cost, policy, settings.candidates)
        decision = Decision(
            decision_id=booking.decision_id,
            request_id=request.request_id,
            policy=policy.name,
            cell_id=cell.cell_id,
            address=cell.address,
            alternatives=_alternatives(choice, settings.alternatives),
            cost_s=cost_s,
            probability=choice.chances[choice.place],
            expected_ttft_s=booking.expected_s - ask.now_s,
            prompt_tokens=request.prompt_tokens,
            matched_tokens=booking.matched_tokens,
            candidates=shown,
            excluded=excluded,
        )
        self.counters.picks += 1
        self.counters.ties += decision.probability < 1.0
        self._ledger.book(booking, cell.work, ask.now_s)
        self._teacher.on_sent(cell, booking)
        if request.blocks:
            self._index.record(cell.cell_id, request.blocks, ask.now_s)
        return decision

    def _booking(self, ask: Ask, cell: PickCell) -> Booking:
        cost = self._settings.cost
        request, booking = ask.request, Booking()
        prefill_s = self._cost.prefill_s(ask, cell)
        queue_s = self._cost.queue_s(ask, cell)
        factor = cell.work.slowness.factor
        rtt_s = ask.rtt_s(cell)
        booking.number = self._number
        booking.decision_id = f"d{self._number}"
        booking.cell_id = cell.cell_id
        booking.model = request.model
        booking.dispatched_s = ask.now_s
        booking.starts_s = ask.now_s + rtt_s + cell.rates.ingest_s
        booking.predicted_s = queue_s + prefill_s
        booking.expected_s = booking.starts_s + factor * booking.predicted_s
        booking.patience_s = max(cost.overdue_s, cost.overdue_ratio * factor * booking.predicted_s)
        booking.prefill_s = prefill_s
        booking.decode_s = cell.work.next_s
        booking.rtt_s = rtt_s
        booking.prompt_tokens = request.prompt_tokens
        booking.matched_tokens = ask.matched(cell)
        booking.uncached_tokens = request.prompt_tokens - booking.matched_tokens
        booking.output_tokens = int(ask.output_tokens)
        booking.total_tokens = request.prompt_tokens + (request.max_output_tokens or 1)
        booking.blocks = request.blocks
        booking.stream, booking.moved = request.stream, False
        booking.factor = factor
        booking.least_uncached_tokens = ask.uncached(max(ask.matches.values(), default=0))
        booking.order, booking.child = self._tuned.order, self._tuned.child
        booking.calm = queue_s <= prefill_s and not cell.work.tight
        return booking


def _alternatives(choice: Choice, most: int) -> tuple[str, ...]:
    others = [cell.cell_id for place, (_, cell) in enumerate(choice.ranked[: most + 1]) if place != choice.place]
    return tuple(others[:most])
