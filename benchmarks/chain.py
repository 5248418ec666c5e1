"""`routing: pick` (ext_authz) beside a plain static Envoy, taking turns in one run: CPU, latency added, and the limit.

As benchmarks.router, with a picker: Envoy with one worker on the first core; the gateway process, the engines and the
client share the second. Requests that were not picked for (they went by the shares) are counted.
"""

import json
import urllib.request

from benchmarks.epp import RATES, Latency, open_loop
from benchmarks.stand import Turn, stand, turn
from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.instant.usage import p50


def bench(quick: bool) -> list[Check]:
    rounds, seconds = (2, 3.0) if quick else (5, 5.0)
    turns: dict[str, list[Turn]] = {"plain": [], "pick": []}
    latencies: dict[tuple[str, int], list[Latency]] = {(arm, rate): [] for arm in turns for rate in RATES}
    with stand(routing="pick") as here:
        arms = (
            ("plain", here.front, here.plain_pid, None),
            ("pick", here.port, here.envoy.process.pid, here.python_pid),
        )
        for _ in range(rounds):
            for arm, port, envoy_pid, python_pid in arms:
                turns[arm].append(turn(port, seconds, envoy_pid, python_pid))
                for rate in RATES:
                    latencies[arm, rate].append(open_loop(port, rate, seconds))
        unpicked = left_to_shares(here.envoy.admin)
    return [*cost_rows(turns), *latency_rows(latencies), at_most("pick, requests not picked for", unpicked, 0)]


def cost_rows(turns: dict[str, list[Turn]]) -> list[Check]:
    """CPU per request at the limit, and the limit itself."""
    picked, plain = turns["pick"], turns["plain"]
    envoy_us, python_us = p50([one.envoy_us for one in picked]), p50([one.python_us for one in picked])
    plain_us, rps = p50([one.envoy_us for one in plain]), p50([one.requests_per_s for one in picked])
    note = f"Envoy {envoy_us:.0f} + gateway {python_us:.0f} us; plain static Envoy {plain_us:.0f}"
    ratio = rps / p50([one.requests_per_s for one in plain])
    return [
        at_most("pick, router CPU per request", envoy_us + python_us, 220, unit="us", note=note),
        reported("pick, router CPU over a plain Envoy's in the same run", (envoy_us + python_us) / plain_us),
        at_least("pick, max RPS, one Envoy worker and one picker", rps, 6_500, unit="1/s"),
        reported("pick, RPS over a plain Envoy's in the same run", ratio),
    ]


def latency_rows(latencies: dict[tuple[str, int], list[Latency]]) -> list[Check]:
    """What asking adds to a request through the plain Envoy of the same run."""
    rows = []
    for rate in RATES:
        plain, picked = latencies["plain", rate], latencies["pick", rate]
        lost = sum(item.failures for item in picked)
        middle_ms, base_ms = p50([item.p50_ms for item in picked]), p50([item.p50_ms for item in plain])
        note = f"plain {base_ms:.2f} ms, {lost} failures"
        name = f"pick, added latency p50 at {rate} RPS"
        rows.append(at_most(name, middle_ms - base_ms, 1.0, unit="ms", note=note))
        tail_ms = p50([item.p99_ms for item in picked]) - p50([item.p99_ms for item in plain])
        rows.append(reported(f"pick, added latency p99 at {rate} RPS", tail_ms, unit="ms"))
    return rows


def left_to_shares(admin: str) -> int:
    """Requests that Envoy let through without an answer."""
    url = f"http://{admin}/stats?format=json&filter=ext_authz.failure_mode_allowed"
    with urllib.request.urlopen(url, timeout=5) as response:
        return sum(int(row["value"]) for row in json.load(response)["stats"] if "value" in row)
