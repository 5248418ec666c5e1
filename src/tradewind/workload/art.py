"""A synthetic trace like the ART-Chat windows of the GORGO paper (Tab. 1, App. A): many users, long conversations.

Users are drawn by a Zipf-like law; 74 % of the requests continue their user's conversation, the rest are single turns.
A conversation only grows, so that its full blocks are reusable; some begin with one global system prompt. The
defaults are fitted to the paper's window of April 5: input mean 6.9k, median 5.6k, P95 19.9k, block reuse 78.8 %.
"""

import math
import random
from dataclasses import dataclass, field, replace
from itertools import accumulate, count

from tradewind.workload.mooncake import BLOCK_TOKENS, Trace, TracedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtShape:
    """Parameters of the generator; `*_mu` and `*_sigma` are of lognormal lengths in tokens."""

    window_s: float = 1_800.0  # of trace time: conversations in its first half may have begun before it
    rate_per_s: float = 4.0
    users: int = 590
    most_prompt_tokens: int = 24_000
    output_tokens: int = 128
    multi_turn_ratio: float = 0.74
    first_mu: float = 7.9
    first_sigma: float = 1.0
    growth_mu: float = 5.0
    growth_sigma: float = 0.85
    mean_turns: float = 60.0
    single_mu: float = 6.9
    single_sigma: float = 0.9
    system_prompt_ratio: float = 0.3  # of conversations begin with the one global block


@dataclass(slots=True)
class _Conversation:
    tokens: int
    turns_left: int = 0
    blocks: list[int] = field(default_factory=list)


def shape_for(*, rate_per_s: float, for_s: float) -> ArtShape:
    """The shape at another rate or length: as many users as it takes for each to ask as often as in the window."""
    whole = ArtShape()
    share = (rate_per_s * for_s) / (whole.rate_per_s * whole.window_s)
    users = max(1, round(whole.users * share))
    return replace(whole, window_s=for_s, rate_per_s=rate_per_s, users=users)


def art_trace(
    rng: random.Random, *, shape: ArtShape = ArtShape(), for_s: float | None = None, time_scale: float = 1.0
) -> Trace:  # frozen
    """The first `for_s` seconds of trace time (all of the window if None); `time_scale` multiplies every gap."""
    generator = _Generator(rng, shape)
    end_s = shape.window_s if for_s is None else for_s
    requests: list[TracedRequest] = []
    at_s = rng.expovariate(shape.rate_per_s)
    while at_s < end_s:
        requests.append(generator.request(at_s, time_scale))
        at_s += rng.expovariate(shape.rate_per_s)
    return Trace(requests=tuple(requests), block_tokens=BLOCK_TOKENS)


class _Generator:
    def __init__(self, rng: random.Random, shape: ArtShape) -> None:
        self._rng = rng
        self._shape = shape
        self._ids = count(1)
        self._system = next(self._ids)
        self._weights = list(accumulate(1 / (user + 3) ** 0.75 for user in range(shape.users)))
        self._open: dict[int, _Conversation] = {}

    def request(self, at_s: float, time_scale: float) -> TracedRequest:
        rng, shape = self._rng, self._shape
        (user,) = rng.choices(range(shape.users), cum_weights=self._weights)
        if rng.random() < shape.multi_turn_ratio:
            conversation = self._next_turn(user, at_s)
        else:
            tokens = max(64, int(rng.lognormvariate(shape.single_mu, shape.single_sigma)))
            conversation = self._begin(tokens)
        tokens = min(shape.most_prompt_tokens, conversation.tokens)
        return TracedRequest(
            at_s=at_s * time_scale,
            prompt_tokens=tokens,
            output_tokens=shape.output_tokens,
            block_ids=self._grown(conversation, tokens // BLOCK_TOKENS),
            session=str(user),
        )

    def _next_turn(self, user: int, at_s: float) -> _Conversation:
        shape = self._shape
        conversation = self._open.get(user)
        if conversation is None or conversation.turns_left <= 0:
            conversation = self._reopen(user, at_s)
        conversation.turns_left -= 1
        conversation.tokens += int(self._rng.lognormvariate(shape.growth_mu, shape.growth_sigma))
        if conversation.tokens > shape.most_prompt_tokens:
            conversation = self._open[user] = self._begin(self._first_tokens())
            conversation.turns_left = int(self._rng.expovariate(1 / shape.mean_turns)) + 1
        return conversation

    def _reopen(self, user: int, at_s: float) -> _Conversation:
        """A conversation of this user; in the first half of the window it may have grown before."""
        shape, rng = self._shape, self._rng
        tokens, turns, before = self._first_tokens(), rng.expovariate(1 / shape.mean_turns), rng.random()
        if at_s < shape.window_s / 2:
            tokens += int(before * turns * 0.6 * math.exp(shape.growth_mu + shape.growth_sigma**2 / 2))
        conversation = self._open[user] = self._begin(max(600, tokens))
        conversation.turns_left = max(1, int(turns))
        return conversation

    def _begin(self, tokens: int) -> _Conversation:
        shared = self._rng.random() < self._shape.system_prompt_ratio
        return _Conversation(tokens=tokens, blocks=[self._system] if shared else [])

    def _first_tokens(self) -> int:
        return int(self._rng.lognormvariate(self._shape.first_mu, self._shape.first_sigma))

    def _grown(self, conversation: _Conversation, blocks: int) -> tuple[int, ...]:
        while len(conversation.blocks) < blocks:
            conversation.blocks.append(next(self._ids))
        return tuple(conversation.blocks[:blocks])
