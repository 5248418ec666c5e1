"""A host that vanishes without a word, behind a real Envoy: what it had is given up when its path's time is over."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.engine import FakeEngine
from tests.support.edge import Edge, running_edge, wait_for
from tests.support.netns import FarHost, far_host

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
PATH_TIMEOUT_S = 2.0


@pytest.fixture(scope="module")
def far() -> Iterator[FarHost]:
    with far_host() as far:
        yield far


@pytest.fixture(scope="module")
def edge(far: FarHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    del far  # first: where there is none, nothing is started
    with running_edge(tmp_path_factory.mktemp("edge"), path_timeout_s=PATH_TIMEOUT_S) as edge:
        yield edge


def test_what_went_out_on_an_open_connection_is_served_elsewhere(edge: Edge, far: FarHost) -> None:
    with FakeEngine() as near, ThreadPoolExecutor() as pool:
        edge.route({"m": [(far.address, 1)]})
        wait_for(lambda: edge.post(BODY).status == 200)
        edge.route({"m": [(far.address, 134), (near.address, 1)]})
        streamed = pool.submit(edge.stream, BODY | {"stream": True}, timeout_s=10 * PATH_TIMEOUT_S)
        time.sleep(0.5)
        assert edge.post(BODY, headers={"x-request-id": "before"}).status == 200  # leaves a connection in the pool
        assert edge.outcome("before").cell_id == far.address
        far.vanish()
        vanished_s = time.monotonic()
        try:
            answer = edge.post(BODY, headers={"x-request-id": "after"}, timeout_s=10 * PATH_TIMEOUT_S)
            outcome = edge.outcome("after")
            received = streamed.result()
            cut_s = time.monotonic() - vanished_s
        finally:
            far.come_back()
    assert answer.status == 200
    assert outcome.attempted_cells == (far.address, near.address)
    assert outcome.attempt_failures == ("UC",), "on the open connection, not a new one"
    assert received.status == 200
    assert received.parts
    assert cut_s < 5 * PATH_TIMEOUT_S, "a stream that has begun is cut"
