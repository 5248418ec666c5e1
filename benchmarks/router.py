"""Weights mode beside a plain static Envoy: CPU per request and requests per second, taking turns in one run.

The router (Envoy with one worker, and in weights mode the gateway process on the other core) sends 2 KB chats to four
engines that answer at once. Client and engines cost so little that Envoy's core is what limits; they do not count. CPU
is read from /proc. Turns are short and ratios are those of neighbours: a machine's speed changes by the second.
"""

from benchmarks.stand import Turn, stand, turn
from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.instant.usage import p50


def bench(quick: bool) -> list[Check]:
    rounds, seconds = (4, 1.5) if quick else (12, 2.0)
    plain, weights = [], []
    with stand() as here:
        for _ in range(rounds):
            plain.append(turn(here.front, seconds, here.plain_pid, None))
            weights.append(turn(here.port, seconds, here.envoy.process.pid, here.python_pid))
    return rows_of(plain, weights)


def rows_of(plain: list[Turn], weights: list[Turn]) -> list[Check]:
    pairs = list(zip(plain, weights, strict=True))
    rps_ratio = p50([ours.requests_per_s / theirs.requests_per_s for theirs, ours in pairs])
    cpu_ratio = p50([ours.router_us / theirs.router_us for theirs, ours in pairs])
    rps = p50([turn.requests_per_s for turn in weights])
    plain_rps = p50([turn.requests_per_s for turn in plain])
    envoy_us = p50([turn.envoy_us for turn in weights])
    python_us = p50([turn.python_us for turn in weights])
    note = f"Envoy {envoy_us:.0f} + gateway {python_us:.0f} us"
    return [
        at_most("weights mode, router CPU per request", envoy_us + python_us, 100, unit="us", note=note),
        at_most("weights mode, router CPU over a plain Envoy's in the same run", cpu_ratio, 1.9),
        at_least("weights mode, RPS over a plain Envoy's in the same run", rps_ratio, 0.55),
        reported("weights mode, RPS, one Envoy worker", rps, unit="1/s"),
        reported("plain static Envoy, RPS", plain_rps, unit="1/s"),
        reported("plain static Envoy, CPU per request", p50([turn.envoy_us for turn in plain]), unit="us"),
    ]
