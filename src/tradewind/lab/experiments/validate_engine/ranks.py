"""Ranks of data parallelism with experts spread over them: engines behind one address that step together.

At each layer the ranks exchange tokens for their experts, so a step of all lasts as long as that of the slowest. What
the experts do is shared by all ranks; what is outside of them each rank does for its own tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.engine.law import StepLoad, context_s, weights_s
from tradewind.engine.profiles import Profile
from tradewind.engine.scheduler import EngineLimits, EngineModel
from tradewind.engine.sequence import SequenceRequest
from tradewind.workload.measured import MeasuredRequest

TOLD_EVERY_S = 0.1  # vLLM's coordinator tells the front ends how many requests each rank has
_WAITING_WEIGHT = 4  # vLLM's balancer of ranks: a waiting request counts as four running ones
_NOTHING = StepLoad(prefill_tokens=1, decodes=0, kv_tokens=0, attention=0.0)  # an idle rank steps with a made-up token


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of first and last tokens by number of the request."""

    first_s: dict[int, float]
    last_s: dict[int, float]


def run_together(
    requests: Sequence[MeasuredRequest], *, ranks: int, profile: Profile, limits: EngineLimits, experts: float
) -> Times:
    """The requests, in order of arrival, on `ranks` ranks. `experts`: share of a token's work that is theirs, 0..1."""
    engines = [EngineModel(profile=profile, limits=limits) for _ in range(ranks)]
    balancer, times = _Balancer(engines), Times({}, {})
    now_s, arrived = 0.0, 0
    while True:
        arrived = balancer.take(requests, arrived, until_s=now_s)
        plans = [engine.plan_step(now_s=now_s) for engine in engines]
        if not any(plans):
            if arrived == len(requests):
                return times
            now_s = max(now_s, requests[arrived].arrival_s)
            continue
        now_s += together_s(profile, [plan.load if plan else _NOTHING for plan in plans], experts=experts)
        arrived = balancer.take(requests, arrived, until_s=now_s)
        for engine in [engine for engine, plan in zip(engines, plans, strict=True) if plan]:
            outcome = engine.finish_step(now_s=now_s)
            times.first_s.update((sequence.request.seq_id, now_s) for sequence in outcome.first)
            times.last_s.update((sequence.request.seq_id, now_s) for sequence in outcome.finished)


def together_s(profile: Profile, loads: Sequence[StepLoad], *, experts: float) -> float:
    """Seconds of one step of ranks with these loads: `engine.law.step_s` where there is one.

    The weights that are read are those that the tokens of all ranks touch (`profile` has each rank's part of them).
    """
    tokens = [load.prefill_tokens + load.decodes for load in loads]
    each = experts * sum(tokens) / len(loads) + (1.0 - experts) * max(tokens)
    own_s = max(profile.c_s * load.decodes + context_s(profile, load) + profile.e_s * load.attention for load in loads)
    return profile.a0_s + math.hypot(weights_s(profile, sum(tokens)), profile.b_s * each) + own_s


class _Balancer:
    """Gives each request to a rank, by counts that are up to `TOLD_EVERY_S` old and what was given since."""

    def __init__(self, engines: Sequence[EngineModel]) -> None:
        self._engines = engines
        self._scores = [0] * len(engines)
        self._told = -1  # number of the counts in hand

    def take(self, requests: Sequence[MeasuredRequest], first: int, *, until_s: float) -> int:
        """Hand over what arrives until then, from the request of this number on; the number of the next."""
        for number in range(first, len(requests)):
            asked = requests[number]
            if asked.arrival_s > until_s:
                return number
            self._hear(asked.arrival_s)
            rank = min(range(len(self._engines)), key=self._scores.__getitem__)
            self._scores[rank] += _WAITING_WEIGHT
            given = SequenceRequest(seq_id=number, prompt_tokens=asked.prompt_tokens, output_tokens=asked.output_tokens)
            self._engines[rank].submit(given, now_s=asked.arrival_s)
        return len(requests)

    def _hear(self, now_s: float) -> None:
        told = int(now_s / TOLD_EVERY_S)
        if told != self._told:
            self._told = told
            self._scores = [
                _WAITING_WEIGHT * engine.waiting + engine.unfinished - engine.waiting for engine in self._engines
            ]
