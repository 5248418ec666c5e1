"""`routing: pick` end to end: a gateway process, a real Envoy, fake engines; picks, and what is left without them."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.fakes.engine import CHAT, Reply, SeenRequest, json_reply, sse_reply
from tests.support.gateway import Load
from tests.support.pick_fleet import CELLS, CHAT_PATH, EXPLAIN_KEY, PickFleet, pick_fleet, picked
from tradewind.config.schema import ResidencyConfig
from tradewind.lab.replay import replay_file

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens",
        "type": "BadRequestError",
        "code": 400,
    }
}
LONG_BYTES = 20_000
COOL_S = 2
LONG_PROMPT = "wind " * 7_200  # some 9,000 tokens
SHARED = "You are a helpful assistant who knows all winds by name. " * 160  # some 2,300 tokens


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PickFleet]:
    """For tests that leave the grid as they found it."""
    # Patient: on a busy machine the picker's 50 ms run out, and then the shares decide.
    with pick_fleet(tmp_path_factory.mktemp("pick"), timeout_s=1.0) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared_fleet: PickFleet) -> Iterator[PickFleet]:
    yield shared_fleet
    shared_fleet.everywhere(json_reply(CHAT))


def refuse_long(request: SeenRequest) -> Reply:
    return json_reply(TOO_LONG, status=400) if len(request.body) > LONG_BYTES else json_reply(CHAT)


def slow_ok(request: SeenRequest) -> Reply:
    return Reply(body=json.dumps(CHAT).encode(), delay_s=0.1)


def long_ones(fleet: PickFleet, cell: str) -> int:
    return sum(len(seen.body) > LONG_BYTES for seen in fleet.served(cell))


def mixed(count: int, *, tag: str) -> list[str]:
    return [f"{tag} {number} " + (LONG_PROMPT if number % 2 else "hi") for number in range(count)]


# --- picks -----------------------------------------------------------------------------------------------------------


def test_a_client_that_may_ask_is_told_which_cell_and_why(fleet: PickFleet) -> None:
    before = fleet.counts()
    answer = fleet.ask()
    cell = picked(answer)
    assert fleet.counts()[cell] == before[cell] + 1
    assert answer.headers["tradewind-reason"].startswith(f"{cell}: ")
    assert answer.headers["tradewind-decision"]
    for key in ({"tradewind-explain": "wrong"}, {"tradewind-explain": ""}):
        assert not [name for name in fleet.ask(headers=key).headers if name.startswith(("tradewind-", "x-tw-"))]
    seen = fleet.served(cell)[-1]
    assert EXPLAIN_KEY not in json.dumps(seen.headers)


def test_a_request_is_in_flight_on_its_cell_until_its_outcome_comes(fleet: PickFleet) -> None:
    before = sum(fleet.counts().values())
    fleet.everywhere(sse_reply(["a"] * 40, gap_s=0.1))
    threads = [threading.Thread(target=lambda: fleet.ask(stream=True)) for _ in range(6)]
    for thread in threads:
        thread.start()
    fleet.rig.until(lambda: sum(fleet.counts().values()) == before + 6)
    fleet.everywhere(json_reply(CHAT))
    fleet.rig.until(lambda: fleet.in_flight() == 6)
    by_cell = {path.cell_id: path.in_flight for path in fleet.control.reports[-1].paths}
    assert max(by_cell.values()) <= 4, by_cell  # what was just sent counts at once; near ties are drawn

    def decoding() -> int:
        fleet.ask("a question brings word of the first tokens before it")
        return sum(path.decoding for path in fleet.control.reports[-1].paths)

    fleet.rig.until(lambda: decoding() >= 6)
    for thread in threads:
        thread.join()
    fleet.settled()


def test_a_shared_prefix_goes_where_it_was_served_and_others_spread(fleet: PickFleet) -> None:
    homes = set()
    for number in range(8):
        fleet.heard()  # the fakes answer within the time that an outcome takes to come back
        homes.add(picked(fleet.ask(f"{SHARED} question {number}")))
    assert len(homes) == 1
    spread = Counter(picked(fleet.ask(f"{number} {SHARED}")) for number in range(18))
    assert set(spread) == set(CELLS)


def test_fc_34_a_burst_inside_one_poll_is_split(tmp_path: Path) -> None:
    """Every view says that all are idle; what this gateway has just sent counts at once. Nothing is learned yet."""
    with pick_fleet(tmp_path) as fleet:
        fleet.everywhere(slow_ok)
        cells = Counter(picked(answer) for answer in fleet.ask_many([f"{n} hi" for n in range(48)], at_once=24))
        assert max(cells.values()) <= 0.45 * 48, cells


def test_what_the_picker_heard_gives_its_decisions_again(fleet: PickFleet) -> None:
    for round_ in range(3):
        fleet.ask_many([f"{SHARED if number % 2 else 'hi'} {round_} {number}" for number in range(12)])
    fleet.settled()
    told = fleet.rig.status()["pick"]
    assert isinstance(told, dict)
    begun = int(told["picks"])
    fleet.rig.until(lambda: replay_file(fleet.capture()).decisions >= begun)
    found = replay_file(fleet.capture())
    assert found.differences == []
    assert found.decisions >= 36
    assert found.heard.keys() >= {"view", "path", "pressure", "pick", "decision", "finished"}
    assert b"knows all winds" not in fleet.capture().read_bytes()


# --- who may serve ---------------------------------------------------------------------------------------------------


def test_an_advertised_limit_is_never_tried(tmp_path: Path) -> None:
    with pick_fleet(tmp_path, limits={"a": 4_096, "b": 32_768}) as fleet:
        fleet.engines["a"].on(CHAT_PATH, refuse_long)
        answers = fleet.ask_many(mixed(60, tag="advertised"))
        late = sum(not picked(answer) for answer in answers)  # left to the weights on a busy machine
        assert sum(answer.status == 400 for answer in answers) == long_ones(fleet, "a") <= late
        assert fleet.counts()["a"] > 5


def test_fc_01_a_limit_that_nobody_states_costs_three_requests_at_most(tmp_path: Path) -> None:
    with pick_fleet(tmp_path) as fleet:
        fleet.engines["a"].on(CHAT_PATH, refuse_long)
        for cell in ("b", "c"):
            fleet.engines[cell].on(CHAT_PATH, slow_ok)
        answers = fleet.ask_many(mixed(200, tag="unstated"), at_once=3)
        refused = [answer for answer in answers if answer.status != 200]
        assert {answer.status for answer in refused} == {400}
        assert {picked(answer) for answer in refused} <= {"a", ""}
        # A picker that had no answer in time, on a busy machine, left its request to the weights.
        assert 0 < sum(picked(answer) == "a" for answer in refused) <= 3
        assert fleet.counts()["a"] - long_ones(fleet, "a") > 15  # short ones still go there


@pytest.mark.parametrize("broken", [Reply(status=503, body=b"{}"), Reply(reset=True)], ids=["503", "reset"])
def test_a_cell_that_answers_503_or_resets_is_retried_elsewhere(tmp_path: Path, broken: Reply) -> None:
    with pick_fleet(tmp_path) as fleet:
        fleet.engines["a"].on(CHAT_PATH, broken)
        asked = fleet.ask_many([f"{number} hi" for number in range(30)], at_once=3)
        assert {answer.status for answer in asked} == {200}
        wished = [answer for answer in asked if picked(answer) == "a"]
        assert 0 < len(wished) < 15  # it is left alone for a while after each
        fleet.settled()


def test_fc_07_a_cell_that_asks_for_patience_gets_it_and_when_all_do_the_client_is_told(tmp_path: Path) -> None:
    patience = json_reply({"error": {"message": "busy"}}, status=429)
    told = replace(patience, headers=(("retry-after", str(COOL_S)),))
    with pick_fleet(tmp_path) as fleet:
        fleet.engines["a"].on(CHAT_PATH, [told, json_reply(CHAT)])
        fleet.rig.until(lambda: fleet.ask().status == 429)  # passed on as it is: only the client can wait
        asked_s = fleet.served("a")[-1].at_s
        fleet.heard()
        before = len(fleet.served("a"))
        fleet.rig.until(lambda: picked(fleet.ask()) == "a")
        assert fleet.served("a")[before].at_s - asked_s >= COOL_S
        fleet.everywhere(told)
        fleet.rig.until(lambda: fleet.ask().headers.get("tradewind-cell", "") == "" and fleet.ask().status == 429)
        seen = fleet.counts()
        answer = fleet.ask()
        assert (answer.status, fleet.counts()) == (429, seen)
        assert 1 <= int(answer.headers["retry-after"]) <= COOL_S
        assert json.loads(answer.body)["error"]["code"] == "overloaded"
        fleet.everywhere(json_reply(CHAT))
        fleet.rig.until(lambda: fleet.ask().status == 200)


# --- the ladder ------------------------------------------------------------------------------------------------------


def by_weights(fleet: PickFleet, weights: dict[str, int], count: int = 18) -> None:
    """Requests are served and spread by these weights, though a prefix is shared: nobody picked them."""
    before = fleet.counts()
    answers = [fleet.ask(SHARED) for _ in range(count)]
    assert {answer.status for answer in answers} == {200}
    assert {picked(answer) for answer in answers} == {""}
    after = fleet.counts()
    fair = {cell: count * weight / sum(weights.values()) for cell, weight in weights.items()}
    assert all(abs(after[cell] - before[cell] - fair[cell]) <= 1.5 for cell in CELLS), (before, after, weights)


def test_fc_46_a_frozen_gateway_leaves_requests_to_the_weights(tmp_path: Path) -> None:
    with pick_fleet(tmp_path) as fleet:
        process = fleet.rig.process
        assert process is not None
        weights = fleet.rig.weights()
        process.send_signal(signal.SIGSTOP)
        try:
            by_weights(fleet, weights)
        finally:
            process.send_signal(signal.SIGCONT)
        fleet.picking()
        fleet.settled()  # questions that Envoy gave up on were answered late, to nobody


def test_fc_46_a_killed_gateway_leaves_requests_to_the_weights_and_picks_resume(tmp_path: Path) -> None:
    with pick_fleet(tmp_path) as fleet:
        weights = fleet.rig.weights()
        fleet.rig.kill()
        by_weights(fleet, weights)
        with Load(fleet.rig, per_s=30) as load:
            fleet.rig.start()
            fleet.sent = 0  # the new process counts from its start
            fleet.picking()
            seen = len(load.answers)
            fleet.rig.until(lambda: len(load.answers) > seen + 15)
        assert load.failed == []
        fleet.settled()


def test_a_dead_control_does_not_stop_the_picks(tmp_path: Path) -> None:
    with pick_fleet(tmp_path) as fleet:
        fleet.control.kill()
        fleet.rig.until(lambda: not fleet.rig.status()["control_live"])
        fleet.engines["b"].kill()
        answers = [fleet.ask(f"{number} hi") for number in range(20)]
        assert {answer.status for answer in answers} == {200}
        fleet.rig.until(lambda: "b" not in fleet.rig.weights())
        answers = [fleet.ask(f"{number} hi") for number in range(20)]
        assert {picked(answer) for answer in answers} == {"a", "c"}


def test_weights_become_picks_and_picks_weights_by_the_grid_file(tmp_path: Path) -> None:
    with pick_fleet(tmp_path, routing="weights") as fleet, Load(fleet.rig, per_s=30) as load:
        rig = fleet.rig
        assert picked(fleet.ask()) == ""
        change_routing(fleet, "pick")
        fleet.picking()
        change_routing(fleet, "weights")
        rig.until(lambda: not picked(fleet.ask()))
        seen = len(load.answers)
        rig.until(lambda: len(load.answers) > seen + 15)
    assert load.failed == []


def change_routing(fleet: PickFleet, routing: str) -> None:
    gateway = msgspec.structs.replace(fleet.rig.gateway, routing=routing)
    config = msgspec.structs.replace(fleet.rig.config, gateways=[gateway])
    staged = fleet.rig.grid_file.with_suffix(".new")
    staged.write_bytes(msgspec.json.encode(config))
    os.replace(staged, fleet.rig.grid_file)


# --- where it may be served ------------------------------------------------------------------------------------------


def test_fc_60_residency_holds_picked_frozen_retried_and_with_its_site_dead(tmp_path: Path) -> None:
    rule = ResidencyConfig(name="eu-only", header="x-region", value="eu", sites=["eu"])
    sites = {"a": "eu", "b": "us", "c": "us"}
    with pick_fleet(tmp_path, sites=sites, residency=[rule]) as fleet:
        process = fleet.rig.process
        assert process is not None

        def ask_eu() -> int:
            return fleet.ask(headers={"x-region": "eu"}).status

        before = fleet.counts()
        assert {picked(fleet.ask(headers={"x-region": "eu"})) for _ in range(6)} == {"a"}
        process.send_signal(signal.SIGSTOP)
        assert {ask_eu() for _ in range(6)} == {200}
        process.send_signal(signal.SIGCONT)
        fleet.picking()
        elsewhere = {cell: fleet.counts()[cell] for cell in ("b", "c")}
        fleet.engines["a"].on(CHAT_PATH, Reply(status=503, body=b"{}"))
        assert {ask_eu() for _ in range(3)} <= {429, 503}  # a retry has nowhere to go
        fleet.engines["a"].kill()
        assert ask_eu() in (429, 503)
        fleet.rig.until(lambda: "a" not in fleet.rig.weights())
        fleet.rig.until(lambda: b"eu-only" in fleet.ask(headers={"x-region": "eu"}).body)
        assert ask_eu() == 503
        assert {cell: fleet.counts()[cell] for cell in ("b", "c")} == elsewhere
        assert fleet.counts()["a"] > before["a"]
        assert fleet.ask().status == 200
        assert fleet.ask(headers={"x-region": "mars"}).status == 403
