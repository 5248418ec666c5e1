"""What no routing can beat: every request alone on the nearest site, with all caches of the grid pooled into one.

There is no queue and no batch: the pool is as large as the cells' KV together, least recently used goes first, and a
prompt is in it from its arrival on. Each request has the class of hardware, among those of the grid, that is fastest
for it, healthy, over the shortest declared path without jitter.
"""

from collections import OrderedDict
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from tradewind.engine.law import StepLoad, step_s
from tradewind.engine.profiles import Profile
from tradewind.lab.simulated.compare import RunRow
from tradewind.measure.statistics import percentile
from tradewind.sim.scenario import Scenario
from tradewind.workload.mooncake import TracedRequest
from tradewind.workload.streams import stream

FLOOR = "zero-queue floor"
CHUNK_TOKENS = 2_048


class _Alone(NamedTuple):
    """One request without company."""

    ttft_s: float
    decode_s: float
    cached_tokens: int
    request: TracedRequest


def floor_row(scenario: Scenario, *, seed: int) -> RunRow:
    """The floor under every policy on this seed's load, as one run's figures."""
    trace = scenario.load(stream(seed, f"{scenario.name}/load"))
    from_s = scenario.warm_up_ratio * scenario.for_s
    pool = _Pool(sum(cell.kv_capacity_tokens for cell in scenario.cells) // trace.block_tokens)
    profiles = tuple({cell.profile.name: cell.profile for cell in scenario.cells}.values())
    rtt_s = min(min(rtts) for rtts in scenario.rtts_s)
    served = [_alone(request, profiles, pool, trace.block_tokens, rtt_s) for request in trace.requests]
    counted = [one for one in served if one.request.at_s >= from_s]
    ttfts = [one.ttft_s for one in counted]
    e2es = [one.ttft_s + one.decode_s for one in counted]
    itls = [one.decode_s / (one.request.output_tokens - 1) for one in counted if one.request.output_tokens > 1]
    hit = sum(one.cached_tokens for one in counted) / (sum(one.request.prompt_tokens for one in counted) or 1)
    return RunRow(
        scenario=scenario.name,
        policy=FLOOR,
        seed=seed,
        requests=len(counted),
        success_ratio=1.0,
        ttft_p50_s=percentile(ttfts, 0.5) or 0.0,
        ttft_p95_s=percentile(ttfts, 0.95) or 0.0,
        ttft_p99_s=percentile(ttfts, 0.99) or 0.0,
        e2e_p50_s=percentile(e2es, 0.5) or 0.0,
        e2e_p95_s=percentile(e2es, 0.95) or 0.0,
        itl_mean_s=fmean(itls) if itls else 0.0,
        itl_p95_s=percentile(itls, 0.95) or 0.0,
        hit_served_ratio=hit,
        hit_predicted_ratio=hit,
        max_share=1.0,
        trace_hash="",
    )


def _alone(
    request: TracedRequest, profiles: Sequence[Profile], pool: "_Pool", block_tokens: int, rtt_s: float
) -> _Alone:
    depth = min(pool.take(request.block_ids), (request.prompt_tokens - 1) // block_tokens)
    cached = depth * block_tokens
    times = (
        (profile.ingest_s + prefill_s(profile, request.prompt_tokens, cached), decode_s(profile, request))
        for profile in profiles
    )
    first_s, rest_s = min(times, key=sum)
    return _Alone(rtt_s + first_s, rest_s, cached, request)


def prefill_s(profile: Profile, prompt_tokens: int, cached_tokens: int) -> float:
    """An engine with nothing else to do, chunk by chunk."""
    total_s, done = 0.0, cached_tokens
    while done < prompt_tokens:
        chunk = min(CHUNK_TOKENS, prompt_tokens - done)
        total_s += step_s(profile, StepLoad(chunk, 0, 0, chunk * (done + chunk / 2)))
        done += chunk
    return total_s


def decode_s(profile: Profile, request: TracedRequest) -> float:
    """All tokens after the first, in a batch of one; a step grows linearly with its context."""
    steps = request.output_tokens - 1
    context = request.prompt_tokens + (1 + steps) // 2
    return steps * step_s(profile, StepLoad(0, 1, context, 0.0)) if steps > 0 else 0.0


class _Pool:
    """Blocks of all cells in one cache."""

    def __init__(self, blocks: int) -> None:
        self._room = blocks
        self._held: OrderedDict[int, None] = OrderedDict()

    def take(self, blocks: Sequence[int]) -> int:
        """Leading blocks held; afterwards all are, and roots outlive leaves."""
        depth = 0
        while depth < len(blocks) and blocks[depth] in self._held:
            depth += 1
        for block in reversed(blocks):
            self._held[block] = None
            self._held.move_to_end(block)
        while len(self._held) > self._room:
            self._held.popitem(last=False)
        return depth
