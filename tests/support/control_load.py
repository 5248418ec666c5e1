"""Measures one control process under synthetic agents: CPU, memory, health latency, loop lag, as one JSON line.

    python -m tests.support.control_load --cells 1000 --gateways 1 --seconds 10

Control, its agents and its gateways each run as processes of their own on loopback.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import grpc.aio

from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import VIEWS

WARM_S = 3.0
_CONTROL = """
import sys
from tradewind.config.schema import ControlConfig, GridConfig
from tradewind.control.main import run
sys.exit(run(GridConfig(state_dir=sys.argv[1], controls=[ControlConfig()]), "control"))
"""
Line = dict[str, float | int]


async def measure(*, cells: int, streams: int, hz: float, gateways: int, seconds: float) -> Line:
    """Start everything, wait until it is steady, and watch control for `seconds`."""
    with tempfile.TemporaryDirectory() as state_dir:
        control = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CONTROL, state_dir, stderr=asyncio.subprocess.PIPE
        )
        try:
            grpc_address, admin = await _addresses(control)
            drain = asyncio.create_task(_discard(control))
            agents = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.synthetic_agents", "--address", grpc_address,
                "--cells", str(cells), "--streams", str(streams), "--hz", str(hz),
                "--seconds", str(seconds + WARM_S + 1),
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            line = await _watch(control.pid, grpc_address, admin, gateways=gateways, seconds=seconds)
            output, _ = await agents.communicate()
        finally:
            control.send_signal(signal.SIGTERM)
            await control.wait()
        await drain
    sent = json.loads(output)
    return {"cells": cells, "hz": hz, **line, "beat_bytes": sent["beat_bytes"], "agents_late_s": sent["worst_late_s"]}


async def _watch(pid: int, grpc_address: str, admin: str, *, gateways: int, seconds: float) -> Line:
    async with (
        grpc.aio.insecure_channel(grpc_address) as channel,
        aiohttp.ClientSession(f"http://{admin}") as http,
    ):
        readers = [asyncio.create_task(_gateway(channel, f"gateway-{number}")) for number in range(gateways)]
        await asyncio.sleep(WARM_S)
        cpu_s, start_s = _cpu_s(pid), time.monotonic()
        latencies_s = []
        while time.monotonic() - start_s < seconds:
            asked_s = time.monotonic()
            async with http.get("/healthz"):
                latencies_s.append(time.monotonic() - asked_s)
            await asyncio.sleep(0.05)
        used_s, wall_s = _cpu_s(pid) - cpu_s, time.monotonic() - start_s
        status = await (await http.get("/v1/status")).json()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    latencies_s.sort()
    return {
        "gateways": gateways,
        "cpu_ratio": round(used_s / wall_s, 4),
        "rss_bytes": _rss_bytes(pid),
        "healthz_p99_s": round(latencies_s[int(len(latencies_s) * 0.99)], 4),
        "loop_lag_worst_s": status["loop_lag_worst_s"],
        "heartbeats": status["counters"]["heartbeats"],
        "ready": status["cells"]["ready"],
    }


async def _gateway(channel: grpc.aio.Channel, gateway_id: str) -> None:
    call = channel.stream_stream(VIEWS)()  # type: ignore[call-arg] # the stubs know only the form with an iterator
    await call.write(pb.GatewayReport(gateway_id=gateway_id, site="site-0", sequence=1).SerializeToString())
    async for _ in call:
        pass


async def _addresses(control: asyncio.subprocess.Process) -> tuple[str, str]:
    assert control.stderr is not None
    async with asyncio.timeout(30):
        while line := (await control.stderr.readline()).decode():
            found = re.search(r"control.serving grpc=(\S+) admin=(\S+)", line)
            if found:
                return found[1], found[2]
    raise RuntimeError("control did not start")


async def _discard(control: asyncio.subprocess.Process) -> None:
    assert control.stderr is not None
    while await control.stderr.readline():
        pass


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    line = asyncio.run(
        measure(cells=given.cells, streams=given.streams, hz=given.hz, gateways=given.gateways, seconds=given.seconds)
    )
    sys.stdout.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
