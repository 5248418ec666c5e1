"""A gate that Envoy refuses or that traps while it serves: nothing hangs, Envoy lives, and the next are gated."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine, Reply, sse_reply
from tests.support.edge import Edge, Received, running_edge, wait_for
from tradewind.gateway.gate.choice import blames_gate
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import GateModule

CHAT = "/v1/chat/completions"
TRAP = (Path(__file__).parents[1] / "data" / "trap" / "trap.wasm").read_bytes()
GOOD = sse_reply(["a", "b"])
DIES = Reply(chunks=(), content_type="text/event-stream", cut_after=0, reset=True, linger_s=0.1)


def ask(edge: Edge, model: str, *, within_s: float = 10.0) -> Received:
    return edge.stream({"model": model, "messages": [], "stream": True}, timeout_s=within_s)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("edge"), gate=GateModule(code=TRAP), log_level="off") as edge:
        yield edge


@pytest.fixture
def engines(edge: Edge) -> Iterator[dict[str, FakeEngine]]:
    """Pool "m" has an engine that dies before its first token and a good one; the others have one each."""
    with ExitStack() as stack:
        engines = {name: stack.enter_context(FakeEngine()) for name in ("dies", "good", "trap", "slow", "running")}
        for name, reply in (("dies", DIES), ("good", GOOD), ("slow", replace(GOOD, first_gap_s=1.5))):
            engines[name].on(CHAT, reply)
        pools = {"m": [(engines["dies"].address, 67), (engines["good"].address, 67)]}
        edge.route({**pools, **{name: [(engines[name].address, 1)] for name in ("trap", "slow", "running")}})
        yield engines


def gated(edge: Edge, engines: dict[str, FakeEngine]) -> bool:
    """Whether the next streams survive an engine that dies before the first token; half of them meet it."""
    before = len(engines["dies"].requests(CHAT))
    answers = [ask(edge, "m") for _ in range(4)]
    assert len(engines["dies"].requests(CHAT)) > before
    return all((answer.status, answer.text) == (200, b"".join(GOOD.chunks or ())) for answer in answers)


@pytest.mark.parametrize("when", ["headers", "body"])
def test_a_trap_costs_its_request_and_the_next_are_gated_again(
    edge: Edge, engines: dict[str, FakeEngine], when: str
) -> None:
    assert gated(edge, engines)
    engines["trap"].on(CHAT, replace(GOOD, headers=(("x-trap", when),)))
    started_s = time.monotonic()
    assert {ask(edge, "trap").status for _ in range(3)} == {503}
    assert time.monotonic() - started_s < 5.0
    assert edge.envoy.process.poll() is None
    assert gated(edge, engines)


def test_streams_that_are_under_way_while_another_traps_end_and_do_not_hang(
    edge: Edge, engines: dict[str, FakeEngine]
) -> None:
    """They share the machine of their Envoy worker: held ones are answered 503, running ones are cut."""
    engines["trap"].on(CHAT, replace(GOOD, headers=(("x-trap", "headers"),)))
    engines["running"].on(CHAT, sse_reply(["a"] * 20, gap_s=0.1))
    with ThreadPoolExecutor(8) as pool:
        held = [pool.submit(ask, edge, "slow") for _ in range(3)]
        running = [pool.submit(ask, edge, "running") for _ in range(3)]
        wait_for(lambda: len(engines["slow"].requests(CHAT)) == len(engines["running"].requests(CHAT)) == 3)
        begun_s = max(seen.at_s for seen in engines["running"].requests(CHAT))
        wait_for(lambda: time.monotonic() > begun_s + 0.4)  # their first tokens have passed
        ask(edge, "trap")
        assert [future.result().status for future in held] == [503] * 3
        assert [future.result().complete for future in running] == [False] * 3
    assert gated(edge, engines)


def test_a_module_that_envoy_refuses_is_named_in_its_answer_and_may_be_withdrawn(tmp_path: Path) -> None:
    with FakeEngine() as engine, running_edge(tmp_path, gate=GateModule(code=b"\0asm\1\0\0\0")) as edge:
        engine.on(CHAT, GOOD)
        edge.route({"m": [(engine.address, 1)]}, wait=False)
        wait_for(lambda: any(event.name == "nack" for event in edge.gateway.events))
        nack = next(event for event in edge.gateway.events if event.name == "nack")
        assert (nack.type, blames_gate(nack.detail)) == ("cds", True)
        edge.builder = SnapshotBuilder(replace(edge.settings, gate=None))
        edge.route({"m": [(engine.address, 1)]})
        assert ask(edge, "m").status == 200
