"""Policies of the picker on the same requests, one after the other, on emulated engines in real time (issue 3, item 3).

Far: three cells far apart under an ART-like trace of conversations. Near: nine cells in three sites under transient
slow-downs (disturbance D) and requests that share nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.config.schema import GridConfig
from tradewind.lab import watch
from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import FAR_WAN_MS, emulated_grid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, success_ratio, under_load
from tradewind.measure.record import Record
from tradewind.measure.summary import Summary, shares, summarise
from tradewind.sim.disturbances import changes
from tradewind.sim.faults import Change, Slow
from tradewind.workload.art import ArtShape, art_trace, shape_for
from tradewind.workload.classes import baseline_mixed
from tradewind.workload.mooncake import Trace
from tradewind.workload.streams import stream
from tradewind.workload.texts import Texts

OURS, WEIGHTS = "cost", "weights"
POLICIES = (OURS, "gorgo:.5/.1", "cache_aware", "least_request:N", "session_affinity", WEIGHTS)
SLO_TTFT_S = 1.5
WARM_UP_RATIO = 0.1  # of the run, left out of the figures
ART_SEQUENCES = 64  # that an engine of the far grid runs at once
FAR_TTFT, FAR_E2E = 0.0, 0.0  # ours leads on both
NEAR_TTFT, NEAR_E2E = -0.35, -0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What every policy runs."""

    name: str
    grid: Callable[[str], GridConfig]  # policy -> the grid that runs it
    trace: Trace
    disturbance: tuple[Change, ...] = ()
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One policy's figures; hits are tokens over all prompt tokens, None where nobody predicts."""

    policy: str
    summary: Summary
    itl_mean_s: float | None
    served_hit_ratio: float
    predicted_hit_ratio: float | None
    max_share: float
    success: float
    failures: str


def far_course(*, seed: int, for_s: float, state_dir: str, time_scale: float = 2.0) -> Course:
    """Three 2 x L40S cells at 32, 120 and 218 ms. A shorter trace has fewer users: of all, few come twice."""

    def grid(policy: str) -> GridConfig:
        return emulated_grid(
            sites=("near", "middle", "far"), cells_per_site=1, profile="2xl40s", wan_ms=FAR_WAN_MS, exporters=False,
            policy=_picked_by(policy), max_num_seqs=ART_SEQUENCES, seed=seed, state_dir=state_dir, name="far",
        )  # fmt: skip

    shape = shape_for(rate_per_s=ArtShape().rate_per_s, for_s=for_s / time_scale)
    trace = art_trace(stream(seed, "art"), shape=shape, time_scale=time_scale)
    return Course(name="far", grid=grid, trace=trace, for_s=for_s)


def near_course(*, seed: int, for_s: float, state_dir: str, rate_per_s: float = 14.0) -> Course:
    """Nine RTX PRO 6000 at 8, 22 and 38 ms under D."""

    def grid(policy: str) -> GridConfig:
        return emulated_grid(exporters=False, policy=_picked_by(policy), seed=seed, state_dir=state_dir, name="near")

    sites = [cell.site for cell in grid(OURS).cells]
    slowed = changes("D", stream(seed, "disturbance"), sites=sites, until_s=for_s)
    trace = baseline_mixed(stream(seed, "requests"), rate_per_s=rate_per_s, for_s=for_s)
    return Course(name="near, D", grid=grid, trace=trace, disturbance=tuple(slowed), for_s=for_s)


def _picked_by(policy: str) -> str:
    return "" if policy == WEIGHTS else policy


# --- one run ---------------------------------------------------------------------------------------------------------


async def run_policy(grid: LiveGrid, course: Course, *, policy: str) -> PolicyRun:
    """The whole course under the policy that the grid was made for."""
    texts = Texts(course.trace, prefix=f"{course.name[:4]}-{policy}".replace(":", "-").replace("/", "-"))
    loaded = await under_load(
        grid,
        texts.plan(),
        lambda observer: _disturb(grid, observer, course.disturbance),
        every_s=2.0,
        text_of=texts.text_of,
    )
    status = await watch.gateway_status(grid.gateway)
    return figures(policy, loaded.records, course, predicted_tokens=predicted_tokens(status))


