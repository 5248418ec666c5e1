"""Bounded reads of peers that misbehave in every way, over real sockets."""

import asyncio
import gzip
import socket
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.fakes.engine import FakeEngine, Reply, vllm_page
from tradewind.telemetry.engine_metrics import EngineReader
from tradewind.telemetry.fetch import Fetcher, Page
from tradewind.telemetry.health import HealthReading, HealthWatch, Liveness
from tradewind.telemetry.http_connection import Fault, FetchFailed, parse_target, request_bytes
from tradewind.telemetry.rtt import PathProber

T = TypeVar("T")

PAGE = vllm_page(waiting=3, running=2, kv=0.5, tokens=10).encode()
TIMEOUT_S = 0.5
MAX_BYTES = 1 << 20


def fetch(engine: FakeEngine, path: str = "/metrics") -> Page:
    async def once() -> Page:
        fetcher = Fetcher(engine.url, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)
        try:
            return await fetcher.page(path)
        finally:
            fetcher.close()

    return asyncio.run(once())


def page_reply(body: bytes, **switches: object) -> Reply:
    return Reply(body=body, content_type="text/plain; version=1.0.0; charset=utf-8", **switches)  # type: ignore[arg-type]


GZIPPED = gzip.compress(PAGE)
BOMB = gzip.compress(b"vllm:x 1\n" * 2_000_000)
MEMBERS = b"".join(gzip.compress(line) for line in PAGE.splitlines(keepends=True))  # as of a server that flushes
CROWD = gzip.compress(b"") * 40_000
TRAILERS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\ncontent-encoding: br\r\nx: y\r\n\r\n"
REDIRECT = Reply(status=302, headers=(("location", "/metrics"),))

FC_33_GOOD = {
    "plain": page_reply(PAGE),
    "chunked": page_reply(b"", chunks=tuple(PAGE[start : start + 7] for start in range(0, len(PAGE), 7))),
    "gzip": page_reply(GZIPPED, headers=(("content-encoding", "gzip"),)),
    "gzip in several members": page_reply(MEMBERS, headers=(("content-encoding", "gzip"),)),
    "gzip with padding": page_reply(GZIPPED + bytes(512), headers=(("content-encoding", "gzip"),)),
    "gzip by its old name": page_reply(GZIPPED, headers=(("content-encoding", "X-Gzip"),)),
    "gzip that does not say so": page_reply(GZIPPED),
    "an empty encoding": page_reply(PAGE, headers=(("content-encoding", ""),)),
    "chunked with trailers": Reply(raw=TRAILERS % (len(PAGE), PAGE)),
    "offers another protocol": page_reply(PAGE, headers=(("upgrade", "h2,h2c"), ("connection", "upgrade"))),
    "says gzip and is plain": page_reply(PAGE, headers=(("content-encoding", "gzip"),)),
    "openmetrics": Reply(body=PAGE + b"# EOF\n", content_type="application/openmetrics-text; version=1.0.0"),
    "no length": Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + PAGE, close=True),
    "HTTP/1.0": Reply(raw=b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(PAGE), PAGE), close=True),
    "an interim answer first": Reply(
        raw=b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(PAGE), PAGE)
    ),
    "slow but in time": page_reply(PAGE, delay_s=0.1),
}

