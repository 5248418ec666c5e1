"""Shares without dice: exact in every run of a hundred, whatever is pushed."""

from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest

from tradewind.core.lowdisc import CreditPick, GoldenPick

SHARES = (70, 20, 9, 1)


def excess(picks: list[str], shares: list[dict[str, float]], *, run: int = 100) -> float:
    """The most by which any cell exceeded its share in any `run` consecutive requests."""
    worst = 0.0
    for key in {key for share in shares for key in share}:
        ahead = [0.0]
        for picked, share in zip(picks, shares, strict=True):
            ahead.append(ahead[-1] + (picked == key) - share.get(key, 0.0))
        worst = max(worst, *(ahead[end] - ahead[end - run] for end in range(run, len(ahead))))
    return worst


def drive(pick: CreditPick, weights_at: Callable[[int], dict[str, int]], requests: int) -> float:
    picks, shares = [], []
    for index in range(requests):
        weights = weights_at(index)
        if index % 10 == 0:
            pick.update(weights)
        total = sum(pick.shares.values())
        shares.append({key: share / total for key, share in pick.shares.items()})
        picks.append(pick.pick())
    return excess(picks, shares)


@pytest.mark.parametrize("order", sorted(permutations(SHARES)))
def test_no_cell_gets_two_more_than_its_share_in_any_hundred(order: tuple[int, ...]) -> None:
    weights = {f"c{index}": weight for index, weight in enumerate(order)}
    assert drive(CreditPick(Random(1)), lambda _: weights, 2000) < 2.0


def test_within_a_point_over_two_thousand_requests() -> None:
    weights = {f"c{index}": weight for index, weight in enumerate(SHARES)}
    pick = CreditPick(Random(2))
    pick.update(weights)
    picks = [pick.pick() for _ in range(2000)]
    for key, weight in weights.items():
        assert abs(picks.count(key) / 2000 - weight / 100) < 0.01


@pytest.mark.parametrize("seed", range(8))
def test_shares_survive_pushes(seed: int) -> None:
    rng = Random(seed)
    keys = [f"c{index}" for index in range(rng.randint(2, 12))]
    base = {key: rng.randint(1, 134) for key in keys}
    pushes = [{key: max(1, round(base[key] * rng.uniform(0.9, 1.1))) for key in keys} for _ in range(200)]
    assert drive(CreditPick(Random(seed)), lambda index: pushes[index // 10], 2000) < 2.0


def test_cells_that_come_and_go_disturb_the_others_little() -> None:
    def weights_at(index: int) -> dict[str, int]:
        keys = ["c0", "c1", "c2", "c3"] if index // 200 % 2 else ["c0", "c1", "c3"]
        return dict.fromkeys(keys, 100)

    pick = CreditPick(Random(3))
    assert drive(pick, weights_at, 2000) < 2.5
    assert abs(sum(pick.credit.values())) < 1e-6
    assert set(pick.credit) == {"c0", "c1", "c2", "c3"}


def test_the_golden_ratio_is_kept_for_pools_too_large_to_walk() -> None:
    pick = GoldenPick()
    weights = {f"c{index}": 1 + index % 134 for index in range(1000)}
    pick.update(weights)
    picks = [pick.pick() for _ in range(20_000)]
    top = [key for key, weight in weights.items() if weight == 134]
    expected = sum(weights[key] for key in top) / sum(weights.values())
    assert sum(picks.count(key) for key in top) / 20_000 == pytest.approx(expected, rel=0.05)
