"""Late first tokens end to end: the gateway's own picker sets the limit or the hedge, and its books stay even."""

from collections.abc import Iterator

import pytest

from tests.fakes.engine import Reply, SeenRequest, json_reply, sse_reply
from tests.support.gateway import Answer
from tests.support.pick_fleet import CELLS, CHAT_PATH, PickFleet, pick_fleet
from tradewind.config.schema import FirstTokenConfig, HedgeConfig

LIMIT_S, HEDGE_S = 0.5, 0.2
REQUESTS = 12
SECTION = FirstTokenConfig(
    timeout_factor=1.0, timeout_min_s=LIMIT_S, hedge=HedgeConfig(header="x-class", value="live", after_s=HEDGE_S)
)
GOOD = sse_reply(["a", "b"])
SILENT = Reply(chunks=(), content_type="text/event-stream", stall=True)


def slow_json(request: SeenRequest) -> Reply:
    return json_reply({"choices": []}) if request.json().get("stream") else Reply(body=b"{}", delay_s=3 * LIMIT_S)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PickFleet]:
    with pick_fleet(tmp_path_factory.mktemp("late"), timeout_s=1.0, first_token=SECTION) as fleet:
        yield fleet


@pytest.mark.parametrize(("headers", "late_s"), [({}, LIMIT_S), ({"x-class": "live"}, HEDGE_S)])
def test_a_stream_that_is_late_on_its_cell_is_served_by_another(
    fleet: PickFleet, headers: dict[str, str], late_s: float
) -> None:
    """Whichever cell was picked; each request is released once, and lateness ejects nobody."""
    fleet.everywhere(GOOD)
    fleet.engines["a"].on(CHAT_PATH, SILENT)
    seen = len(fleet.served("a"))
    answers = [fleet.ask(f"late {late_s} {number}", stream=True, headers=headers) for number in range(REQUESTS)]
    assert [(answer.status, answer.body) for answer in answers] == [(200, text())] * REQUESTS
    late = fleet.served("a")[seen:]
    assert late, "some were picked for the cell that is silent"
    fleet.rig.until(lambda: all(request.aborted_s is not None for request in late))
    assert all(late_s * 0.9 < (request.aborted_s or 0.0) - request.at_s < late_s + 2.0 for request in late)
    fleet.settled()
    pick = fleet.rig.status()["pick"]
    assert isinstance(pick, dict)
    assert (pick["released"], pick["expired"], pick["in_flight"]) == (pick["picks"], 0, 0)
    assert sorted(fleet.rig.weights()) == list(CELLS)


def test_answers_that_are_no_streams_have_no_limit(fleet: PickFleet) -> None:
    fleet.everywhere(slow_json)
    before = {cell: len(fleet.served(cell)) for cell in CELLS}
    answer: Answer = fleet.ask("whole")
    assert answer.status == 200
    assert sum(len(fleet.served(cell)) - before[cell] for cell in CELLS) == 1


def test_a_client_cannot_set_a_limit(fleet: PickFleet) -> None:
    fleet.everywhere(slow_json)
    before = sum(len(fleet.served(cell)) for cell in CELLS)
    told = {"x-envoy-upstream-rq-per-try-timeout-ms": "100", "x-envoy-max-retries": "3", "x-tw-first-token-ms": "100"}
    assert fleet.ask("mine", headers=told).status == 200
    assert sum(len(fleet.served(cell)) for cell in CELLS) == before + 1


def text() -> bytes:
    return b"".join(GOOD.chunks or ())
