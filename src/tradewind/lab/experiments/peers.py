"""Other routers and Tradewind before the same emulated cells, WAN and requests, one after the other in real time."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from tradewind.lab.checks import Check, at_least, reported
from tradewind.lab.harness.experiment import Argument, Done, Experiment, Options, Result, Trial, Work
from tradewind.lab.harness.figure import Figure, Series
from tradewind.lab.harness.row import Row
from tradewind.lab.peers.overhead import Spans, overhead
from tradewind.lab.peers.phases import Sizes, conversations, kill, mismatch
from tradewind.lab.peers.places import ENVOY, TRADEWIND, version
from tradewind.lab.peers.specs import PEERS, Peer, peers_named
from tradewind.lab.peers.stand import emulated_front

NAME = "peers"
CHAT, MISMATCH, KILL, OVERHEAD = "chat", "mismatch", "kill", "instant"
PHASES = (CHAT, MISMATCH, KILL, OVERHEAD)
QUICK_PEERS = ("tradewind:pick", "vllm-router:cache_aware", "smg:cache_aware", "envoy:least_request")
QUICK_PHASES = (CHAT, OVERHEAD)
STATE = Path("build/lab/peers-state")
WANTED_ENVOY_POLICIES = 3

# metric: profile, key of the phase's result, unit, factor, key of n
METRICS: dict[str, tuple[str, str, str, float, str]] = {
    "TTFT p50": (CHAT, "ttft_p50_s", "ms", 1e3, "requests"),
    "TTFT p95": (CHAT, "ttft_p95_s", "ms", 1e3, "requests"),
    "TTFT p99": (CHAT, "ttft_p99_s", "ms", 1e3, "requests"),
    "E2E p50": (CHAT, "e2e_p50_s", "ms", 1e3, "requests"),
    "E2E p95": (CHAT, "e2e_p95_s", "ms", 1e3, "requests"),
    "success": (CHAT, "success", "%", 1e2, "requests"),
    "prefix hits of prompt tokens": (CHAT, "hit_ratio", "%", 1e2, "requests"),
    "largest share of one cell": (CHAT, "largest_share", "%", 1e2, "requests"),
    "leak of long prompts": (MISMATCH, "leak", "%", 1e2, "long"),
    "failures for another reason": (MISMATCH, "other_failures", "requests", 1.0, "requests"),
    "lost before a token": (KILL, "lost", "requests", 1.0, "requests"),
    "cut after tokens": (KILL, "cut", "requests", 1.0, "requests"),
    "failed though sent after the kill": (KILL, "sent_later_and_failed", "requests", 1.0, "requests"),
    "time in which requests failed": (KILL, "failing_for_s", "s", 1.0, "requests"),
    "serves again after the engine's start": (KILL, "serves_again_s", "s", 1.0, "requests"),
    "added latency p50": (OVERHEAD, "added_p50_ms", "ms", 1.0, "requests"),
    "added latency p99": (OVERHEAD, "added_p99_ms", "ms", 1.0, "requests"),
    "most requests per second": (OVERHEAD, "max_rps", "1/s", 1.0, "turns"),
    "failed or not sent": (OVERHEAD, "failures", "requests", 1.0, "requests"),
    "router CPU per request": (OVERHEAD, "router_cpu_us", "us", 1.0, "turns"),
}
LOAD_AVERAGE = "load average beside it"


def plan(options: Options) -> Sequence[Trial]:
    """Peer by peer, phase by phase. The version is part of a trial: another version is another trial."""
    quick = options.quick
    names = options.policies or (QUICK_PEERS if quick else None)
    seeds = options.seed_range(seeds=1, first=1)
    trials: list[Trial] = []
    for peer in peers_named(names):
        found = version(peer.package)
        for phase in (QUICK_PHASES if quick else PHASES) if found else ("absent",):
            for seed in seeds if phase in (CHAT, MISMATCH, KILL) else seeds[:1]:
                args: dict[str, Argument] = {"peer": peer.name, "version": found, "phase": phase, "seed": seed}
                trials.append(Trial(experiment=NAME, args=args | {"quick": quick}))
    return trials


def run(trial: Trial) -> Result:
    """One phase of one peer. Raises StartFailed, OSError."""
    args = trial.args
    if args["phase"] == "absent":
        return {}
    peer = peers_named([str(args["peer"])])[0]
    seed, quick = int(args["seed"] or 0), bool(args["quick"])
    load_before = os.getloadavg()[0]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_phase(str(args["phase"]), peer, seed=seed, quick=quick, folder=STATE.absolute()))
    return {**result, "load_average": max(load_before, os.getloadavg()[0])}


async def _phase(phase: str, peer: Peer, *, seed: int, quick: bool, folder: Path) -> dict[str, Any]:
    if phase == OVERHEAD:
        spans = Spans(turns=1, open_s=1.0, closed_s=1.0) if quick else Spans()
        return await overhead(peer, spans, folder=folder)
    sizes = Sizes(seed=seed, chat_s=8.0) if quick else Sizes(seed=seed)
    work = {CHAT: conversations, MISMATCH: mismatch, KILL: kill}[phase]
    async with emulated_front(peer, folder=folder, seed=seed) as up:
        return await work(up, sizes)


def rows(done: Done) -> Sequence[Row]:
    """One for each metric, peer and seed."""
    found: list[Row] = []
    for trial, result in done:
        phase, seed = str(trial.args["phase"]), int(trial.args["seed"] or 0)
        policy = _policy(trial)
        if phase == "absent":
            found.append(_row(phase, policy, "not installed: make peers", None, seed=seed))
        for metric, (profile, key, unit, factor, count) in METRICS.items():
            if profile == phase and key in result:
                value, n = result[key], result.get(count)
                scaled = None if value is None else value * factor
                found.append(_row(phase, policy, metric, scaled, unit=unit, n=n, seed=seed))
        if "load_average" in result:
            found.append(_row(phase, policy, LOAD_AVERAGE, result["load_average"], seed=seed))
    return found


def _policy(trial: Trial) -> str:
    """With the version, as far as it is not Tradewind's own: the commit says that."""
    package, _, policy = str(trial.args["peer"]).partition(":")
    of = "" if package == TRADEWIND else f" ({trial.args['version'] or 'absent'})"
    return f"{package} {policy}{of}"


