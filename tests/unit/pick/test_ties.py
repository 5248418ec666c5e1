"""Near ties: drawn with the chance that is logged, whatever the order of the cells (FC-53)."""

import subprocess
import sys
from math import exp
from random import Random

import pytest

from tests.unit.pick.fakes import cell_view, outcome, picked, picker, request, shares
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import CostSettings, PickSettings

CELLS = ("a", "b", "c")


def drawn(made: Picker, times: int, rng: Random) -> list[str]:
    """Who is picked for requests that come and go one at a time."""
    found = []
    for turn in range(times):
        decision = picked(made, request(200), now_s=10.0 * turn, rng=rng)
        made.finished(decision.decision_id, outcome(decision), 10.0 * turn + 1)
        found.append(decision.cell_id)
    return found


@pytest.mark.parametrize("cells", [CELLS, CELLS[::-1]])
def test_equals_share_equally_whatever_their_order(cells: tuple[str, ...]) -> None:
    got = shares(drawn(picker(*map(cell_view, cells)), 3_000, Random(3)))
    assert set(got) == set(CELLS)
    assert all(abs(share - 1 / 3) < 0.1 / 3 for share in got.values())


def test_the_order_of_cells_changes_no_decision() -> None:
    one = drawn(picker(*map(cell_view, CELLS)), 50, Random(3))
    assert one == drawn(picker(*map(cell_view, CELLS[::-1])), 50, Random(3))


def test_the_logged_chance_is_the_softmax_within_the_window() -> None:
    made = picker(*map(cell_view, "abcd"), rtts_s={"a": 0.010, "b": 0.020, "c": 0.089, "d": 0.091})
    decision = picked(made, request(200))
    weights = [1.0, exp(-1.0), exp(-7.9)]
    chances = [candidate.probability for candidate in decision.candidates]
    assert chances == pytest.approx([weight / sum(weights) for weight in weights] + [0.0])
    chosen = next(c for c in decision.candidates if c.cell_id == decision.cell_id)
    assert decision.probability == chosen.probability


def test_frequencies_agree_with_the_logged_chances() -> None:
    made = picker(*map(cell_view, "ab"), rtts_s={"a": 0.010, "b": 0.018})
    got = shares(drawn(made, 3_000, Random(5)))
    assert got["b"] == pytest.approx(exp(-0.8) / (1 + exp(-0.8)), abs=0.03)
    assert made.counters.ties == made.counters.picks == 3_000


def test_without_temperature_the_cheapest_wins() -> None:
    settings = PickSettings(cost=CostSettings(tie_s=0.0))
    made = picker(*map(cell_view, "ab"), rtts_s={"a": 0.011}, settings=settings)
    decision = picked(made, request())
    assert (decision.cell_id, decision.probability) == ("b", 1.0)


def test_the_chosen_one_is_always_among_the_candidates() -> None:
    made = picker(*(cell_view(f"c{number:02}") for number in range(40)))
    for seed in range(60):
        decision = picked(made, request(5), now_s=1e4 * seed, rng=Random(seed))
        assert decision.cell_id in [candidate.cell_id for candidate in decision.candidates]
        assert decision.cell_id not in decision.alternatives
        assert len(decision.candidates) == 4
        made.finished(decision.decision_id, outcome(decision), 1e4 * seed + 1)


SCRIPT = """
from random import Random
from tests.unit.pick.fakes import blocks, cell_view, outcome, picked, picker, request
for policy in ("cost", "session_affinity", "skywalker", "cache_aware"):
    made, rng = picker(*map(cell_view, "abcde"), policy=policy), Random(7)
    for turn in range(60):
        ask = request(512, blocks=blocks(turn % 7, 1, turn % 3, 2), block_tokens=128.0)
        decision = picked(made, ask, now_s=0.1 * turn, rng=rng)
        if turn % 3:
            made.finished(decision.decision_id, outcome(decision), 0.1 * turn + 0.05)
        print(decision.cell_id, round(decision.cost_s, 9), decision.probability)
"""


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    runs = set()
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": "src:."}
        runs.add(subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, check=True).stdout)
    assert len(runs) == 1
    assert len(runs.pop().splitlines()) == 240
