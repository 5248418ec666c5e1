"""Control as a process and over HTTP: start, signals, secrets, and answers under load."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.support.control_clients import agent, gateway
from tests.support.polling import until
from tradewind.config.errors import ConfigError
from tradewind.config.schema import CellConfig, ControlConfig, GridConfig
from tradewind.control.guard import TOKEN_VARIABLE
from tradewind.control.main import EXIT_CONFIG, EXIT_FAILED, serve

ROOT = Path(__file__).resolve().parents[2]
CANARY = "CANARY-8f3"

RUN = """
import sys, msgspec
from tradewind.config.schema import GridConfig
from tradewind.control.main import run
sys.exit(run(msgspec.json.decode(sys.argv[1], type=GridConfig), sys.argv[2]))
"""


def config(state_dir: Path, *, listen: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> GridConfig:
    cells = [CellConfig(id="cell-0000", site="site-1", url="http://127.0.0.1:1")]
    return GridConfig(state_dir=str(state_dir), controls=[ControlConfig(listen=listen, admin=admin)], cells=cells)


async def control_process(grid: GridConfig, control_id: str = "control") -> asyncio.subprocess.Process:
    text = msgspec.json.encode(grid).decode()
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        RUN,
        text,
        control_id,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, TOKEN_VARIABLE: ""},
    )


async def serving(process: asyncio.subprocess.Process) -> tuple[str, str]:
    """Wait for the line that says where it serves: (gRPC address, admin address)."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        while line := (await process.stderr.readline()).decode():
            found = re.search(r"control.serving grpc=(\S+) admin=(\S+)", line)
            if found:
                return found[1], found[2]
    raise AssertionError("control ended before it served")


