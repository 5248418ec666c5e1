"""From a demo run to what it shows: for each fault when it was seen and what users saw, and what was promised."""

from collections.abc import Sequence

import msgspec

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.demo_faults import KILLED, SMALL, SMALL_TOKENS
from tradewind.lab.faults import FaultRun
from tradewind.lab.observe import Observer
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.measure.summary import Leak, Summary, leak

REFUSALS_ALLOWED = 3  # by a cell that does not say how short it is: core.pick.limits


class FaultRow(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of one run. Times in seconds; `seen_s` counts from the injection, None = never seen."""

    name: str
    target: str
    injected_s: float
    ended_s: float | None
    seen_s: float | None
    seen_by: str
    within_s: float
    scored: bool
    requests: int  # sent while it lasted
    failed: int
    ttft_p95_s: float | None
    in_flight: list[str]  # ids that were on the target at the injection, where that matters
    leak: Leak | None


def fault_rows(runs: Sequence[FaultRun], records: Sequence[Record], observer: Observer) -> list[FaultRow]:
    """What became of every fault of a run."""
    return [_row(run, records, observer) for run in runs]


def _row(run: FaultRun, records: Sequence[Record], observer: Observer) -> FaultRow:
    fault = run.fault
    seen = fault.seen(observer, run.injected_s)
    until_s = run.ended_s if run.ended_s is not None else observer.now_s
    sent = [record for record in records if run.injected_s <= record.intended_s < until_s]
    ttfts = [record.ttft_s for record in sent if record.ok and record.ttft_s is not None]
    return FaultRow(
        name=fault.name,
        target=fault.target,
        injected_s=run.injected_s,
        ended_s=run.ended_s,
        seen_s=None if seen is None else seen[0] - run.injected_s,
        seen_by="" if seen is None else seen[1],
        within_s=fault.within_s,
        scored=fault.scored,
        requests=len(sent),
        failed=sum(1 for record in sent if not record.ok),
        ttft_p95_s=percentile(ttfts, 0.95),
        in_flight=_cut_off(records, run) if fault.target == KILLED else [],
        leak=leak(sent, longer_than=SMALL_TOKENS, with_output=True) if fault.target == SMALL else None,
    )


def _cut_off(records: Sequence[Record], run: FaultRun) -> list[str]:
    """Requests that failed on the killed engine and had reached it before it died.

    The kill takes effect between the order and its answer; a request sent within that moment may still be caught.
    """
    return [
        record.request_id
        for record in records
        if not record.ok
        and record.cell == run.fault.target
        and record.sent_s is not None
        and record.sent_s <= run.injected_s + 0.1
        and (record.end_s is None or record.end_s >= run.injected_s)
    ]


def demo_checks(faults: Sequence[FaultRow], unexplained: Sequence[str], refused: Leak, summary: Summary) -> list[Check]:
    """What the demo promises, and the figures beside it."""
    checks = [
        at_most("requests failed that were not in flight on the killed engine", len(unexplained), 0, unit="requests"),
        at_most(f"long prompts refused by {SMALL}", refused.leaked, REFUSALS_ALLOWED, unit="requests"),
    ]
    checks += [at_most(f"seen: {row.name}", row.seen_s, row.within_s, unit="s", note=row.seen_by) for row in faults]
    ttft = summary.ttft_s
    return [
        *checks,
        reported("success of all requests", summary.success_ratio, unit=""),
        reported("TTFT p50 / p95 / p99", ttft.p95, unit="s", note=quantiles(ttft.p50, ttft.p95, ttft.p99)),
    ]


def quantiles(*values: float | None) -> str:
    """ "310 / 640 / 905 ms"."""
    return " / ".join("?" if value is None else f"{1e3 * value:.0f}" for value in values) + " ms"
