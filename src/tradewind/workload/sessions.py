"""Conversations that grow turn by turn, as the declared grids of `tradewind sim` load them."""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

from tradewind.workload.arrivals import poisson
from tradewind.workload.classes import BLOCK_TOKENS
from tradewind.workload.mooncake import Trace, TracedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShape:
    """Conversations that arrive by Poisson and grow turn by turn; a turn does not wait for the answer before it."""

    first_tokens: tuple[float, float]  # mu and sigma of a lognormal; sigma 0 = always exp(mu)
    growth_tokens: tuple[float, float]
    turns: int  # each session has so many, or, if `geometric`, as a mean
    geometric: bool
    least_gap_s: float  # between two turns: this, and an exponential of `mean_more_s` on top
    mean_more_s: float
    output_tokens: int = 128
    most_prompt_tokens: int = 16_384


MULTITURN = SessionShape(  # 2,048 x 8 growing turns, 16k at most; nothing is shared between sessions
    first_tokens=(7.6246, 0.0),
    growth_tokens=(7.6246, 0.0),
    turns=8,
    geometric=False,
    least_gap_s=10.0,
    mean_more_s=10.0,
)
CHAT = SessionShape(
    first_tokens=(6.9, 0.7),
    growth_tokens=(5.6, 0.6),
    turns=6,
    geometric=True,
    least_gap_s=10.0,
    mean_more_s=15.0,
    most_prompt_tokens=12_000,
)


@dataclass(order=True)
class _Turn:
    at_s: float
    session: int
    tokens: int = field(compare=False)
    left: int = field(compare=False)
    blocks: list[int] = field(compare=False)


def sessions(rng: random.Random, shape: SessionShape, *, rate_per_s: float, for_s: float) -> Trace:
    """Sessions begun so that about `rate_per_s` requests arrive; as many run at the start as in the steady state."""
    ids = count(1)
    gap_s = shape.least_gap_s + shape.mean_more_s
    before_s = shape.turns * gap_s * (3.0 if shape.geometric else 1.5)
    due = [
        _Turn(at_s - before_s, number, _lognormal(rng, shape.first_tokens), _turns(rng, shape), [])
        for number, at_s in enumerate(poisson(rng, rate_per_s=rate_per_s / shape.turns, for_s=for_s + before_s))
    ]
    heapq.heapify(due)
    requests: list[TracedRequest] = []
    while due and due[0].at_s < for_s:
        turn = heapq.heappop(due)
        turn.tokens = min(turn.tokens, shape.most_prompt_tokens)
        while len(turn.blocks) < turn.tokens // BLOCK_TOKENS:
            turn.blocks.append(next(ids))
        if turn.at_s >= 0:
            requests.append(_of_session(turn, shape))
        if turn.left > 1:
            later_s = turn.at_s + shape.least_gap_s + rng.expovariate(1 / shape.mean_more_s)
            tokens = turn.tokens + _lognormal(rng, shape.growth_tokens)
            heapq.heappush(due, _Turn(later_s, turn.session, tokens, turn.left - 1, turn.blocks))
    return Trace(requests=tuple(requests), block_tokens=BLOCK_TOKENS)


def _of_session(turn: _Turn, shape: SessionShape) -> TracedRequest:
    return TracedRequest(
        at_s=turn.at_s,
        prompt_tokens=turn.tokens,
        output_tokens=shape.output_tokens,
        block_ids=tuple(turn.blocks[: turn.tokens // BLOCK_TOKENS]),
        session=str(turn.session),
    )


def _turns(rng: random.Random, shape: SessionShape) -> int:
    return 1 + int(rng.expovariate(1 / (shape.turns - 0.5))) if shape.geometric else shape.turns


def _lognormal(rng: random.Random, of: tuple[float, float]) -> int:
    return max(32, round(rng.lognormvariate(*of)))
