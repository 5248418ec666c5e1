"""Real conversations that ship with the project: a slice of Mooncake's trace; Apache-2.0, see data/."""

import gzip
import random
from dataclasses import replace
from functools import cache
from importlib import resources

from tradewind.workload.mooncake import Trace, parse_mooncake
from tradewind.workload.ties import spread

SLICE = "mooncake_conversation_2025_slice.jsonl.gz"


@cache
def shipped_conversations() -> Trace:
    """All of the slice as it was published: 3,000 requests in 864 s, timestamps in steps of three seconds."""
    packed = resources.files("tradewind.workload").joinpath("data", SLICE).read_bytes()
    rows = tuple(parse_mooncake(gzip.decompress(packed).splitlines(), name=SLICE))
    return Trace(requests=tuple(replace(row, at_s=row.at_s - rows[0].at_s) for row in rows))


def conversations(rng: random.Random, *, for_s: float, most_prompt_tokens: int, time_scale: float) -> Trace:
    """A part of the slice that begins anywhere, without longer prompts, spread over each step of its clock.

    `time_scale` multiplies the gaps; `for_s` is after that, and what does not fit into the slice is left out.
    """
    whole = shipped_conversations().requests
    window_s = for_s / time_scale
    begin_s = rng.uniform(0.0, max(0.0, whole[-1].at_s - window_s))
    kept = tuple(
        replace(request, at_s=request.at_s - begin_s)
        for request in whole
        if begin_s <= request.at_s < begin_s + window_s and request.prompt_tokens <= most_prompt_tokens
    )
    moved = spread(Trace(requests=kept), rng).requests
    return Trace(requests=tuple(replace(request, at_s=request.at_s * time_scale) for request in moved))
