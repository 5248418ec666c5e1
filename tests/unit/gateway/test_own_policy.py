"""A policy from a file in a gateway: only where allowed, in its time, and never at the cost of a request."""

import random
import time
from pathlib import Path

from tests.support.own_policies import policy_at
from tests.unit.gateway.test_desk import CHAT, VIEW, Clock, ask, told
from tradewind.config.schema import GatewayConfig, GridConfig, PickConfig
from tradewind.gateway.pick.build import make_desk
from tradewind.gateway.pick.desk import PickDesk
from tradewind.gateway.pick.own import REST_S

LONG = {"model": "m", "messages": [{"role": "user", "content": "wind " * 4_000}]}


def desk(policy: str, *, allowed: bool = True, clock: Clock | None = None) -> PickDesk:
    section = GatewayConfig(id="gw", routing="pick", pick=PickConfig(policy=policy))
    grid = GridConfig(gateways=[section], allow_policy_files=allowed)
    made = make_desk(grid, section, clock=clock or Clock(), rng=random.Random(1))
    assert made is not None
    made.observe_view(VIEW, 100.0)
    return made


def test_a_policy_file_decides(tmp_path: Path) -> None:
    at = desk(policy_at(tmp_path, "return ask.cells[-1]"))
    assert {told(ask(at, CHAT), "x-tw-cell") for _ in range(5)} == {"10.0.0.3:80"}
    assert at.tick(VIEW, (), 101.0) == ()


def test_where_a_policy_raises_the_weights_pick_and_one_event_a_tick_tells(tmp_path: Path) -> None:
    at = desk(policy_at(tmp_path, "if ask.prompt_tokens > 1_000: raise KeyError('mast')", "return ask.cells[-1]"))
    cells = {told(ask(at, LONG), "x-tw-cell") for _ in range(6)}
    assert len(cells) == 3  # the weights are equal, and shared out in turn
    assert told(ask(at, CHAT), "x-tw-cell") == "10.0.0.3:80"
    assert at.counters.left == at.counters.faults == 0
    assert at.picker.counters.policy_failures == 6
    (event,) = at.tick(VIEW, (), 101.0)
    assert event.name == "pick.policy_failed"
    assert event.detail.startswith("6 x: ")
    assert event.detail.endswith("mine.py:Mine line 14 raised KeyError: 'mast'")
    assert at.tick(VIEW, (), 102.0) == ()


def test_a_policy_that_does_not_end_is_interrupted_and_left_alone_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    lines = (
        "while ask.prompt_tokens > 1_000:",
        "    try: SEEN.append(1) if len(SEEN) < 9 else None",
        "    except Exception: pass",
        "return ask.cells[-1]",
    )
    at = desk(policy_at(tmp_path, *lines), clock=clock)
    begin_s = time.monotonic()
    assert ask(at, LONG).status == 200
    assert time.monotonic() - begin_s < 5.0
    assert "took longer than 0.05 s" in at.picker.last_failure
    for _ in range(6):  # it would answer these, but who knows
        ask(at, CHAT)
    assert at.picker.counters.policy_failures == 7
    clock.now_s += REST_S + 1.0
    assert told(ask(at, CHAT), "x-tw-cell") == "10.0.0.3:80"
    assert at.picker.counters.policy_failures == 7


def test_a_file_that_is_not_allowed_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n\n\nclass Mine:\n    def choose(self, ask): ...\n")
    at = desk(f"{path}:Mine", allowed=False)
    assert ask(at, CHAT).status == 200
    assert "does not say allow_policy_files: true" in at.picker.last_failure
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_gone_or_broken_leaves_all_to_the_weights(tmp_path: Path) -> None:
    for written, why in ((f"{tmp_path}/none.py:Mine", "cannot be read"), (policy_at(tmp_path, "return ("), "line")):
        at = desk(written)
        assert ask(at, CHAT).status == 200
        assert at.picker.counters.policy_failures == 1
        assert why in at.picker.last_failure
