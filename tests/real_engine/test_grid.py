"""Two real vLLM behind the grid: both serve, refusals pass through, and one that dies is left out until it is back."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.contract.client import Answer, Stream, chunks_of, eventually, get, send
from tests.contract.engine import LIMITS
from tests.contract.requests import CHAT, LONG_TOKENS, chat
from tests.real_engine.site import FAR, NEAR, RTT_MS, Site

pytestmark = pytest.mark.real_engine

LOGGED_S = 10.0
FAULTED_S = 10.0
BACK_S = 60.0
SHARE_S = 60.0


def ask(site: Site, **fields: object) -> tuple[str, Answer]:
    """One chat request through the grid, with its request id."""
    request_id = uuid.uuid4().hex
    return request_id, send(site.up, "POST", CHAT, chat(**fields), headers={"x-request-id": request_id})  # type: ignore[arg-type]  # fields of chat()


def cell_of(site: Site, request_id: str) -> str | None:
    """Which cell served a request."""
    eventually(lambda: request_id in site.up.requests(), within_s=LOGGED_S, what="the request is logged")
    return site.up.requests()[request_id].cell


def test_both_engines_serve(site: Site) -> None:
    asked = [ask(site) for _ in range(16)]
    assert [answer.status for _, answer in asked] == [200] * 16
    assert {cell_of(site, request_id) for request_id, _ in asked} == {NEAR, FAR}


def test_every_signal_of_the_engines_reaches_control(site: Site) -> None:
    for cell in site.up.at_control():
        assert (cell["state"], cell["engine"], cell["engine_version"]) == ("ready", "vllm", "0.32.0")
        assert cell["max_model_len"] == LIMITS.max_model_len
        signals = cell["signals"]
        assert isinstance(signals, dict)
        assert [name for name, value in signals.items() if name.startswith("engine.") and value is None] == []


def test_the_gateway_measures_the_path_through_the_relay(site: Site) -> None:
    site.up.until(
        lambda cells: all((cell.rtt_s or 0.0) >= RTT_MS[cell.cell_id] / 1e3 for cell in cells.values()),
        within_s=10.0,
        what="a round trip takes at least the relay's delay",
    )


def test_a_stream_comes_through_whole(site: Site) -> None:
    body = chat(max_tokens=12, stream=True, stream_options={"include_usage": True})
    with Stream(site.up, CHAT, body) as stream:
        first, *_, last = chunks_of(stream)
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["usage"]["completion_tokens"] == 12


def test_models_are_listed_once(site: Site) -> None:
    listed = get(site.up, "/v1/models").json()["data"]
    assert [(model["id"], model["max_model_len"]) for model in listed] == [("tiny", LIMITS.max_model_len)]


def test_an_unknown_model_is_404(site: Site) -> None:
    answer = send(site.up, "POST", CHAT, chat() | {"model": "nope"})
    assert answer.status == 404
    assert answer.error()["message"].startswith("The model `nope` does not exist")


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_passes_through_byte_for_byte(site: Site, stream: bool) -> None:
    body = chat("fox " * (LIMITS.max_model_len + 100), stream=stream)
    through, direct = (send(server, "POST", CHAT, body) for server in (site.up, site.engines[NEAR]))
    assert through.status == direct.status == 400
    assert through.body == direct.body


def test_refusals_that_every_engine_gives_change_no_share(site: Site) -> None:
    for _ in range(10):
        assert send(site.up, "POST", CHAT, chat("fox " * (LIMITS.max_model_len + 100))).status == 400
    assert all(cell.weight for cell in site.up.cells().values())
    assert {cell_of(site, ask(site)[0]) for _ in range(12)} == {NEAR, FAR}


@dataclass
class Traffic:
    """Short requests one after the other: when each was sent, and what came."""

    answers: list[tuple[float, int]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self, site: Site) -> None:
        while not self.ended.wait(0.05):
            sent_s = time.monotonic()
            try:
                status = ask(site, max_tokens=2)[1].status
            except OSError:
                status = 0
            self.answers.append((sent_s, status))

    def since(self, start_s: float) -> list[int]:
        return [status for sent_s, status in self.answers if sent_s >= start_s]


@contextmanager
def traffic(site: Site) -> Iterator[Traffic]:
    running = Traffic()
    thread = threading.Thread(target=running.run, args=(site,))
    thread.start()
    try:
        yield running
    finally:
        running.ended.set()
        thread.join()


def test_one_dies_the_other_serves_and_it_comes_back(site: Site) -> None:
    with traffic(site) as running:
        killed_s = time.monotonic()
        site.engines[FAR].kill()
        site.up.until(lambda cells: cells[FAR].state == "faulted", within_s=FAULTED_S, what="the dead cell is faulted")
        eventually(lambda: len(running.since(killed_s)) >= 20, within_s=SHARE_S, what="traffic goes on")
    assert set(running.since(killed_s)) == {200}
    assert site.up.cells()[FAR].weight is None
    site.restart(FAR)
    site.up.until(lambda cells: cells[FAR].state == "ready", within_s=BACK_S, what="the cell is back")
    eventually(lambda: cell_of(site, ask(site)[0]) == FAR, within_s=SHARE_S, what="it is given traffic again")


def test_a_stream_in_flight_on_a_killed_engine_is_cut(site: Site) -> None:
    with Stream(site.up, CHAT, chat(max_tokens=LONG_TOKENS, stream=True)) as stream:
        next(iter(stream))
        for engine in site.engines.values():
            engine.kill()
        list(stream)
        assert stream.cut is True
    site.up.until(
        lambda cells: {cell.state for cell in cells.values()} == {"faulted"},
        within_s=FAULTED_S,
        what="both are faulted",
    )
    assert send(site.up, "POST", CHAT, chat()).status == 503