async def answering(http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with http.get("/healthz"):
                    return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_with_streams_open(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario() -> None:
        process = await control_process(config(tmp_path))
        try:
            grpc_address, _ = await serving(process)
            async with agent(grpc_address) as east, gateway(grpc_address) as west:
                await east.beat(0, 1)
                await until(lambda: west.state("cell-0000") == "ready")
                process.send_signal(number)
                _, errors = await asyncio.wait_for(process.communicate(), 20)
            assert process.returncode == 0
            assert b"Traceback" not in errors
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    asyncio.run(scenario())


def test_killed_and_restarted_it_knows_its_cells_and_drains(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await control_process(config(tmp_path))
        grpc_address, admin = await serving(first)
        async with agent(grpc_address) as east, aiohttp.ClientSession(f"http://{admin}") as http:
            await answering(http)
            await east.beat(0, 1)
            await until(lambda: len(east.replies) > 0)
            reply = await (await http.post("/v1/cells/cell-0000/drain", json={"reason": "fan"})).json()
            assert (reply["state"], reply["saved"]) == ("draining", True)
        first.kill()
        await first.wait()
        async with serve(config(tmp_path), "control") as control:
            assert control.grid.status("cell-0000").view.state.value == "draining"
            assert control.grid.drains["cell-0000"].reason == "fan"

    asyncio.run(scenario())


def test_exit_codes_say_whose_fault_it_is(tmp_path: Path) -> None:
    async def code(grid: GridConfig, control_id: str = "control") -> int | None:
        process = await control_process(grid, control_id)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        assert b"Traceback" not in errors
        return process.returncode

    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            busy = f"127.0.0.1:{taken.getsockname()[1]}"
            assert await code(config(tmp_path), "nobody") == EXIT_CONFIG
            assert await code(config(tmp_path, listen=busy)) == EXIT_FAILED
            assert await code(config(tmp_path, admin=busy)) == EXIT_FAILED

    asyncio.run(scenario())


def test_fc_40_a_second_control_with_the_same_state_file_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await control_process(config(tmp_path))
        await serving(first)
        second = await control_process(config(tmp_path))
        _, errors = await asyncio.wait_for(second.communicate(), 30)
        assert second.returncode == EXIT_FAILED
        assert b"another process runs control 'control' with this folder" in errors.replace(b"\\", b"")
        assert b"Traceback" not in errors
        first.kill()
        await first.communicate()
        async with serve(config(tmp_path), "control"):  # a killed one holds nothing
            pass

    asyncio.run(scenario())


def test_an_admin_address_beyond_loopback_needs_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)

    async def scenario() -> None:
        async with serve(config(tmp_path, admin="192.0.2.1:7401"), "control"):
            raise AssertionError("served without a token")

    with pytest.raises(ConfigError, match=TOKEN_VARIABLE):
        asyncio.run(scenario())


def test_fc_63_secrets_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(TOKEN_VARIABLE, CANARY + "-token")
    seen: list[str] = []

    async def scenario() -> None:
        async with (
            serve(config(tmp_path), "control") as control,
            agent(control.grpc_address) as east,
            aiohttp.ClientSession(f"http://{control.admin_address}") as http,
        ):
            await east.beat(0, 1)
            await until(lambda: control.grid.cells == 1)
            for header in (f"Bearer {CANARY}", CANARY, f"Basic {CANARY}", f"Bearer  {CANARY} {CANARY}"):
                seen.append(await (await http.get("/v1/grid", headers={"Authorization": header})).text())
            for path in (
                f"/v1/grid?api_key={CANARY}",
                f"/{CANARY}",
                f"/v1/cells/{CANARY}",
                f"/v1/events?after={CANARY}",
            ):
                seen.append(await (await http.get(path)).text())
            for body in (f'{{"api_key":"{CANARY}"}}', CANARY, f'{{"reason":["{CANARY}"]}}'):
                seen.append(await (await http.post("/v1/cells/cell-0000/drain", data=body)).text())
            seen.append(await (await http.post(f"/v1/cells/{CANARY}/drain")).text())
            await east.raw(b"\xff" + CANARY.encode())
            await until(lambda: control.grid.counters["heartbeats_invalid"] == 1)
            await until(lambda: any(reply.refused for reply in east.replies))
            seen.extend(reply.refused for reply in east.replies)
            for path in ("/metrics", "/v1/grid", "/v1/status", "/v1/gateways", "/v1/events", "/openapi.json"):
                seen.append(await (await http.get(path)).text())
            await control.saver.settled(5.0)

    asyncio.run(scenario())
    seen += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    # What the client library of this test logs of its own requests is not control's doing.
    seen += [record.getMessage() for record in caplog.records if not record.name.startswith("aiohttp")]
    assert len(seen) > 20
    assert not [text for text in seen if CANARY in text]


def test_fc_65_health_answers_and_no_beat_is_lost_with_200_agents(tmp_path: Path) -> None:
    cells, seconds = 200, 4.0

    async def scenario() -> None:
        process = await control_process(config(tmp_path))
        try:
            grpc_address, admin = await serving(process)
            async with aiohttp.ClientSession(f"http://{admin}") as http:
                await answering(http)
                load = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.support.synthetic_agents", "--address", grpc_address,
                    "--cells", str(cells), "--streams", "8", "--seconds", str(seconds),
                    stdout=asyncio.subprocess.PIPE, cwd=ROOT,
                )  # fmt: skip
                latencies_s = await healthz(http, load)
                output, _ = await load.communicate()
                sent = msgspec.json.decode(output)["sent"]
                status = await (await http.get("/v1/status")).json()
            assert status["counters"]["heartbeats"] == sent
            assert status["counters"]["heartbeats_refused"] == 0
            assert sum(status["cells"].values()) == cells
            assert status["loop_lag_worst_s"] < 2.0  # loose: the machine may be busy with other things
            latencies_s.sort()
            assert latencies_s[int(len(latencies_s) * 0.99)] < 2.0
        finally:
            process.terminate()
            await process.communicate()
        assert process.returncode == 0

    async def healthz(http: aiohttp.ClientSession, load: asyncio.subprocess.Process) -> list[float]:
        latencies_s = []
        waiter = asyncio.create_task(load.wait())
        while not waiter.done():
            start_s = time.perf_counter()
            async with http.get("/healthz") as reply:
                assert reply.status == 200
            latencies_s.append(time.perf_counter() - start_s)
            await asyncio.wait([waiter], timeout=0.02)
        assert waiter.result() == 0
        return latencies_s

    asyncio.run(scenario())