FC_33_BAD = {
    "404": (Reply(status=404), Fault.STATUS),
    "500": (Reply(status=500), Fault.STATUS),
    "204": (Reply(status=204), Fault.STATUS),
    "redirect loop": (REDIRECT, Fault.REDIRECT),
    "cut": (page_reply(PAGE, cut_after=50), Fault.RESET),
    "cut and reset": (page_reply(PAGE, cut_after=50, reset=True), Fault.RESET),
    "cut chunk": (page_reply(b"", chunks=(PAGE[:50],), cut_after=0), Fault.RESET),
    "reset": (Reply(reset=True), Fault.RESET),
    "broken gzip": (page_reply(GZIPPED[:10] + b"xxxx", headers=(("content-encoding", "gzip"),)), Fault.MALFORMED),
    "cut gzip": (page_reply(GZIPPED[:-9], headers=(("content-encoding", "gzip"),)), Fault.MALFORMED),
    "gzip bomb": (page_reply(BOMB, headers=(("content-encoding", "gzip"),)), Fault.TOO_LARGE),
    "gzip with a broken second member": (
        page_reply(GZIPPED * 2 + b"\x1f\x8bxxxx", headers=(("content-encoding", "gzip"),)),
        Fault.MALFORMED,
    ),
    "gzip with a cut second member": (
        page_reply(MEMBERS[:-9], headers=(("content-encoding", "gzip"),)),
        Fault.MALFORMED,
    ),
    "gzip and something else": (
        page_reply(GZIPPED + b"vllm:x 1\n", headers=(("content-encoding", "gzip"),)),
        Fault.MALFORMED,
    ),
    "gzip bomb in its second member": (
        page_reply(GZIPPED + BOMB, headers=(("content-encoding", "gzip"),)),
        Fault.TOO_LARGE,
    ),
    "gzip bomb of members": (page_reply(CROWD, headers=(("content-encoding", "gzip"),)), Fault.TOO_LARGE),
    "gzip in gzip": (
        page_reply(gzip.compress(GZIPPED), headers=(("content-encoding", "gzip, gzip"),)),
        Fault.MALFORMED,
    ),
    "deflate": (page_reply(zlib.compress(PAGE), headers=(("content-encoding", "deflate"),)), Fault.MALFORMED),
    "another protocol": (
        Reply(raw=b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nxx"),
        Fault.MALFORMED,
    ),
    "brotli": (page_reply(PAGE, headers=(("content-encoding", "br"),)), Fault.MALFORMED),
    "50 MB": (page_reply(b"x" * 50_000_000), Fault.TOO_LARGE),
    "drip": (page_reply(PAGE, drip_s=0.05), Fault.TIMEOUT),
    "never-ending": (page_reply(b"", chunks=(b"vllm:x 1\n",), endless=True, gap_s=0.01), Fault.TIMEOUT),
    "never-ending and fast": (page_reply(b"", chunks=(b"x" * 65536,), endless=True), Fault.TOO_LARGE),
    "endless headers": (Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300_000), Fault.TOO_LARGE),
    "hang": (Reply(hang=True), Fault.TIMEOUT),
    "not HTTP": (Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n"), Fault.MALFORMED),
}


@pytest.mark.parametrize("reply", FC_33_GOOD.values(), ids=FC_33_GOOD.keys())
def test_fc_33_pages_that_can_be_read(reply: Reply) -> None:
    with FakeEngine() as engine:
        engine.on("/metrics", reply)
        page = fetch(engine)
    reading = EngineReader().read(page.body, served=("m",), whole=page.whole).reading
    assert (reading.queue_requests, reading.running_requests, reading.kv_fill_ratio) == (3.0, 2.0, 0.5)


@pytest.mark.parametrize(("reply", "fault"), FC_33_BAD.values(), ids=FC_33_BAD.keys())
def test_fc_33_pages_that_cannot_be_read_end_within_their_bounds(reply: Reply, fault: Fault) -> None:
    with FakeEngine() as engine:
        engine.on("/metrics", reply)
        started_s = time.monotonic()
        with pytest.raises(FetchFailed) as caught:
            fetch(engine)
        assert caught.value.fault is fault
        assert time.monotonic() - started_s < 10 * TIMEOUT_S
        assert len(engine.requests("/metrics")) <= 2, "at most one retry"


def test_fc_33_a_page_of_known_length_cut_at_any_byte_is_never_taken() -> None:
    async def scenario(engine: FakeEngine) -> int:
        fetcher = Fetcher(engine.url, timeout_s=5.0)
        refused = 0
        for end in range(0, len(PAGE), 3):
            engine.on("/metrics", page_reply(PAGE, cut_after=end))
            with pytest.raises(FetchFailed):
                await fetcher.page("/metrics")
            refused += 1
        fetcher.close()
        return refused

    with FakeEngine() as engine:
        assert asyncio.run(scenario(engine)) > 80


def test_fc_33_html_and_empty_pages_are_read_as_nothing() -> None:
    with FakeEngine() as engine:
        for body in (b"<html>502 Bad Gateway</html>", b""):
            engine.on("/metrics", Reply(body=body, content_type="text/html"))
            page = fetch(engine)
            assert EngineReader().read(page.body, whole=page.whole).kind is None


def test_nobody_listens() -> None:
    with FakeEngine() as engine:
        engine.kill()
        with pytest.raises(FetchFailed) as caught:
            fetch(engine)
    assert caught.value.fault is Fault.REFUSED


@pytest.mark.parametrize("host", ["a..b", "no-such-host.invalid"])
def test_a_name_that_leads_nowhere(host: str) -> None:
    async def ask() -> None:
        await Fetcher(f"http://{host}:80", timeout_s=5.0, connect_timeout_s=5.0).page()

    with pytest.raises(FetchFailed) as caught:
        asyncio.run(ask())
    assert caught.value.fault is Fault.UNREACHABLE


def test_a_name_with_two_addresses_refuses_where_both_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEngine() as engine:
        port = parse_target(engine.url).port
        engine.kill()

        async def ask() -> None:
            found = [
                (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
                for family, host in ((socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1"))
            ]

            async def resolve(*_: object, **__: object) -> object:
                return found

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            await Fetcher(f"http://engine.example:{port}").page()

        with pytest.raises(FetchFailed) as caught:
            asyncio.run(ask())
    assert (caught.value.fault, caught.value.detail) == (Fault.REFUSED, "connection refused")


def test_fc_63_a_redirect_carries_no_key_anywhere() -> None:
    with FakeEngine() as other, FakeEngine() as engine:
        engine.on("/v1/models", Reply(status=307, headers=(("location", f"{other.url}/v1/models"),)))

        async def ask() -> int:
            fetcher = Fetcher(engine.url, headers=(("authorization", "Bearer CANARY-8f3"),))
            response = await fetcher.exchange("GET", "/v1/models")
            fetcher.close()
            return response.status

        assert asyncio.run(ask()) == 307
        assert other.requests() == []
        assert engine.requests()[0].headers["authorization"] == "Bearer CANARY-8f3"


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://user:secret@host", "http://host/?api_key=secret"])
def test_fc_63_urls_that_may_hold_a_key_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        parse_target(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "below", "asked"),
    [
        ("", "", "/"),
        ("/", "", "/"),
        ("/metrics", "", "/metrics"),
        ("/metrics/", "", "/metrics/"),  # some servers redirect the one to the other
        ("/", "/v1/models", "/v1/models"),
        ("/east/", "/v1/models", "/east/v1/models"),
    ],
)
def test_a_page_is_asked_for_as_its_url_is_written(written: str, below: str, asked: str) -> None:
    line = request_bytes(parse_target(f"http://h{written}"), "GET", below).partition(b"\r\n")[0]
    assert line == f"GET {asked} HTTP/1.1".encode()


def test_a_header_cannot_smuggle_a_line() -> None:
    with pytest.raises(AssertionError):
        request_bytes(parse_target("http://h"), "GET", "/", headers=(("authorization", "Bearer a\r\nx: y"),))


# FC-19


def test_fc_19_an_idle_connection_closed_by_the_engine_is_no_failure() -> None:
    idle_s = 0.03

    async def scenario(engine: FakeEngine) -> int:
        fetcher = Fetcher(engine.url, timeout_s=5.0)
        for number in range(60):
            await fetcher.page("/metrics")
            await asyncio.sleep(idle_s - 0.003 + 0.0001 * number)  # on both sides of the engine's limit
        fetcher.close()
        return fetcher.retries

    with FakeEngine(idle_close_s=idle_s) as engine:
        asyncio.run(scenario(engine))
        assert len(engine.requests("/metrics")) == 60


def test_fc_19_a_request_that_meets_the_close_is_repeated_once() -> None:
    async def scenario(engine: FakeEngine) -> int:
        fetcher = Fetcher(engine.url, timeout_s=5.0)
        await fetcher.page("/metrics")
        engine.on("/metrics", [Reply(reset=True), page_reply(PAGE)])
        page = await fetcher.page("/metrics")
        assert page.body == PAGE
        fetcher.close()
        return fetcher.retries

    with FakeEngine() as engine:
        assert asyncio.run(scenario(engine)) == 1


def test_a_post_is_never_repeated() -> None:
    async def scenario(engine: FakeEngine) -> None:
        fetcher = Fetcher(engine.url, timeout_s=5.0)
        with pytest.raises(FetchFailed):
            await fetcher.exchange("POST", "/v1/completions", body=b"{}")
        fetcher.close()

    with FakeEngine() as engine:
        engine.on("/v1/completions", Reply(reset=True))
        asyncio.run(scenario(engine))
        assert len(engine.requests("/v1/completions")) == 1


# The health watch and the path prober


def watch(
    engine: FakeEngine,
    scenario: Callable[["Readings"], Awaitable[T]],
    *,
    interval_s: float = 0.05,
    answer_s: float = 1.0,
) -> T:
    """Run a scenario beside a health watch of the engine."""

    async def main() -> T:
        readings = Readings()
        target = parse_target(engine.url)
        health = HealthWatch(target, interval_s=interval_s, on_reading=readings.add, answer_timeout_s=answer_s)
        task = asyncio.ensure_future(health.run())
        try:
            return await scenario(readings)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return asyncio.run(main())


class Readings:
    """What a watch has said so far."""

    def __init__(self) -> None:
        self.seen: list[HealthReading] = []
        self._news = asyncio.Event()

    def add(self, reading: HealthReading) -> None:
        self.seen.append(reading)
        self._news.set()

    async def until(self, liveness: Liveness, *, after: int = 0) -> HealthReading:
        async with asyncio.timeout(10):
            while True:
                for reading in self.seen[after:]:
                    if reading.liveness is liveness:
                        return reading
                self._news.clear()
                await self._news.wait()

    async def count(self, number: int) -> None:
        async with asyncio.timeout(10):
            while len(self.seen) < number:
                self._news.clear()
                await self._news.wait()


def test_the_first_probe_of_a_connection_gives_no_rtt_and_the_next_ones_do() -> None:
    async def scenario(readings: Readings) -> None:
        await readings.count(4)

    with FakeEngine() as engine:

        async def body(readings: Readings) -> list[HealthReading]:
            await scenario(readings)
            return readings.seen

        seen = watch(engine, body)
        assert [reading.liveness for reading in seen] == [Liveness.OK] * len(seen)
        assert seen[0].rtt_s is None
        assert all(reading.rtt_s is not None and 0 < reading.rtt_s < 5 for reading in seen[1:])
        assert engine.connections == 1


def test_death_is_an_event_and_not_a_tick() -> None:
    with FakeEngine() as engine:

        async def scenario(readings: Readings) -> HealthReading:
            await readings.until(Liveness.OK)
            await asyncio.to_thread(engine.kill)
            return await readings.until(Liveness.DEAD)

        dead = watch(engine, scenario, interval_s=3600.0)
        assert dead.detail == "connection refused"


def test_fc_19_a_health_connection_closed_while_idle_is_not_death() -> None:
    with FakeEngine(idle_close_s=0.02) as engine:

        async def scenario(readings: Readings) -> list[HealthReading]:
            await readings.count(12)
            return readings.seen

        seen = watch(engine, scenario)
        assert {reading.liveness for reading in seen} == {Liveness.OK}
        assert engine.connections > 3


def test_fc_04_an_engine_that_takes_connections_and_answers_late_is_slow_and_not_dead() -> None:
    with FakeEngine() as engine:
        engine.on("/health", Reply(delay_s=1.0))

        async def scenario(readings: Readings) -> list[HealthReading]:
            await readings.count(3)
            return readings.seen

        assert {reading.liveness for reading in watch(engine, scenario, answer_s=0.1)} == {Liveness.SLOW}


def test_a_frozen_engine_is_slow_and_a_killed_one_dead() -> None:
    with FakeEngine() as engine:

        async def scenario(readings: Readings) -> None:
            await readings.until(Liveness.OK)
            engine.freeze()
            await readings.until(Liveness.SLOW)
            await asyncio.to_thread(engine.kill)
            await readings.until(Liveness.DEAD)
            engine.thaw()
            await asyncio.to_thread(engine.revive)
            await readings.until(Liveness.OK, after=len(readings.seen))

        watch(engine, scenario, answer_s=0.1)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(status=503), Liveness.DEAD),
        (Reply(reset=True), Liveness.DEAD),
        (Reply(raw=b"nonsense\r\n\r\n"), Liveness.DEAD),
        (Reply(status=404), Liveness.OK),
        (Reply(status=401), Liveness.OK),
        ([Reply(reset=True), Reply(reset=True), Reply()], Liveness.OK),
        ([Reply(status=503), Reply()], Liveness.OK),
        (Reply(close=True), Liveness.OK),
    ],
)
def test_the_first_verdict_is_a_certain_one(reply: Reply | list[Reply], expected: Liveness) -> None:
    with FakeEngine() as engine:
        engine.on("/health", reply)

        async def scenario(readings: Readings) -> HealthReading:
            await readings.count(1)
            return readings.seen[0]

        assert watch(engine, scenario).liveness is expected


