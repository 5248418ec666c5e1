"""The emulator as a set of processes: what it costs, and that nothing outlives it."""

import asyncio
import json
import os
import time
from collections.abc import Callable

import pytest

from tests.integration.test_emulator import wait_for
from tests.support.emulator import EmulatorHandle, EngineSpec, emulator, start_emulator
from tradewind.config.schema import WanConfig

RATE_RPS = 20.0
RUN_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def pids(handle: EmulatorHandle) -> list[int]:
    state = handle.state()
    children = [*state["engines"], *state["exporters"]]  # type: ignore[misc]
    return [handle.process.pid, *(child["pid"] for child in children)]


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nothing_outlives_a_killed_supervisor() -> None:
    handle = start_emulator(EngineSpec(cell="a1"), EngineSpec(cell="b1", site="west"))
    children = pids(handle)[1:]
    assert all(alive(pid) for pid in children)
    handle.process.kill()
    handle.process.wait()
    wait_for(lambda: not any(alive(pid) for pid in children))


def test_stop_ends_every_process() -> None:
    with emulator(EngineSpec(cell="a1")) as handle:
        children = pids(handle)
    assert not any(alive(pid) for pid in children)
    assert handle.process.returncode == 0


async def stream(address: str, prompt: str) -> int:
    """One streamed request over a raw connection; returns the events it got."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 128, "stream": True}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: e\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    events = 0
    while data := await reader.read(65536):
        events += data.count(b"data: ")
    writer.close()
    await writer.wait_closed()
    return events


async def load(addresses: list[str]) -> list[int]:
    """Streams at RATE_RPS for RUN_S seconds; returns the events of each."""
    tasks = []
    start_s = time.monotonic()
    for index in range(int(RATE_RPS * RUN_S)):
        await asyncio.sleep(max(0.0, start_s + index / RATE_RPS - time.monotonic()))
        tasks.append(asyncio.create_task(stream(addresses[index % len(addresses)], f"{index} " * 700)))
    return list(await asyncio.gather(*tasks))


@pytest.mark.slow
def test_nine_cells_at_20_rps_leave_a_core(record_property: Callable[[str, object], None]) -> None:
    """CPU time per request, so that a busy machine does not decide: 20 requests a second may take one core at most."""
    specs = [
        EngineSpec(cell=f"c{index}", site=f"s{index // 3}", profile="rtx-pro-6000", gateway_sites=("s0",))
        for index in range(9)
    ]
    wan = (WanConfig(a="s0", b="s1", rtt_ms=22, jitter_ms=2), WanConfig(a="s0", b="s2", rtt_ms=38, jitter_ms=4))
    with emulator(*specs, wan=wan, dcgm_interval_s=1.0) as handle:
        before_s = sum(cpu_s(pid) for pid in pids(handle))
        addresses = [handle.site_urls[spec.cell, "s0"].removeprefix("http://") for spec in specs]
        events = asyncio.run(load(addresses))
        spent_s = sum(cpu_s(pid) for pid in pids(handle)) - before_s
    assert events == [129] * len(events)
    cores = spent_s / len(events) * RATE_RPS
    record_property("cores", round(cores, 3))
    assert cores <= 1.0
