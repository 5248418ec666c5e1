"""A policy of one's own in a real gateway behind a real Envoy: it decides, and what it does wrong costs no request."""

from pathlib import Path

from tests.support.own_policies import policy_at
from tests.support.pick_fleet import pick_fleet, picked

RAISES, HANGS = "wind " * 6_000, "wind " * 12_000  # some 6,000 and 12,000 tokens


def test_a_policy_file_decides_and_its_failures_go_by_the_weights(tmp_path: Path) -> None:
    policy = policy_at(
        tmp_path,
        "if ask.prompt_tokens > 9_000:",
        "    while True: pass",
        "if ask.prompt_tokens > 4_000:",
        "    raise RuntimeError('out of wind')",
        "return ask.cells[-1]",
    )
    with pick_fleet(tmp_path, policy=policy, timeout_s=1.0) as fleet:
        assert {picked(fleet.ask(f"{number}")) for number in range(6)} == {"c"}
        long = [fleet.ask(f"{number} {RAISES}") for number in range(6)]
        assert {answer.status for answer in long} == {200}
        assert {"a", "b"} & {picked(answer) for answer in long}  # a weight may still be small
        assert "by pressure" in long[0].headers["tradewind-reason"]
        assert fleet.ask(HANGS).status == 200
        assert fleet.ask("the picker is alive").status == 200
        fleet.rig.until(lambda: ("pick.policy_failed", None) in fleet.rig.events())
        assert b"tradewind_gateway_pick_policy_failures_total" in fleet.rig.page("/metrics")
