"""WAN paths: delay, order, partition without a reset; the same as a relay in front of another server."""

import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import Iterator

import pytest

from tests.integration.test_emulator import LONG_STREAM, SHORT, metric, silent, take_head, wait_for
from tests.support.emulator import EmulatorHandle, EngineSpec, emulator, free_ports
from tests.support.rawhttp import ask, connect, receive, send
from tradewind.config.schema import WanConfig
from tradewind.emulator.relay import Relay
from tradewind.emulator.wan import Wan

RTT_S = 0.04


@pytest.fixture(scope="module")
def shared() -> Iterator[EmulatorHandle]:
    spec = EngineSpec(model="tiny", gateway_sites=("east", "west"))
    with emulator(spec, wan=(WanConfig(a="west", b="east", rtt_ms=1e3 * RTT_S),)) as handle:
        yield handle


@pytest.fixture
def grid(shared: EmulatorHandle) -> Iterator[EmulatorHandle]:
    yield shared
    shared.clear()


def warm_rtts(connection: socket.socket, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start_s = time.monotonic()
        send(connection, "GET", "/health")
        assert receive(connection).status == 200
        times.append(time.monotonic() - start_s)
    return times


def test_a_warm_request_takes_one_round_trip_and_a_cold_one_two(grid: EmulatorHandle) -> None:
    with connect(grid.site_urls["a1", "west"]) as connection:
        cold_s, *warm_s = warm_rtts(connection, 15)
    assert cold_s >= 1.95 * RTT_S
    assert min(warm_s) >= 0.95 * RTT_S
    assert statistics.median(warm_s) < 1.9 * RTT_S


def test_the_own_site_has_no_delay(grid: EmulatorHandle) -> None:
    with connect(grid.site_urls["a1", "east"]) as connection:
        assert min(warm_rtts(connection, 10)) < RTT_S / 2


def test_jitter_moves_times_and_keeps_order(grid: EmulatorHandle) -> None:
    grid.inject("jitter", path=["east", "west"], params={"jitter_ms": 20})
    with connect(grid.site_urls["a1", "west"]) as connection:
        assert statistics.stdev(warm_rtts(connection, 25)) > 0.004
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 100, "stream": True}
    far = ask(grid.site_urls["a1", "west"], "POST", "/v1/completions", body)
    near = ask(grid.urls["a1"], "POST", "/v1/completions", body)
    assert [event.partition('"choices"')[2] for event in far.events()] == [
        event.partition('"choices"')[2] for event in near.events()
    ]


def test_bandwidth_delays_large_bodies(grid: EmulatorHandle) -> None:
    grid.inject("jitter", path=["west", "east"], params={"mbit_per_s": 8, "rtt_ms": 0})
    body = {"model": "tiny", "prompt": "x" * 120_000, "max_tokens": 1}
    start_s = time.monotonic()
    assert ask(grid.site_urls["a1", "west"], "POST", "/v1/completions", body).status == 200
    assert time.monotonic() - start_s > 0.11  # 120 kB at 1 MB/s


def test_a_partition_is_silence_not_a_reset_and_heals(grid: EmulatorHandle) -> None:
    url = grid.site_urls["a1", "west"]
    with connect(url) as stream:
        send(stream, "POST", "/v1/completions", LONG_STREAM | {"max_tokens": 300})
        take_head(stream)
        assert stream.recv(5)
        grid.inject("partition", path=["west", "east"])
        wait_for(lambda: _quiet(stream))
        with pytest.raises(TimeoutError):
            connect(url, timeout_s=0.5)
        assert ask(grid.site_urls["a1", "east"], "POST", "/v1/completions", SHORT).status == 200
        assert ask(grid.urls["a1"], "GET", "/health").status == 200
        grid.clear()
        rest = b""
        while b"0\r\n\r\n" not in rest:
            piece = stream.recv(65536)
            assert piece
            rest += piece
    assert b"[DONE]" in rest
    wait_for(lambda: _answers(url))


def test_a_partition_that_outlasts_the_gateways_kernel_resets_what_was_open(grid: EmulatorHandle) -> None:
    """Loopback acknowledges what a vanished site would not, so the emulator stands in for the kernel that gives up."""
    with connect(grid.site_urls["a1", "west"]) as stream:
        send(stream, "POST", "/v1/completions", LONG_STREAM)
        take_head(stream)
        assert stream.recv(5)
        grid.inject("partition", path=["west", "east"], params={"reset_after_s": 0.5})
        with pytest.raises(ConnectionResetError):
            _read_on(stream)
        assert metric(grid, "vllm:num_requests_running{") == 1, "the engine hears of it when the path is back"
        grid.clear()
    wait_for(lambda: metric(grid, "vllm:num_requests_running{") == 0)


def test_a_disconnect_behind_the_wan_stops_generation(grid: EmulatorHandle) -> None:
    with connect(grid.site_urls["a1", "west"]) as stream:
        send(stream, "POST", "/v1/completions", LONG_STREAM)
        take_head(stream)
        assert stream.recv(5)
        assert metric(grid, "vllm:num_requests_running{") == 1
    wait_for(lambda: metric(grid, "vllm:num_requests_running{") == 0)


def test_the_relay_delays_cuts_and_heals(grid: EmulatorHandle) -> None:
    async def run() -> None:
        relay = Relay(
            listen="127.0.0.1:0", target=grid.urls["a1"].removeprefix("http://"), wan=Wan(rtt_s=RTT_S), seed=1
        )
        url = f"http://{relay.address}"
        start_s = time.monotonic()
        answer = await asyncio.to_thread(ask, url, "POST", "/v1/completions", SHORT)
        assert answer.status == 200
        assert time.monotonic() - start_s > 1.95 * RTT_S
        relay.set_cut(True)
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(connect, url, timeout_s=0.3)
        relay.set_cut(False)
        large = {"model": "tiny", "prompt": "y" * 90_000, "max_tokens": 50, "stream": True}
        answer = await asyncio.to_thread(ask, url, "POST", "/v1/completions", large)
        assert answer.complete
        assert len(answer.events()) == 51
        relay.close()
        await asyncio.sleep(0.1)

    asyncio.run(run())


def test_the_relay_resets_when_the_target_refuses() -> None:
    async def run() -> None:
        relay = Relay(listen="127.0.0.1:0", target=f"127.0.0.1:{free_ports(1)[0]}", wan=Wan(rtt_s=RTT_S), seed=1)

        def attempt() -> float:
            start_s = time.monotonic()
            with connect(f"http://{relay.address}") as connection, contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b"", "reset or closed, never an answer"
            return time.monotonic() - start_s

        assert await asyncio.to_thread(attempt) > 0.9 * RTT_S
        relay.close()

    asyncio.run(run())


def _read_on(stream: socket.socket) -> None:
    while stream.recv(65536):
        pass


def _quiet(connection: socket.socket) -> bool:
    """Takes what is there; True if nothing more comes."""
    while not silent(connection, 0.15):
        connection.recv(65536)
    return True


def _answers(url: str) -> bool:
    try:
        with connect(url, timeout_s=2) as connection:
            send(connection, "GET", "/health")
            return receive(connection).status == 200
    except (TimeoutError, ConnectionResetError):
        return False
