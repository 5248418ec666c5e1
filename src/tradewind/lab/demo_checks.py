"""From a demo run to what it shows: for each fault when it was seen and what users saw, and what was promised."""

from collections.abc import Sequence

import msgspec

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.demo_faults import KILLED, SMALL, SMALL_TOKENS
from tradewind.lab.faults import FaultRun
from tradewind.lab.observe import Observer
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.measure.summary import Leak, Summary, leak, lost_with_cell, retried_from

REFUSALS_ALLOWED = 3  # by a cell that does not say how short it is: core.pick.limits
KILL_TAKES_S = 0.1  # between the order and its answer; a request sent within that moment may still be caught


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
    lost: list[str]  # ids that the killed engine had without a token
    cut: list[str]  # ids that it had given tokens
    retried: int  # that it did not answer, and another cell did
    leak: Leak | None


def fault_rows(runs: Sequence[FaultRun], records: Sequence[Record], observer: Observer) -> list[FaultRow]:
    """What became of every fault of a run."""
    return [_row(run, records, observer) for run in runs]


def _row(run: FaultRun, records: Sequence[Record], observer: Observer) -> FaultRow:
    fault = run.fault
    seen = fault.seen(observer, run.injected_s)
    until_s = run.ended_s if run.ended_s is not None else observer.now_s
    sent = [record for record in records if run.injected_s <= record.intended_s < until_s]
    killed = fault.target == KILLED
    lost, cut = lost_with_cell(records, KILLED, run.injected_s, grace_s=KILL_TAKES_S) if killed else ([], [])
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
        lost=[record.request_id for record in lost],
        cut=[record.request_id for record in cut],
        retried=sum(1 for record in retried_from(records, KILLED) if record.ok) if killed else 0,
        leak=leak(sent, longer_than=SMALL_TOKENS, with_output=True) if fault.target == SMALL else None,
    )


def demo_checks(
    faults: Sequence[FaultRow], unexplained: Sequence[str], refused: Leak, summary: Summary, *, gated: bool
) -> list[Check]:
    """What the demo promises, and the figures beside it."""
    killed = next(row for row in faults if row.target == KILLED)
    excused = "cut after tokens by the kill" if gated else "in flight on the killed engine"
    lost = "lost before a token with the killed engine"
    retried = f"{killed.retried} retried elsewhere"
    checks = [
        at_most(f"requests failed that were not {excused}", len(unexplained), 0, unit="requests"),
        at_most(lost, len(killed.lost), 0, unit="requests", note=retried)
        if gated
        else reported(lost, len(killed.lost), unit="requests", note="no gate"),
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
