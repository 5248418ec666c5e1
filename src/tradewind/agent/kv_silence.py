"""Whether an engine must have published KV events and has not; no clock, no I/O.

A quiet wire is no evidence: an idle engine publishes nothing, nor does one whose prompts are all in its cache. Prompt
tokens that the cache did not have are: each prompt leaves at most one block unfilled, and every filled one is told.
Generated tokens do not count: engines store them at times of their own, or never.
"""

from dataclasses import dataclass

from tradewind.model.telemetry import EngineReading

QUIET_S = 10.0  # after a message: what led to it is on the page by then
HOLD_S = 5.0  # a message that is under way has come by then
MARGIN = 2.0  # times one block for each prompt
SPARE_BLOCKS = 16  # beyond it, so that no single prompt decides


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    prompt_tokens: float
    hit_tokens: float
    finished: float
    first_tokens: float
    inside: float  # requests that run or wait

    def fell(self, before: "_Page") -> bool:
        return (
            self.prompt_tokens < before.prompt_tokens
            or self.hit_tokens < before.hit_tokens
            or self.finished < before.finished
            or self.first_tokens < before.first_tokens
        )


class KvSilence:
    """One engine, all its ranks together: the page does not tell them apart."""

    def __init__(self) -> None:
        self.silent = False  # holds until a message comes
        self.silent_s = 0.0  # for how long nothing had come
        self.computed_tokens = 0.0  # that the engine has computed of prompts meanwhile, at least
        self._block_size_tokens: int | None = None
        self._heard_s: float | None = None
        self._last: _Page | None = None
        self._began: _Page | None = None  # the first page of this silence
        self._settled: _Page | None = None  # what was inside then is finished: its blocks may have been told before
        self._over_s: float | None = None

    def heard(self, now_s: float) -> None:
        """A message has come."""
        self._heard_s, self.silent = now_s, False
        self._count_anew()

    def stored(self, block_size_tokens: int) -> None:
        """Blocks of this size were among the events; where an engine has several sizes, the largest counts."""
        self._block_size_tokens = max(block_size_tokens, self._block_size_tokens or 0)

    def engine_restarted(self, now_s: float) -> None:
        """Its counters begin again, and its publisher may need a moment."""
        self._last = None
        self._count_anew()
        if self._heard_s is not None:
            self._heard_s = max(now_s, self._heard_s)

    def page(self, reading: EngineReading, asked_s: float) -> None:
        """A metrics page that was asked for at asked_s. A figure that is missing, or a counter that falls, begins the
        count anew: it may be another process, or another one of several."""
        page, before = _page_of(reading), self._last
        self._last = page
        if page is None or (before is not None and page.fell(before)):
            self._count_anew()
        if page is None or self._heard_s is None or asked_s - self._heard_s < QUIET_S:
            return
        began = self._began = self._began or page
        if self._settled is None and (not page.inside or page.finished - began.finished >= began.inside):
            self._settled = page
        if self._settled is not None:
            self._judge(page, asked_s, began=began, settled=self._settled, heard_s=self._heard_s)

    def _judge(self, page: _Page, asked_s: float, *, began: _Page, settled: _Page, heard_s: float) -> None:
        # Hits are booked when a request is scheduled and prompts when it has its first token, so hits count for longer.
        tokens = page.prompt_tokens - settled.prompt_tokens - (page.hit_tokens - began.hit_tokens)
        # Clients that leave are in neither of the last two; engines that book prompts at the end are not in the first.
        prompts = max(page.first_tokens - began.first_tokens, page.finished - began.finished + page.inside)
        if self._block_size_tokens is None or tokens <= self._block_size_tokens * (MARGIN * prompts + SPARE_BLOCKS):
            self._over_s = None
            return
        self._over_s = asked_s if self._over_s is None else self._over_s
        if asked_s - self._over_s >= HOLD_S and not self.silent:
            self.silent, self.silent_s, self.computed_tokens = True, asked_s - heard_s, tokens

    def _count_anew(self) -> None:
        self._began = self._settled = self._over_s = None


def _page_of(reading: EngineReading) -> _Page | None:
    """None if the page lacks one of the figures."""
    prompt_tokens, hit_tokens = reading.prompt_tokens_total, reading.prefix_hit_tokens_total
    finished, ttft_s = reading.finished_total, reading.ttft_s
    running, waiting = reading.running_requests, reading.queue_requests
    if prompt_tokens is None or hit_tokens is None or finished is None or ttft_s is None:
        return None
    if running is None or waiting is None:
        return None
    return _Page(
        prompt_tokens=prompt_tokens,
        hit_tokens=hit_tokens,
        finished=finished,
        first_tokens=ttft_s.counts[-1],
        inside=running + waiting,
    )