def _row(
    profile: str, policy: str, metric: str, value: float | None, *, seed: int, unit: str = "", n: int | None = None
) -> Row:
    return Row(
        experiment=NAME, profile=profile, policy=policy, metric=metric, value=value, unit=unit, n=n, seed=seed
    )  # fmt: skip


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Latency, what a router costs, and what faults cost."""
    return (
        _bars(found, "ttft", "TTFT of conversations", CHAT, ("TTFT p50", "TTFT p95"), "ms", log=True),
        _bars(found, "e2e", "E2E of conversations", CHAT, ("E2E p50", "E2E p95"), "ms", log=True),
        _bars(found, "hits", "Prompt tokens served from caches", CHAT, ("prefix hits of prompt tokens",), "%"),
        _bars(found, "leak", "Long prompts sent to a cell that refuses them", MISMATCH, ("leak of long prompts",), "%"),
        _bars(found, "kill", "Requests that a kill -9 ended", KILL, ("lost before a token", "cut after tokens"), ""),
        _bars(found, "rps", "One core for the router", OVERHEAD, ("most requests per second",), "1/s"),
    )


def _bars(
    found: Sequence[Row], name: str, title: str, profile: str, metrics: Sequence[str], unit: str, *, log: bool = False
) -> Figure:
    mine = [row for row in found if row.profile == profile]
    policies = list(dict.fromkeys(row.policy for row in mine))
    value = {(row.policy, row.metric): row.value for row in reversed(mine)}
    series = [Series(name=one, x=policies, y=[value.get((policy, one)) for policy in policies]) for one in metrics]
    return Figure(name=name, title=title, kind="bars", x_label="", y_label=unit, series=series, log_y=log)


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """That the table is there, and where we stand in it."""
    ran = {row.policy for row in found if row.profile == CHAT and row.metric == "TTFT p95" and row.value is not None}
    by_package = {package: [one for one in ran if one.startswith(package)] for package in ("vllm-router", "smg", ENVOY)}
    checks = [
        at_least(f"peers: policies of {package} that ran", float(len(which)), bound)
        for (package, which), bound in zip(by_package.items(), (1, 1, WANTED_ENVOY_POLICIES), strict=True)
    ]
    for metric in ("TTFT p95", "E2E p95"):
        values = {row.policy: row.value for row in found if row.metric == metric and row.value is not None}
        ours = values.get(f"{TRADEWIND} pick")
        others = {policy: value for policy, value in values.items() if not policy.startswith(TRADEWIND)}
        if ours is not None and others:
            best = min(others, key=lambda policy: others[policy])
            checks.append(reported(f"peers: {metric} of pick over the best peer's", ours / others[best], note=best))
    return checks


EXPERIMENT = Experiment(
    name=NAME,
    title="other routers in front of the same cells",
    question="What do vllm-router, smg, sglang-router and plain Envoy do with the same requests, faults and engines, "
    "and what does each cost?",
    rows=rows,
    live=Work(plan=plan, run=run),
    figures=figures,
    claims=claims,
    notes="Real processes in real time on one machine: a busy machine shows in every latency, so the load average "
    "stands beside each phase. One seed by default: trust groups, not ranks inside one. "
    + " ".join(f"{peer.name}: {peer.note}." for peer in PEERS if peer.note),
)
