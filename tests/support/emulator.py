"""Starts emulated engines in a child process, quickly, on free ports, and stops them by pid."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from tradewind.config.schema import (
    CellConfig,
    EmulatedDcgmConfig,
    EmulatedEngineConfig,
    EmulatedKvEventsConfig,
    EmulationConfig,
    GridConfig,
    WanConfig,
)

START_TIMEOUT_S = 20.0
_RUN = (
    "import logging, sys, msgspec;"
    "from tradewind.config.schema import GridConfig;"
    "from tradewind.emulator.main import run;"
    "logging.basicConfig(level=logging.INFO, stream=sys.stderr);"
    "sys.exit(run(msgspec.json.decode(sys.stdin.buffer.read(), type=GridConfig)))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine to start. `gateway_sites` get an address of their own behind the WAN."""

    cell: str = "a1"
    site: str = "east"
    profile: str = "fast"
    model: str = "tiny"
    aliases: tuple[str, ...] = ()
    max_model_len: int = 32_768
    max_num_seqs: int = 256
    max_num_queued_reqs: int = 0
    start_delay_s: float = 0.0
    kv_capacity_tokens: int = 0
    kv_events: EmulatedKvEventsConfig | None = None  # its `listen` is replaced by a free port
    gateway_sites: tuple[str, ...] = ()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports


@dataclass(slots=True)
class EmulatorHandle:
    """A running emulator; stop it with `stop`, or use `emulator` as a context manager."""

    config: GridConfig
    process: "subprocess.Popen[bytes]"
    urls: dict[str, str]  # cell -> base URL without delay
    site_urls: dict[tuple[str, str], str]  # (cell, gateway site) -> base URL behind the WAN
    dcgm_urls: dict[str, str]  # site -> base URL of the exporter
    api_url: str

    @property
    def url(self) -> str:
        """The first engine's base URL."""
        return next(iter(self.urls.values()))

    def state(self) -> dict[str, object]:
        """GET /state of the fault API."""
        return get_json(self.api_url + "/state")

    def pid(self, cell: str) -> int | None:
        """The engine's process, None when down."""
        engines = self.state()["engines"]
        assert isinstance(engines, list)
        pid: int | None = next(engine["pid"] for engine in engines if engine["cell"] == cell)
        return pid

    def inject(self, fault: str, **body: object) -> int:
        """Injects a fault, e.g. inject("slow", cell="a1", params={"factor": 2})."""
        return int(str(post_json(self.api_url + "/faults", {"fault": fault, **body})["id"]))

    def clear(self, **body: object) -> None:
        """Clears faults: all, or of one cell, site or path."""
        post_json(self.api_url + "/clear", body)

    def log(self) -> list[dict[str, object]]:
        """GET /log of the fault API."""
        entries = get_json(self.api_url + "/log")["entries"]
        assert isinstance(entries, list)
        return entries

    def stop(self) -> None:
        """Ends the emulator and all its processes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def start_emulator(
    *engines: EngineSpec,
    wan: tuple[WanConfig, ...] = (),
    dcgm_names: str = "old",
    dcgm_interval_s: float = 0.25,
    seed: int = 1,
    scenario: str = "",
    wait: bool = True,
) -> EmulatorHandle:
    """Starts engines, one exporter per site and the fault API; waits until all answer unless told not to."""
    specs = engines or (EngineSpec(),)
    config = _config(specs, wan, dcgm_names, dcgm_interval_s, seed, scenario)
    assert config.emulation is not None
    handle = EmulatorHandle(
        config=config,
        process=_spawn(config),
        urls={cell.id: cell.url for cell in config.cells},
        site_urls={
            (engine.cell, site): f"http://{address}"
            for engine in config.emulation.engines
            for site, address in engine.listen.items()
        },
        dcgm_urls={dcgm.site: f"http://{dcgm.listen}" for dcgm in config.emulation.dcgm},
        api_url=f"http://{config.emulation.api}",
    )
    if wait:
        try:
            _wait(handle)
        except BaseException:
            handle.stop()
            raise
    return handle


@contextmanager
def emulator(*engines: EngineSpec, **options: object) -> Iterator[EmulatorHandle]:
    """`start_emulator`, stopped at the end."""
    handle = start_emulator(*engines, **options)  # type: ignore[arg-type]  # passed through
    try:
        yield handle
    finally:
        handle.stop()


def get_json(url: str, *, timeout_s: float = 5.0) -> dict[str, object]:
    """GET, parsed."""
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:
        parsed = json.loads(answer.read())
    assert isinstance(parsed, dict)
    return parsed


def post_json(url: str, body: object, *, timeout_s: float = 5.0) -> dict[str, object]:
    """POST, parsed; an error status raises AssertionError with the body."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            parsed = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from None
    assert isinstance(parsed, dict)
    return parsed


def _config(
    specs: tuple[EngineSpec, ...],
    wan: tuple[WanConfig, ...],
    dcgm_names: str,
    dcgm_interval_s: float,
    seed: int,
    scenario: str,
) -> GridConfig:
    sites = sorted({spec.site for spec in specs})
    gateway_sites = sorted(
        {site for spec in specs for site in spec.gateway_sites} | {w.a for w in wan} | {w.b for w in wan}
    )
    ports = iter(free_ports(1 + len(sites) + sum(2 + len(spec.gateway_sites) for spec in specs)))

    def address() -> str:
        return f"127.0.0.1:{next(ports)}"

    return GridConfig(
        sites=sorted({*sites, *gateway_sites}),
        cells=[CellConfig(id=spec.cell, site=spec.site, url=f"http://{address()}") for spec in specs],
        emulation=EmulationConfig(
            seed=seed,
            api=address(),
            engines=[
                EmulatedEngineConfig(
                    cell=spec.cell,
                    profile=spec.profile,
                    model=spec.model,
                    aliases=list(spec.aliases),
                    max_model_len=spec.max_model_len,
                    max_num_seqs=spec.max_num_seqs,
                    max_num_queued_reqs=spec.max_num_queued_reqs,
                    start_delay_s=spec.start_delay_s,
                    kv_capacity_tokens=spec.kv_capacity_tokens,
                    kv_events=msgspec.structs.replace(spec.kv_events, listen=address()) if spec.kv_events else None,
                    listen={site: address() for site in spec.gateway_sites},
                )
                for spec in specs
            ],
            dcgm=[
                msgspec.convert(
                    {"site": site, "listen": address(), "names": dcgm_names, "interval_s": dcgm_interval_s},
                    EmulatedDcgmConfig,
                )
                for site in sites
            ],
            wan=list(wan),
            scenario=scenario,
        ),
    )


def _spawn(config: GridConfig) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(config))
    process.stdin.close()
    return process


def _wait(handle: EmulatorHandle) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    waiting = [url + "/health" for url in (handle.api_url, *handle.urls.values(), *handle.dcgm_urls.values())]
    while waiting:
        assert handle.process.poll() is None, f"the emulator ended with {handle.process.returncode}"
        assert time.monotonic() < deadline_s, f"does not answer: {waiting[0]}"
        try:
            with urllib.request.urlopen(waiting[0], timeout=2):
                waiting.pop(0)
        except OSError:
            time.sleep(0.02)
