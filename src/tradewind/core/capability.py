"""A cell that says it serves shorter prompts than its peers, judged before the first refusal (line 15, last sentence).

`weights` has one weight per cell, so such a cell is in or out for all prompts. It is out
- while prompts longer than its limit were seen in the last ten minutes, if a third of the pool remains, and
- while nothing is known of the traffic, if its limit is below half of the pool's largest and two thirds remain:
  losing a minority of capacity is cheaper than refusing whoever sends the first long prompt.
It is in once enough prompts were seen over ten minutes and the longest fits twice.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.core.memory import Lengths
from tradewind.core.settings import CapabilitySettings

MAX_MAXIMA = 256


@dataclass(slots=True)
class LongestPrompt:
    """The longest prompt of a pool in the last `memory_s`, in tokens, with O(1) work per request."""

    settings: CapabilitySettings
    maxima: deque[tuple[float, float]] = field(default_factory=deque)  # (at_s, tokens), tokens falling
    tokens_per_byte: float | None = None
    first_s: float | None = None
    requests: int = 0

    def on_request(
        self, *, request_bytes: int, prompt_tokens: int | None, completion_tokens: int | None, now_s: float
    ) -> None:
        """Takes one request that a cell accepted or refused for its size."""
        self.first_s = now_s if self.first_s is None else self.first_s
        self.requests += 1
        if prompt_tokens is not None and prompt_tokens > 0 and request_bytes > 0:
            seen = prompt_tokens / request_bytes
            old = self.tokens_per_byte
            self.tokens_per_byte = seen if old is None else old + 0.05 * (seen - old)
            tokens = float(prompt_tokens + (completion_tokens or 0))
        else:
            tokens = request_bytes * (self.tokens_per_byte or 1.0 / self.settings.bytes_per_token)
        while self.maxima and self.maxima[-1][1] <= tokens:
            self.maxima.pop()
        self.maxima.append((now_s, tokens))
        if len(self.maxima) > MAX_MAXIMA:  # a long falling run: the shortest of them will never matter
            self.maxima.pop()

    def longest(self, now_s: float) -> float:
        """Tokens of the longest in memory; 0 when there is none."""
        while self.maxima and now_s - self.maxima[0][0] > self.settings.memory_s:
            self.maxima.popleft()
        return self.maxima[0][1] if self.maxima else 0.0

    def remembered(self, pool: str, now_s: float) -> Lengths | None:
        """What outlives a restart; None before the first request."""
        if self.first_s is None:
            return None
        return Lengths(
            pool=pool,
            maxima=tuple((max(0.0, now_s - at_s), tokens) for at_s, tokens in self.maxima),
            requests=self.requests,
            watched_s=max(0.0, now_s - self.first_s),
            tokens_per_byte=self.tokens_per_byte,
        )

    @staticmethod
    def recalled(memory: Lengths, settings: CapabilitySettings, now_s: float) -> "LongestPrompt":
        """Goes on from what was remembered."""
        longest = LongestPrompt(settings)
        for age_s, tokens in memory.maxima[-MAX_MAXIMA:]:
            longest.maxima.append((now_s - age_s, tokens))
        longest.requests, longest.first_s = memory.requests, now_s - memory.watched_s
        longest.tokens_per_byte = memory.tokens_per_byte
        return longest

    def proven_short(self, limit: int, now_s: float) -> bool:
        """True when enough traffic was seen for long enough and all of it fits `limit` with a margin."""
        watched_s = 0.0 if self.first_s is None else now_s - self.first_s
        enough = self.requests >= self.settings.min_requests and watched_s >= self.settings.memory_s
        return enough and self.longest(now_s) * self.settings.margin <= limit


def too_small(
    limits: Mapping[str, int | None], longest: LongestPrompt, settings: CapabilitySettings, now_s: float
) -> dict[str, str]:
    """Cell id -> why it is left out. `limits`: max_model_len of the pool's READY cells, None where not said."""
    stated = [limit for limit in limits.values() if limit is not None]
    if len(stated) < 2 or min(stated) == max(stated):
        return {}
    largest, seen = max(stated), longest.longest(now_s)
    out: dict[str, str] = {}
    proven = {cell for cell, limit in limits.items() if limit is not None and limit < min(seen, largest)}
    if proven and len(limits) - len(proven) >= max(1, math.ceil(settings.keep_proven * len(limits) - 1e-9)):
        out.update((cell, f"serves {limits[cell]} tokens, {seen:.0f} seen") for cell in sorted(proven))
    short = {
        cell
        for cell, limit in limits.items()
        if limit is not None and limit < settings.much_less * largest and not longest.proven_short(limit, now_s)
    } | set(out)
    if len(limits) - len(short) >= math.ceil(settings.keep_unproven * len(limits) - 1e-9):
        for cell in sorted(short - set(out)):
            out[cell] = f"serves {limits[cell]} tokens, peers {largest}, long prompts not ruled out"
    return out