def test_a_server_that_drops_every_connection_after_its_answer_makes_no_busy_loop() -> None:
    with FakeEngine() as engine:
        raw = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        engine.on("/health", Reply(raw=raw, close=True))

        async def scenario(readings: Readings) -> int:
            await asyncio.sleep(0.5)
            return len(readings.seen)

        assert watch(engine, scenario, interval_s=0.1) <= 25


def test_the_path_prober_reports_rtt_and_reachability() -> None:
    with FakeEngine() as engine:

        async def main() -> list[tuple[float | None, bool]]:
            seen: list[tuple[float | None, bool]] = []
            arrived = asyncio.Event()

            def take(rtt_s: float | None, reachable: bool, now_s: float) -> None:
                assert now_s > 0
                seen.append((rtt_s, reachable))
                arrived.set()

            prober = PathProber(engine.address, interval_s=0.02, on_reading=take)
            task = asyncio.ensure_future(prober.run())
            async with asyncio.timeout(10):
                while len(seen) < 3:
                    arrived.clear()
                    await arrived.wait()
                await asyncio.to_thread(engine.kill)
                for expected in (False, True):
                    while seen[-1][1] is not expected:
                        arrived.clear()
                        await arrived.wait()
                    if not expected:
                        await asyncio.to_thread(engine.revive)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return seen

        seen = asyncio.run(main())
    assert seen[0] == (None, True)
    assert seen[1][0] is not None
    assert (None, False) in seen
