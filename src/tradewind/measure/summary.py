"""Records to figures: latency over successes, and beside it always the count, the failures and the goodput."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tradewind.measure.record import Failure, Record
from tradewind.measure.statistics import percentile

HTTP_BAD_REQUEST = 400


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds over `count` values; None without values."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run, or one group of requests of it. Latencies are over successes; `goodput_per_s` is not."""

    requests: int
    succeeded: int
    success_ratio: float | None  # None without requests
    failures: dict[str, int]  # by kind, largest first
    headers_only: int
    bytes_delivered: int
    ttft_s: Percentiles  # from the intended sending
    ttft_sent_s: Percentiles  # from the actual sending
    e2e_s: Percentiles
    itl_s: Percentiles
    send_lag_s: Percentiles  # how late the client itself was
    good: int  # served in full and first content within the SLO
    goodput_per_s: float
    slo_ttft_s: float
    for_s: float
    output_tokens_per_s: float
    cached_ratio: float | None  # of the prompt tokens that engines counted, those from a prefix cache; None = not told


def summarise(records: Sequence[Record], *, slo_ttft_s: float, for_s: float) -> Summary:
    """Figures of some records of a load that lasted `for_s`."""
    served = [record for record in records if record.ok]
    failures = Counter(_failure_name(record) for record in records if not record.ok)
    good = sum(1 for record in served if record.ttft_s is not None and record.ttft_s <= slo_ttft_s)
    tokens = sum(record.usage_completion_tokens or record.content_events for record in records)
    kinds = Counter(record.failure for record in records)
    return Summary(
        requests=len(records),
        succeeded=len(served),
        success_ratio=len(served) / len(records) if records else None,
        failures=dict(failures.most_common()),
        headers_only=kinds[Failure.HEADERS_ONLY],
        bytes_delivered=kinds[Failure.BYTES_DELIVERED],
        ttft_s=percentiles(served, lambda record: record.ttft_s),
        ttft_sent_s=percentiles(served, lambda record: record.ttft_sent_s),
        e2e_s=percentiles(served, lambda record: record.e2e_s),
        itl_s=percentiles(served, lambda record: record.itl_s),
        send_lag_s=percentiles(records, _send_lag_s),
        good=good,
        goodput_per_s=good / for_s if for_s > 0 else 0.0,
        slo_ttft_s=slo_ttft_s,
        for_s=for_s,
        output_tokens_per_s=tokens / for_s if for_s > 0 else 0.0,
        cached_ratio=cached_ratio(served),
    )


def cached_ratio(records: Iterable[Record]) -> float | None:
    """Cached over all prompt tokens, of the requests whose engine told both."""
    told = [
        (record.usage_cached_tokens, record.usage_prompt_tokens)
        for record in records
        if record.usage_cached_tokens is not None and record.usage_prompt_tokens is not None
    ]
    prompt = sum(tokens for _, tokens in told)
    return sum(cached for cached, _ in told) / prompt if prompt else None


def percentiles(records: Iterable[Record], read: Callable[[Record], float | None]) -> Percentiles:
    """P50, P95 and P99 of what `read` finds."""
    values = [value for value in map(read, records) if value is not None]
    return Percentiles(
        count=len(values), p50=percentile(values, 0.5), p95=percentile(values, 0.95), p99=percentile(values, 0.99)
    )


def shares(records: Iterable[Record]) -> dict[str, float]:
    """Share of the requests that each cell answered, by cell id; requests of unknown cells are left out."""
    counts = Counter(record.cell for record in records if record.cell is not None)
    total = sum(counts.values())
    return {cell: counts[cell] / total for cell in sorted(counts)}


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Long prompts that a cell had to refuse (published_systems.md A, "Metric definitions")."""

    long_prompts: int
    leaked: int
    ratio: float | None  # None without long prompts


def leak(records: Iterable[Record], *, longer_than: int, skip_first: int = 0, with_output: bool = False) -> Leak:
    """Refusals with 400 among prompts of more than `longer_than` tokens, the first `skip_first` of them left out.

    `with_output` counts the wanted output too, as an engine does. It holds where some cell could have served each.
    """
    in_order = sorted(records, key=lambda record: record.intended_s)
    sized = [(record.prompt_tokens + with_output * record.output_tokens, record) for record in in_order]
    long = [record for tokens, record in sized if tokens > longer_than][skip_first:]
    leaked = sum(1 for record in long if record.status == HTTP_BAD_REQUEST)
    return Leak(long_prompts=len(long), leaked=leaked, ratio=leaked / len(long) if long else None)


def lost_with_cell(
    records: Iterable[Record], cell: str, at_s: float, *, grace_s: float = 0.0
) -> tuple[list[Record], list[Record]]:
    """Failed requests that a cell had when it died at `at_s`: those without a token, and those cut after tokens.

    One without a token is lost with the cell that had it first, wherever it was tried afterwards. `grace_s`: how much
    later than `at_s` the death may have been.
    """
    failed = [
        record
        for record in records
        if not record.ok
        and record.sent_s is not None
        and record.sent_s <= at_s + grace_s
        and (record.end_s is None or record.end_s >= at_s)
    ]
    lost = [r for r in failed if r.content_s is None and (r.cell == cell or cell in r.attempted)]
    return lost, [r for r in failed if r.content_s is not None and r.cell == cell]


def retried_from(records: Iterable[Record], cell: str) -> list[Record]:
    """Requests that a cell did not answer and that were tried elsewhere, as far as the gateway's log is known."""
    return [record for record in records if cell in record.attempted[:-1]]


def _send_lag_s(record: Record) -> float | None:
    return None if record.sent_s is None else record.sent_s - record.intended_s


def _failure_name(record: Record) -> str:
    return f"status_{record.status}" if record.failure is Failure.STATUS else record.failure.value
