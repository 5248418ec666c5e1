"""A picked request can be explained from the outside: header, admin page, command, request log, status and metrics."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.fakes.engine import CHAT, json_reply, sse_reply
from tests.support.pick_fleet import CELLS, EXPLAIN_KEY, PickFleet, pick_fleet, picked
from tradewind.cli.main import app


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PickFleet]:
    with pick_fleet(tmp_path_factory.mktemp("explain")) as fleet:
        yield fleet


def command(fleet: PickFleet, request_id: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["explain", request_id, "-f", str(fleet.rig.grid_file), *options])


def explained(fleet: PickFleet, request_id: str) -> dict[str, object]:
    answer = json.loads(command(fleet, request_id, "--json").stdout)
    found = answer["gateways"][0]
    assert isinstance(found, dict)
    return found


def test_a_picked_request_is_explained_with_its_outcome(fleet: PickFleet) -> None:
    told = fleet.ask("CANARY-prompt", headers={"x-request-id": "one"})
    cell = picked(told)
    fleet.rig.until(lambda: explained(fleet, "one")["phase"] == "ended")
    found = explained(fleet, "one")
    decision, outcome = found["decision"], found["outcome"]
    assert isinstance(decision, dict)
    assert isinstance(outcome, dict)
    assert (found["how"], decision["cell_id"], decision["decision_id"]) == (
        "pick",
        cell,
        told.headers["tradewind-decision"],
    )
    assert found["reason"] == told.headers["tradewind-reason"]
    assert {row["cell_id"] for row in decision["candidates"]} == set(CELLS)
    assert (outcome["status"], outcome["cell_id"]) == (200, cell)
    text = command(fleet, "one")
    assert text.exit_code == 0
    assert f"{cell} picked by cost" in text.output
    assert "prefill" in text.output
    assert f"200 from {cell}" in text.output


def test_an_id_from_the_answer_and_a_client_without_the_key(fleet: PickFleet) -> None:
    for headers in ({"tradewind-explain": "wrong"}, {"tradewind-explain": EXPLAIN_KEY[:-1]}):
        answer = fleet.ask(headers=headers)
        assert not [name for name in answer.headers if name.startswith(("tradewind-", "x-tw-"))]
        request_id = answer.headers["x-request-id"]
        assert explained(fleet, request_id)["how"] == "pick"
    seen = [seen.headers for cell in CELLS for seen in fleet.served(cell)]
    assert seen
    assert not [headers for headers in seen if "tradewind-explain" in headers]


def test_a_request_in_flight_is_explained(fleet: PickFleet) -> None:
    fleet.everywhere(sse_reply(["a"] * 20, gap_s=0.1))
    thread = threading.Thread(target=lambda: fleet.ask(stream=True, headers={"x-request-id": "running"}))
    thread.start()
    try:
        fleet.rig.until(lambda: explained(fleet, "running")["phase"] in ("waiting", "decoding"))
        assert "in flight" in command(fleet, "running").output
    finally:
        thread.join()
        fleet.everywhere(json_reply(CHAT))


def test_what_went_by_the_weights_and_what_is_unknown_say_so(fleet: PickFleet) -> None:
    fleet.send(b'{"model":"m","messages":[', headers={"x-request-id": "broken"})
    fleet.rig.until(lambda: explained(fleet, "broken")["how"] == "weights")
    assert "went by the weights" in command(fleet, "broken").output
    unknown = command(fleet, "never-sent")
    assert unknown.exit_code == 1
    assert "no request with this id in the last" in unknown.output
    assert fleet.rig.get_admin("/v1/explain") is None  # 400: which request?


def test_log_status_and_metrics_tell_of_picks_without_prompts_or_keys(fleet: PickFleet) -> None:
    answers = [fleet.ask(f"CANARY-prompt {number}") for number in range(5)]
    names = {answer.headers["tradewind-decision"] for answer in answers}
    log = Path(fleet.rig.config.state_dir) / "gateway-gw" / "requests.ndjson"

    def logged() -> dict[str, dict[str, object]]:
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return {line["pick"]["decision"]: line for line in lines if "pick" in line}

    fleet.rig.until(lambda: names <= logged().keys())
    line = logged()[answers[0].headers["tradewind-decision"]]
    assert line["cell"] == picked(answers[0])
    assert isinstance(line["pick"], dict)
    assert line["pick"].keys() >= {"decision", "policy", "cost_s", "expected_ttft_s", "prompt_tokens"}
    pick = fleet.rig.status()["pick"]
    assert isinstance(pick, dict)
    assert pick["policy"] == "cost"
    assert pick["picks"] >= pick["outcomes"] >= 5
    assert pick["decision_us"] > 0
    assert [row["cell_id"] for row in pick["cells"]] == list(CELLS)
    page = fleet.rig.page("/metrics")
    for name in (b"picks_total", b"pick_decision_seconds_total", b'pick_cell_slowness_ratio{cell="a"}'):
        assert b"tradewind_gateway_" + name in page
    told = command(fleet, answers[0].headers["x-request-id"], "--json").output.encode()
    for text in (log.read_bytes(), page, fleet.rig.log.read_bytes(), fleet.rig.page("/v1/status"), told):
        assert b"CANARY" not in text
        assert EXPLAIN_KEY.encode() not in text
