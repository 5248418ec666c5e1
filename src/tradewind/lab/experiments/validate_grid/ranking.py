"""Whether two lists of figures put policies in the same order, where the first tells them apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`pairs`: that are told apart; `swapped`: of them, those that the other list has the other way round."""

    pairs: int
    swapped: int
    text: str  # the first list's order, best first


def ranking(first: Mapping[str, float], second: Mapping[str, float], *, apart: float) -> Order:
    """Lower is better. Two policies are told apart if the worse one has at least (1 + `apart`) times the better's."""
    known = sorted((name for name in first if name in second), key=lambda name: first[name])
    told = [(better, worse) for better, worse in combinations(known, 2) if first[worse] >= (1 + apart) * first[better]]
    swapped = sum(second[better] >= second[worse] for better, worse in told)
    return Order(pairs=len(told), swapped=swapped, text=" < ".join(known))
