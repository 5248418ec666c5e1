"""A captured picker, replayed, decides the same; a capture that was tampered with does not."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.views import ready_cell
from tests.unit.gateway.test_desk import ADDRESSES, Clock, ask, told
from tradewind.config.schema import GatewayConfig, GridConfig, PickConfig
from tradewind.gateway.pick.build import make_desk
from tradewind.gateway.pick.capture import Capture, CaptureError, parse_capture, read_capture
from tradewind.lab.replay import Replayed, replay, replay_file
from tradewind.model.outcome import Outcome
from tradewind.model.routing import WeightRow
from tradewind.model.view import CellLoad, CellView, GatewayLoad, GridView, PathReading, ViewVersion
from tradewind.xds.pick import DECISION_HEADER, FIRST_HEADER

SECRET = "the quick brown fox keeps a secret "


def view(counter: int, cells: tuple[str, ...] = tuple(ADDRESSES)) -> GridView:
    return GridView(
        version=ViewVersion(control_id="c0", incarnation="i", counter=counter),
        cells=tuple(small(ready_cell(cell, ADDRESSES[cell], site=f"site-{cell}")) for cell in cells),
    )


def small(known: CellView) -> CellView:
    """The cell with a cache that a few prompts fill."""
    capabilities = replace(known.cell.capabilities, kv_capacity_tokens=4_000)
    return replace(known, cell=replace(known.cell, capabilities=capabilities))


def captured(state_dir: Path, *, policy: str = "cost", requests: int = 60, max_bytes: int = 2**24) -> Capture:
    """A desk that has lived through everything that a gateway tells one, in virtual time; what it wrote."""
    pick = PickConfig(policy=policy, capture="picks.ndjson", capture_max_bytes=max_bytes)
    section = GatewayConfig(id="gw", routing="pick", pick=pick)
    clock, chance = Clock(), random.Random(7)
    config = GridConfig(gateways=[section], state_dir=str(state_dir))
    desk = make_desk(config, section, clock=clock, rng=random.Random(1))
    assert desk is not None
    assert desk.capture is not None
    desk.observe_view(view(1), clock.now_s)
    desk.picker.set_unroutable(frozenset())
    sent: list[tuple[str, str]] = []
    for number in range(requests):
        clock.now_s += 0.05
        for cell in ADDRESSES:
            desk.picker.observe_path(PathReading(cell_id=cell, rtt_s=0.02 + 0.001 * chance.random()), clock.now_s)
        if number % 20 == 10:
            rows = [WeightRow(cell_id=cell, weight=100, drained=cell == "b" and number < 40) for cell in ADDRESSES]
            desk.tick(view(number, ("a", "b", "c") if number < 40 else ("a", "b")), rows, clock.now_s)
            cells = (CellLoad(cell_id="a", requests=3, waiting_tokens=4_000, decoding=1),)
            desk.observe_others([GatewayLoad(gateway_id="other", age_s=0.1, cells=cells)], clock.now_s)
        if number in (45, 50):
            desk.picker.set_unroutable(frozenset({"a"} if number == 45 else ()))
        content = f"{number % 7} {SECRET * (20 + number % 5 * 30)}"
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": content}]}
        first = {FIRST_HEADER: f"{sent[-1][1]}:12"} if sent else {}
        reply = ask(desk, body, **{"x-request-id": f"r{number}", **first})
        sent.append((f"r{number}", told(reply, DECISION_HEADER)))
        if len(sent) > 5:
            request_id, name = sent.pop(0)
            desk.on_outcome(
                Outcome(
                    request_id=request_id, cell_id=chance.choice(sorted(ADDRESSES)), model="m", status=200,
                    ttft_s=chance.uniform(0.05, 0.4), duration_s=0.6, prompt_tokens=900, cached_tokens=0,
                    completion_tokens=40, decision_id=name,
                ),
                clock.now_s,
            )  # fmt: skip
    desk.unheard(reply, clock.now_s)
    ask(desk, {"model": "nobody-serves-this", "messages": []})
    desk.capture.write(desk.capture.take())
    return desk.capture


def replayed(data: bytes) -> Replayed:
    return replay(*parse_capture(data))


@pytest.mark.parametrize("policy", ["cost", "gorgo:.5/.1", "cache_aware", "least_request:2", "random"])
def test_a_fresh_picker_decides_the_same(tmp_path: Path, policy: str) -> None:
    found = replay_file(captured(tmp_path, policy=policy).path)
    assert found.differences == []
    assert found.equal
    assert (found.decisions, found.refusals) == (60, 1)
    assert found.heard.keys() >= {"view", "path", "pressure", "others", "capacity"}
    assert found.heard.keys() >= {"first_token", "finished", "release", "expire"}


def test_near_ties_are_drawn_again(tmp_path: Path) -> None:
    found = replay_file(captured(tmp_path).path)
    assert found.drawn > 10


def test_no_text_of_a_prompt_is_in_a_capture(tmp_path: Path) -> None:
    assert b"quick brown" not in captured(tmp_path).path.read_bytes()


def changed(data: bytes, kind: str, edit: str, value: object) -> bytes:
    """The capture with one field of the last note of a kind changed."""
    lines = data.splitlines()
    place = max(number for number, line in enumerate(lines) if line.startswith(f'{{"kind":"{kind}"'.encode()))
    note = json.loads(lines[place])
    note["value"][int(edit) if edit.isdecimal() else edit] = value
    lines[place] = json.dumps(note).encode()
    return b"\n".join(lines) + b"\n"


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [("decision", "3", "z"), ("decision", "6", 0.5), ("decision", "7", 0.123), ("refusal", "message", "no")],
)
def test_a_decision_that_was_tampered_with_is_found(tmp_path: Path, kind: str, field: str, value: object) -> None:
    found = replayed(changed(captured(tmp_path).path.read_bytes(), kind, field, value))
    assert found.different == 1
    assert not found.equal


def test_an_input_that_was_left_out_is_found(tmp_path: Path) -> None:
    lines = captured(tmp_path).path.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if line.startswith(b'{"kind":"finished"'))
    found = replayed(b"".join(lines[:place] + lines[place + 1 :]))
    assert found.different > 0


KINDS = ("view", "path", "pressure", "others", "capacity", "unroutable", "first_token", "finished")


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_depend_on_every_kind_of_input(tmp_path: Path, kind: str) -> None:
    lines = captured(tmp_path).path.read_bytes().splitlines(keepends=True)
    begins = f'{{"kind":"{kind}"'.encode()
    assert replayed(b"".join(line for line in lines if not line.startswith(begins))).different > 0


def test_a_disk_that_refuses_ends_the_capture(tmp_path: Path) -> None:
    (tmp_path / "gateway-gw").write_text("a file where the folder should be")
    capture = captured(tmp_path, requests=8)
    assert "gateway-gw" in capture.ended


def test_another_seed_is_found(tmp_path: Path) -> None:
    begin, notes = read_capture(captured(tmp_path).path)
    other = replay(type(begin)(policy=begin.policy, seed=begin.seed + 1, settings=begin.settings), notes)
    assert other.different > 0


def test_a_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    data = captured(tmp_path).path.read_bytes()
    found = replayed(data[:-30])
    assert found.equal


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1: there is none"),
        (b'{"at":1}\n', "line 1: not the first line of a capture"),
        (b'{"format":"tradewind.capture/9","policy":"cost","seed":1,"settings":{}}\n', "line 1: format"),
        (b'{"format":"tradewind.capture/1","policy":"none","seed":1,"settings":{}}\n', "line 1: .*none"),
        (
            b'{"format":"tradewind.capture/1","policy":"a.py:B","seed":1,"settings":{}}\n',
            "line 1: it was decided by a.py",
        ),
    ],
)
def test_what_is_no_capture_is_told_by_its_line(data: bytes, says: str) -> None:
    with pytest.raises(CaptureError, match=says):
        replayed(data)


def test_a_broken_note_is_told_by_its_line(tmp_path: Path) -> None:
    lines = captured(tmp_path).path.read_bytes().splitlines(keepends=True)
    with pytest.raises(CaptureError, match="line 4: not a note"):
        replayed(b"".join([*lines[:3], b'{"kind":"view","now_s":1.0,"value":[]}\n', *lines[4:]]))
    with pytest.raises(CaptureError, match="does not follow"):
        replayed(b"".join([lines[0], *[line for line in lines if line.startswith(b'{"kind":"decision"')]]))


def test_a_capture_ends_at_its_bound(tmp_path: Path) -> None:
    capture = captured(tmp_path, max_bytes=20_000)
    assert capture.ended
    assert capture.path.stat().st_size < 25_000
    assert replay_file(capture.path).equal


def test_each_picker_begins_a_file_of_its_own(tmp_path: Path) -> None:
    first = captured(tmp_path, requests=8).path.read_bytes()
    second = captured(tmp_path, requests=9)
    assert second.path.with_suffix(".ndjson.1").read_bytes() == first
    assert replay_file(second.path).decisions == 9
