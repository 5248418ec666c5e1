"""Policies that follow caches: sessions by hash, AIBrix's prefix rule, SGLang's cache-aware rule."""

from hashlib import blake2b
from math import sqrt

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.policies.ranking import among, least_by, measured

SESSION_TOKENS = 256  # the part of a prompt that names the session, where no header does
MASK = (1 << 64) - 1


class SessionAffinity:
    """A session keeps its cell (rendezvous hashing): by header, else by the prompt's first 256 tokens."""

    name = "session_affinity"
    in_seconds = False

    def choose(self, ask: Ask) -> Choice:
        key = _session_key(ask)
        ranked = measured(ask.cells, lambda cell: -float(_mixed(key ^ cell.key)))
        return Choice(ranked, 0, (1.0,))


class PrefixCache:
    """AIBrix's prefix-cache: the longest match on a cell that is not much busier than the mean.

    With more than 8 requests between the busiest and the idlest cell, or without a match, the fewest in flight.
    """

    name = "prefix_cache"
    in_seconds = False
    gap_requests = 8
    deviations = 1.0

    def choose(self, ask: Ask) -> Choice:
        loads = [ask.load(cell) for cell in ask.cells]
        if max(loads) - min(loads) <= self.gap_requests:
            mean = sum(loads) / len(loads)
            bound = mean + self.deviations * sqrt(sum((load - mean) ** 2 for load in loads) / len(loads))
            held = [cell for cell in ask.cells if ask.matched(cell) and ask.load(cell) <= bound]
            if held:
                deepest = max(ask.matched(cell) for cell in held)
                best = [cell for cell in held if ask.matched(cell) == deepest]
                return among(best, least_by(ask, best, ask.load), ask)
        return least_by(ask, ask.cells, ask.load)


class CacheAware:
    """SGLang's cache_aware: while loads are balanced, the longest match if it covers enough, else the fewest in flight.

    The published rule sends what matches nowhere to the smallest tree, which is the busiest cell in the end; here it
    goes to the fewest in flight, as later releases do.
    """

    name = "cache_aware"
    in_seconds = False
    match_ratio = 0.5
    gap_requests = 32
    gap_ratio = 1.0001

    def choose(self, ask: Ask) -> Choice:
        loads = [ask.load(cell) for cell in ask.cells]
        high, low = max(loads), min(loads)
        balanced = high - low <= self.gap_requests or high <= self.gap_ratio * low
        deepest = max(ask.matched(cell) for cell in ask.cells)
        if balanced and deepest > self.match_ratio * ask.prompt_tokens:
            best = [cell for cell in ask.cells if ask.matched(cell) == deepest]
            return among(best, least_by(ask, best, ask.load), ask)
        return least_by(ask, ask.cells, ask.load)


def _session_key(ask: Ask) -> int:
    request = ask.request
    if request.session:
        return int.from_bytes(blake2b(request.session.encode(), digest_size=8).digest(), "big")
    if request.blocks and request.block_tokens > 0:
        place = max(1, round(SESSION_TOKENS / request.block_tokens))
        return request.blocks[min(place, len(request.blocks)) - 1] & MASK
    return ask.rng.getrandbits(64)


def _mixed(value: int) -> int:
    """Scatters 64 bits (the finaliser of splitmix64)."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def best_match(ask: Ask, cells: list[PickCell]) -> int:
    """Tokens held by the best of them."""
    return max((ask.matched(cell) for cell in cells), default=0)