async def _disturb(grid: LiveGrid, observer: Observer, disturbance: Sequence[Change]) -> None:
    """Slow cells down and let them go, as the profile says."""
    in_force: dict[str, int] = {}
    for change in disturbance:
        await asyncio.sleep(max(0.0, change.at_s - observer.now_s))
        cell = grid.cell_ids[change.cell]
        if cell in in_force:
            await grid.clear(in_force.pop(cell))
        assert isinstance(change.effect, Slow), "of disturbances only slow-downs are injected"
        if change.effect.slow.w > 1.0:
            params = {"factor": change.effect.slow.w, "terms": ["w", "b", "c", "d", "e", "a0"]}
            in_force[cell] = await grid.inject("slow", cell=cell, params=params)


def predicted_tokens(status: watch.Json) -> int | None:
    """Prompt tokens that the gateway believed to be cached where it sent them; None without a picker."""
    pick = status.get("pick")
    if not isinstance(pick, dict):
        return None
    return sum(int(cell["predicted_hit_tokens"]) for cell in pick["cells"])


def figures(policy: str, records: Sequence[Record], course: Course, *, predicted_tokens: int | None) -> PolicyRun:
    """Latencies without the warm-up; hits over the whole run, as the counters have them."""
    from_s = WARM_UP_RATIO * course.for_s
    counted = [record for record in records if record.intended_s >= from_s]
    itls = [record.itl_s for record in counted if record.itl_s is not None]
    prompt = sum(record.prompt_tokens for record in records) or 1
    return PolicyRun(
        policy=policy,
        summary=summarise(counted, slo_ttft_s=SLO_TTFT_S, for_s=course.for_s - from_s),
        itl_mean_s=sum(itls) / len(itls) if itls else None,
        served_hit_ratio=sum(record.usage_cached_tokens or 0 for record in records) / prompt,
        predicted_hit_ratio=None if predicted_tokens is None else predicted_tokens / prompt,
        max_share=max(shares(counted).values(), default=0.0),
        success=success_ratio(records) or 0.0,
        failures=failures_text(records),
    )


# --- verdicts --------------------------------------------------------------------------------------------------------


def course_checks(course: str, runs: Sequence[PolicyRun], *, ttft_bound: float, e2e_bound: float) -> list[Check]:
    """Every policy's figures, and ours against the best of the others, metric by metric; one seed, paired."""
    checks = [check for run in runs for check in _rows(course, run)]
    for name, read, bound in (("TTFT p95", _ttft_p95_s, ttft_bound), ("E2E p95", _e2e_p95_s, e2e_bound)):
        found = {run.policy: read(run) for run in runs}
        values = {policy: value for policy, value in found.items() if value}
        others = {policy: value for policy, value in values.items() if policy != OURS}
        best = min(others, key=lambda policy: others[policy], default="")
        ours = values.get(OURS)
        ratio = ours / others[best] - 1 if ours and best else None
        checks.append(at_most(f"{course}: {OURS} against the best other, {name}", ratio, bound, note=best))
    return checks


def _ttft_p95_s(run: PolicyRun) -> float | None:
    return run.summary.ttft_s.p95


def _e2e_p95_s(run: PolicyRun) -> float | None:
    return run.summary.e2e_s.p95


def _rows(course: str, run: PolicyRun) -> list[Check]:
    ttft, name = run.summary.ttft_s, f"{course}: {run.policy}"
    believed = "" if run.predicted_hit_ratio is None else f", believed {run.predicted_hit_ratio:.2f}"
    hits = f"hits {run.served_hit_ratio:.2f}{believed}, largest share {run.max_share:.2f}"
    itl = "" if run.itl_mean_s is None else f", ITL {1e3 * run.itl_mean_s:.1f} ms"
    p50, p99 = (1e3 * (value or 0.0) for value in (ttft.p50, ttft.p99))
    return [
        reported(f"{name}: TTFT p95", ttft.p95, unit="s", note=f"p50 {p50:.0f}, p99 {p99:.0f} ms; {hits}"),
        reported(f"{name}: E2E p95", run.summary.e2e_s.p95, unit="s", note=f"{run.summary.requests} requests{itl}"),
        at_least(f"{name}: success", run.success, 1.0, note=run.failures),
    ]
