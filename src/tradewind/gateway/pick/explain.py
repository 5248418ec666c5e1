"""Why a request went where it went, and what became of it: one document, and one line of it for people."""

from enum import StrEnum

from tradewind.gateway.pick.desk import PickDesk
from tradewind.gateway.pick.memory import Story
from tradewind.gateway.status import Row
from tradewind.model.decision import Candidate, Decision, Refusal, RefusalKind
from tradewind.model.outcome import Outcome

# Told to the client; the rest is left.
REFUSED = (
    RefusalKind.BUSY,
    RefusalKind.TOO_LONG,
    RefusalKind.UNSUPPORTED,
    RefusalKind.TOO_LARGE,
    RefusalKind.ENDS_ENGINES,
)


class How(StrEnum):
    """By what a request was routed."""

    PICK = "pick"
    WEIGHTS = "weights"
    REFUSED = "refused"
    EARLIER = "earlier"  # by a picker that has forgotten it: a process before this one, or before its policy changed
    UNKNOWN = "unknown"  # not remembered


class CandidateRow(Row, frozen=True, kw_only=True):
    """One cell that could have served it; `terms` sum up to `cost`."""

    cell_id: str
    cost: float  # seconds, unless the policy has a measure of its own
    terms: dict[str, float]
    matched_tokens: int  # of the prompt, believed to be in its prefix cache
    slowness_ratio: float  # 1 = as its hardware class
    probability: float


class DecisionRow(Row, frozen=True, kw_only=True):
    """What the picker decided, with what it knew then."""

    decision_id: str
    policy: str
    in_seconds: bool  # whether costs are
    cell_id: str
    alternatives: tuple[str, ...]
    cost: float
    probability: float
    expected_ttft_s: float | None
    prompt_tokens: int  # estimated
    matched_tokens: int  # predicted hit
    candidates: list[CandidateRow]  # the cheapest few, cheapest first
    excluded: list[tuple[str, str]]  # cell, why it could not serve this request; bounded


class OutcomeRow(Row, frozen=True, kw_only=True):
    """What became of it."""

    cell_id: str | None
    status: int
    flags: str
    attempts: int
    failed: list[tuple[str, str]]  # cell, why that attempt failed
    ttft_s: float | None
    duration_s: float
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    client_cancelled: bool
    ended_ago_s: float


class Explanation(Row, frozen=True, kw_only=True):
    """The answer about one id. `reason` is for people."""

    request_id: str
    gateway_id: str
    how: str
    reason: str
    asked_ago_s: float | None
    phase: str  # "waiting" for its first token, "decoding", "ended", or "" when that is unknown
    decision: DecisionRow | None
    outcome: OutcomeRow | None
    excluded: list[tuple[str, str]]  # of a refusal
    remembered: int
    reach_s: float | None  # how long ago the oldest request that is remembered began


def explain(desk: PickDesk | None, request_id: str, *, gateway_id: str, now_s: float) -> Explanation:
    """What this gateway knows of a request."""
    story = desk.memory.story(request_id) if desk is not None else None
    how, reason = _how(desk, story, now_s)
    found = story.found if story is not None else None
    return Explanation(
        request_id=request_id,
        gateway_id=gateway_id,
        how=how,
        reason=reason,
        asked_ago_s=now_s - story.started_s if story is not None else None,
        phase=_phase(desk, story),
        decision=_decision(found, story.name) if story is not None and isinstance(found, Decision) else None,
        outcome=_outcome(story, story.outcome, now_s) if story is not None and story.outcome is not None else None,
        excluded=list(found.excluded) if isinstance(found, Refusal) else [],
        remembered=len(desk.memory) if desk is not None else 0,
        reach_s=desk.memory.reach_s(now_s) if desk is not None else None,
    )


def _how(desk: PickDesk | None, story: Story | None, now_s: float) -> tuple[How, str]:
    if desk is None:
        return How.UNKNOWN, "this gateway routes by weights: it decides for no single request"
    if story is None:
        return How.UNKNOWN, _forgotten(desk, now_s)
    found = story.found
    if isinstance(found, Decision):
        if story.outcome is not None and not story.outcome.decision_id:
            return How.WEIGHTS, f"the picker chose {found.cell_id}, but its answer came too late"
        return How.PICK, found.reason
    if isinstance(found, Refusal):
        if found.kind in REFUSED:
            return How.REFUSED, found.message
        return How.WEIGHTS, f"the picker left it to the weights: {found.message}"
    if found is not None:
        return How.WEIGHTS, f"the picker left it to the weights: {found}"
    if story.name:
        return How.EARLIER, "picked by a process before this one, which took its reasons with it"
    return How.WEIGHTS, "the picker was not asked, or not able to answer in time"


def _forgotten(desk: PickDesk, now_s: float) -> str:
    memory, reach_s = desk.memory, desk.memory.reach_s(now_s)
    if reach_s is None:
        return "no request with this id; none has come since this process started"
    since = "" if len(memory) >= memory.most else ", since the start of this process"
    return f"no request with this id in the last {reach_s:.0f} s{since} ({len(memory)} of at most {memory.most} kept)"


def _phase(desk: PickDesk | None, story: Story | None) -> str:
    if desk is None or story is None:
        return ""
    if story.outcome is not None:
        return "ended"
    if not isinstance(story.found, Decision):
        return ""
    booking = desk.picker.ledger.get(story.found.decision_id)
    return booking.phase.value if booking is not None else ""


def _decision(found: Decision, name: str) -> DecisionRow:
    return DecisionRow(
        decision_id=name,
        policy=found.policy,
        in_seconds=any(len(candidate.terms) > 1 for candidate in found.candidates),
        cell_id=found.cell_id,
        alternatives=found.alternatives,
        cost=found.cost_s,
        probability=found.probability,
        expected_ttft_s=found.expected_ttft_s,
        prompt_tokens=found.prompt_tokens,
        matched_tokens=found.matched_tokens,
        candidates=[_candidate(candidate) for candidate in found.candidates],
        excluded=list(found.excluded),
    )


def _candidate(candidate: Candidate) -> CandidateRow:
    return CandidateRow(
        cell_id=candidate.cell_id,
        cost=candidate.cost_s,
        terms=dict(candidate.terms),
        matched_tokens=candidate.matched_tokens,
        slowness_ratio=candidate.slowness,
        probability=candidate.probability,
    )


def _outcome(story: Story, outcome: Outcome, now_s: float) -> OutcomeRow:
    return OutcomeRow(
        cell_id=outcome.cell_id,
        status=outcome.status,
        flags=outcome.flags,
        attempts=outcome.attempts,
        failed=list(zip(outcome.attempted_cells, outcome.attempt_failures, strict=False)),
        ttft_s=outcome.ttft_s,
        duration_s=outcome.duration_s,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        completion_tokens=outcome.completion_tokens,
        client_cancelled=outcome.client_cancelled,
        ended_ago_s=now_s - (story.ended_s if story.ended_s is not None else now_s),
    )
