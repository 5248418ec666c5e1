"""A row of refusals by one cell that may be about length, and the bound that follows from it.

Engines differ in what they hold against their limit: the longer of prompt and max_tokens, or the sum of both. Each
refusal is taken as one about either, until something as long by that measure, sent later, is served.

A limit may fall while a cell works. So only what was sent after the first refusal of a row and served shows what the
cell takes now; what it served before counts until a refusal belies it. The bound grows with each success, in smaller
steps after the second refusal; after the third only what is a little shorter than the longest served since is sent.
That is three refusals in all, if all of them were about length. A first refusal of what the cell has served before may
as well be about what was in the request: its like goes to others while there are others, and one tries again soon.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from tradewind.core.memory import RefusalsMemory

MAX_REFUSALS = 3
TRIAL_AFTER_S = 60.0  # until one request of any length tries whether the bound holds
SUSPECT_S = 30.0  # the same where the first refusal may have been about something else
MAX_DOUBLINGS = 6  # of the pause between trials, where refusals were not about length before
GROWTH = (1.25, 1.1)  # over the longest served, after the first and the second refusal
START = 0.25  # of the shortest refused, where nothing long was served yet
BELOW_REFUSED = 0.97  # estimates differ a little between like requests
LIKE = 0.9  # a peer, or a probe, that was served this share of a length speaks for all of it
LONGER = 1.03  # ... and a refusal must be this much longer than what was served, to be new
BYTES_PER_TOKEN = 4.0  # of a prompt, where no refusal has told


class Size(NamedTuple):
    """How long a request is, in tokens."""

    prompt: int
    output: int  # allowed; 1 where the client does not say

    @property
    def measures(self) -> tuple[int, int]:
        """What an engine may hold against its limit."""
        return max(self.prompt, self.output), self.prompt + self.output


class Refusals:
    """One row. Nothing is bounded while `count` is 0: no peer has served the like yet."""

    __slots__ = (
        "_bounds",
        "_bytes_per_token",
        "_counted_s",
        "_fell",
        "_first_s",
        "_heard_s",
        "_tries",
        "before",
        "count",
        "hard",
        "refused",
        "since",
        "trial_s",
    )

    def __init__(self, before: Sequence[int], *, sent_s: float) -> None:
        """`before`: the longest that the cell served, by each measure; `sent_s`: when the first refused was sent."""
        self.before = list(before)
        self.since = [0] * len(self.before)  # the longest served of what was sent later
        self.refused: list[float] = [inf] * len(self.before)  # the shortest; inf once it is not about this measure
        self.count = 0
        self.trial_s = inf  # when one of the bounded or doubted may try
        self._bounds: list[float] = [inf] * len(self.before)
        self.hard = False  # what is too long is not sent, rather than sent to others while there are others
        self._fell = False  # something was refused that had been served before
        self._first_s = sent_s
        self._counted_s = self._heard_s = -inf  # the newest refusal that counts; the newest
        self._tries = 0
        self._bytes_per_token = BYTES_PER_TOKEN

    @property
    def final(self) -> bool:
        """No refusal more may happen."""
        return self.count >= MAX_REFUSALS

    @property
    def over(self) -> bool:
        """It was not about length, or is no more."""
        return all(refused == inf for refused in self.refused)

    @property
    def bound(self) -> float:
        """Requests that are so long by any measure are not sent."""
        return min(self._bounds) if self.hard else inf

    def allows(self, measures: Sequence[int], now_s: float) -> bool:
        """Whether a request is sent; a due trial lets one through."""
        return now_s >= self.trial_s or not self._bounded(measures)

    def doubts(self, measures: Sequence[int], now_s: float) -> bool:
        """Whether others should get it while there are others."""
        return not self.hard and now_s < self.trial_s and self.like(measures)

    def like(self, measures: Sequence[int]) -> bool:
        """Whether it is as long as what was refused, by every measure that it can be about."""
        return all(
            size >= BELOW_REFUSED * refused
            for size, refused in zip(measures, self.refused, strict=True)
            if refused < inf
        )

    def within(self, measures: Sequence[int]) -> bool:
        """Whether the like, and longer, was sent after the refusals and served: clearly, since lengths are guessed."""
        return all(
            size < LIKE * since
            for size, since, refused in zip(measures, self.since, self.refused, strict=True)
            if refused < inf
        )

    def on_sent(self, measures: Sequence[int], now_s: float) -> None:
        """A request was sent; if it was the trial, the next one waits."""
        if now_s >= self.trial_s and (self._bounded(measures) or (not self.hard and self.like(measures))):
            self._tries += 1
            self.trial_s = now_s + self._pause_s()

    def on_served(self, measures: Sequence[int], *, sent_s: float) -> None:
        """A request was served here."""
        if sent_s <= self._first_s:
            return  # it may have been let in before the limit fell
        for at, size in enumerate(measures):
            self.since[at] = max(self.since[at], size)
            if size >= self.refused[at]:
                self.refused[at] = inf
        self._rebound()

    def on_refused(
        self, size: Size, *, sent_s: float, now_s: float, request_bytes: int, answered: bool, noisy: bool
    ) -> None:
        """Refused here. `answered`: a peer has served the like. `noisy`: of late it was something else, here."""
        belied = [one < LONGER * before for one, before in zip(size.measures, self.before, strict=True)]
        self._fell = self._fell or all(belied)
        for at, one in enumerate(size.measures):
            if belied[at]:
                self.before[at] = 0
            if self.count and one < LIKE * self.since[at]:
                self.refused[at] = inf  # more was served meanwhile: then it is the other measure
            elif self.refused[at] < inf or not self.count:
                self.refused[at] = min(self.refused[at], one)
                self.since[at] = self.since[at] if one > self.since[at] else int(BELOW_REFUSED * one)
        if request_bytes > 0:
            self._bytes_per_token = request_bytes / size.prompt
        self._heard_s = now_s
        if answered and sent_s > self._counted_s:  # else it was on its way when the last one taught the same
            self._count(now_s, noisy=noisy)
        self._rebound()

    def on_answered(self, now_s: float, *, noisy: bool) -> None:
        """A peer has served the like of a refusal that is not counted yet; long after it that says less."""
        self._fell = self._fell or now_s > self._heard_s + SUSPECT_S
        self._count(now_s, noisy=noisy)
        self._rebound()

    def on_probe_served(self, prompt_bytes: int, prompt_tokens: int | None, now_s: float) -> None:
        """The cell served a prompt and one token of output. What that does not settle, one request may try."""
        prompt = prompt_tokens or int(prompt_bytes / self._bytes_per_token)
        for at, one in enumerate(Size(prompt, 1).measures):
            self.since[at] = max(self.since[at], one)
            if one >= LIKE * self.refused[at]:
                self.refused[at] = inf
        self.trial_s = min(self.trial_s, now_s if not self._tries else now_s + self._pause_s())
        self._rebound()

    def remembered(self, now_s: float) -> RefusalsMemory:
        """For a restart."""
        return RefusalsMemory(
            count=self.count,
            hard=self.hard,
            fell=self._fell,
            before=tuple(self.before),
            since=tuple(self.since),
            refused=tuple(None if refused == inf else refused for refused in self.refused),
            trial_in_s=None if self.trial_s == inf else max(0.0, self.trial_s - now_s),
            tries=self._tries,
            bytes_per_token=self._bytes_per_token,
        )

    @classmethod
    def recalled(cls, memory: RefusalsMemory, now_s: float) -> "Refusals":
        """Goes on from what was remembered."""
        row = cls(memory.before, sent_s=-inf)
        row.count, row.hard, row._fell, row._tries = memory.count, memory.hard, memory.fell, memory.tries
        row.since = list(memory.since)
        row.refused = [inf if refused is None else refused for refused in memory.refused]
        row.trial_s = inf if memory.trial_in_s is None else now_s + memory.trial_in_s
        row._bytes_per_token = memory.bytes_per_token
        row._rebound()
        return row

    def _bounded(self, measures: Sequence[int]) -> bool:
        return self.hard and any(size >= bound for size, bound in zip(measures, self._bounds, strict=True))

    def on_noise(self, now_s: float) -> None:
        """Other refusals here were not about length: perhaps these were not either."""
        if self.trial_s == inf and self.count:
            self.trial_s = now_s + self._pause_s()

    def _count(self, now_s: float, *, noisy: bool) -> None:
        self.count += 1
        self._counted_s = now_s
        self.hard = self.hard or not (noisy or (self.count == 1 and self._fell))
        again = noisy or self.count == 1 or (self._fell and not self.final)
        self.trial_s = now_s + self._pause_s() if again else inf

    def _pause_s(self) -> float:
        return (TRIAL_AFTER_S if self.hard else SUSPECT_S) * float(2 ** min(self._tries, MAX_DOUBLINGS))

    def _rebound(self) -> None:
        """A little over what was served, below what was refused."""
        for at, refused in enumerate(self.refused):
            if refused == inf or not self.count:
                self._bounds[at] = inf
            elif self.final:
                self._bounds[at] = BELOW_REFUSED * self.since[at] + 1.0
            else:
                served = max(self.before[at], self.since[at])
                grown = max(START * refused, GROWTH[self.count - 1] * served)
                self._bounds[at] = max(served + 1.0, min(BELOW_REFUSED * refused, grown))
