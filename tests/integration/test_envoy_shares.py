"""Lua's shares and the fallback policies, on a real Envoy."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine, Reply
from tests.support.edge import Edge, running_edge

WEIGHTS = (70, 20, 9, 1)
BODY = {"model": "m", "messages": []}


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        started = [stack.enter_context(FakeEngine()) for _ in WEIGHTS]
        for i, engine in enumerate(started):
            engine.on("/v1/chat/completions", Reply(headers=(("x-engine", str(i)),), body=b"{}"))
        yield started


@pytest.fixture(scope="module", params=["sotw", "delta"])
def edge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("edge"), protocol=request.param) as edge:
        yield edge


def served(edge: Edge, count: int) -> list[int]:
    """Which engine served each of `count` requests, by index, as each engine says in its answer."""
    with edge.connection() as connection:
        return [int(connection.post(BODY).headers["x-engine"]) for _ in range(count)]


def test_shares_are_exact_and_survive_pushes(edge: Edge, engines: list[FakeEngine]) -> None:
    """70/20/9/1 with a push every ten requests: within 1 point over 2,000, never two more than the share in 100."""
    order: list[int] = []
    for push in range(200):
        # A tenth of a percent more or less on one cell makes each push a change for Envoy and for Lua.
        weights = [weight * 1000 + (push % 2 if i == 0 else 0) for i, weight in enumerate(WEIGHTS)]
        edge.route({"m": [(e.address, w) for e, w in zip(engines, weights, strict=True)]})
        order += served(edge, 10)
    counts = Counter(order)
    for i, weight in enumerate(WEIGHTS):
        assert abs(counts[i] / 20 - weight) <= 1.0, counts
    for start in range(len(order) - 99):
        window = Counter(order[start : start + 100])
        assert all(window[i] - weight < 2 for i, weight in enumerate(WEIGHTS)), (start, window)


def test_a_cell_that_leaves_gets_nothing_and_comes_back_to_its_share(edge: Edge, engines: list[FakeEngine]) -> None:
    pool = [(e.address, 1) for e in engines]
    edge.route({"m": pool})
    served(edge, 8)
    edge.route({"m": pool[1:]})
    counts = Counter(served(edge, 30))
    assert counts.keys() == {1, 2, 3}
    assert all(abs(count - 10) < 2 for count in counts.values())
    edge.route({"m": pool})
    assert abs(Counter(served(edge, 40))[0] - 10) <= 2


def test_pools_do_not_disturb_each_other(edge: Edge, engines: list[FakeEngine]) -> None:
    first, second = engines[:2], engines[2:]
    edge.route({"m": [(e.address, 1) for e in first], "other": [(e.address, 1) for e in second]})
    for _ in range(3):
        counts = Counter(served(edge, 10))
        assert counts.keys() == {0, 1}
        assert all(abs(count - 5) < 2 for count in counts.values())
        assert edge.post({"model": "other"}).status == 200


@pytest.mark.parametrize("baseline", ["round-robin", "least-request", "least-request:4", "random"])
def test_baselines_run_with_equal_weights(baseline: str, tmp_path: Path, engines: list[FakeEngine]) -> None:
    with running_edge(tmp_path, baseline=baseline) as edge:
        edge.route({"m": [(e.address, w) for e, w in zip(engines, WEIGHTS, strict=True)]})
        counts = Counter(served(edge, 40))
        if baseline == "round-robin":
            assert set(counts.values()) == {10}
        else:
            assert min(counts.values()) >= 1
            assert max(counts.values()) <= 30


def test_the_fallback_under_lua_follows_the_weights(tmp_path: Path, engines: list[FakeEngine]) -> None:
    """MAGLEV takes over where Lua names a host that Envoy does not have; its shares are random around the weights."""
    with running_edge(tmp_path, lua_shares=False) as edge:
        edge.route({"m": [(e.address, w) for e, w in zip(engines, WEIGHTS, strict=True)]})
        counts = Counter(served(edge, 300))
        assert 180 <= counts[0] <= 240
        assert 35 <= counts[1] <= 90
