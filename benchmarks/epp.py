"""A foreign Envoy that asks a gateway over ext_proc, beside a plain static Envoy: latency, limits and CPU in one run.

The gateway picks with its real policy among four engines that answer at once. The proxy has
one worker on the first core; gateway, engines and client share the second. Requests that fell open are counted.
"""

import contextlib
import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass

from benchmarks.stand import BODY_BYTES, Turn, envoy, stand, turn
from tests.support.envoy import free_port
from tradewind.config.schema import EppConfig
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.epp.envoy_config import EnvoyPorts, config
from tradewind.lab.instant.usage import p50, pin

RATES = (200, 1_000)


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one open-loop load, in milliseconds."""

    p50_ms: float
    p99_ms: float
    failures: int


def bench(quick: bool) -> list[Check]:
    rounds, seconds = (2, 3.0) if quick else (5, 5.0)
    picker = free_port()
    ports = EnvoyPorts(admin=free_port(), buffered=free_port(), duplex=free_port(), checked=free_port())
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(stand(routing="pick", epp=EppConfig(listen=f"127.0.0.1:{picker}")))
        endpoints = tuple(f"127.0.0.1:{port}" for port in here.engines)
        file = here.directory / "proxy.json"
        proxy = stack.enter_context(envoy(config(ports, picker=picker, endpoints=endpoints), file))
        pin(proxy.pid, 0)
        arms = (
            ("plain", here.front, here.plain_pid, None),
            ("BUFFERED", ports.buffered, proxy.pid, here.python_pid),
            ("FULL_DUPLEX_STREAMED", ports.duplex, proxy.pid, here.python_pid),
        )
        turns: dict[str, list[Turn]] = {arm: [] for arm, *_ in arms}
        latencies: dict[tuple[str, int], list[Latency]] = {(arm, rate): [] for arm in turns for rate in RATES}
        for _ in range(rounds):
            for arm, port, envoy_pid, python_pid in arms:
                for rate in RATES:
                    latencies[arm, rate].append(open_loop(port, rate, seconds))
                turns[arm].append(turn(port, seconds, envoy_pid, python_pid))
        unpicked = fell_open(ports.admin)
    return [*latency_rows(latencies), *limit_rows(turns), at_most("ext_proc, requests not picked for", unpicked, 0)]


def latency_rows(latencies: dict[tuple[str, int], list[Latency]]) -> list[Check]:
    """What asking adds to a request through the plain Envoy of the same run."""
    rows = []
    for (mode, rate), seen in latencies.items():
        if mode == "plain":
            continue
        base = latencies["plain", rate]
        lost = sum(item.failures for item in seen)
        for field in ("p50_ms", "p99_ms"):
            plain_ms = p50([getattr(item, field) for item in base])
            added_ms = p50([getattr(item, field) for item in seen]) - plain_ms
            name = f"ext_proc {mode}, added latency {field[:3]} at {rate} RPS"
            rows.append(reported(name, added_ms, unit="ms", note=f"plain {plain_ms:.2f} ms, {lost} failures"))
    return rows


def limit_rows(turns: dict[str, list[Turn]]) -> list[Check]:
    """What a closed loop reaches, and what a request costs then."""
    rows = []
    for mode, seen in turns.items():
        name = "plain static Envoy" if mode == "plain" else f"ext_proc {mode}"
        envoy_us, python_us = p50([item.envoy_us for item in seen]), p50([item.python_us for item in seen])
        rows.append(reported(f"{name}, max RPS", p50([item.requests_per_s for item in seen]), unit="1/s"))
        note = f"Envoy {envoy_us:.0f} + gateway {python_us:.0f} us"
        rows.append(reported(f"{name}, router CPU per request", envoy_us + python_us, unit="us", note=note))
    return rows


def open_loop(port: int, rate: int, seconds: float) -> Latency:
    """One load from a process of its own on the second core."""
    argv = [sys.executable, "-m", "tradewind.lab.instant.openloop", str(port), str(rate), str(seconds), str(BODY_BYTES)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        pin(client.pid, 1)
        assert client.stdout is not None
        client.stdout.readline()
        line = json.loads(client.stdout.readline())
    return Latency(line["p50_ms"], line["p99_ms"], int(line["failures"]))


def fell_open(admin: int) -> int:
    """Requests that the proxy served without an answer of the picker."""
    url = f"http://127.0.0.1:{admin}/stats?filter=ext_proc.failure_mode_allowed"
    with urllib.request.urlopen(url, timeout=5) as response:
        lines = response.read().decode().splitlines()
    return sum(int(line.rpartition(" ")[2]) for line in lines)
