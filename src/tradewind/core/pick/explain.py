"""Why this cell and not the next: the cheapest cells with the terms of their costs."""

from tradewind.core.pick.ask import Ask, Choice, Policy
from tradewind.core.pick.cost import CostModel
from tradewind.model.decision import Candidate


def candidates(ask: Ask, choice: Choice, model: CostModel, policy: Policy, most: int) -> tuple[Candidate, ...]:
    """The cheapest, and the chosen one in any case; none if `most` is 0. Terms are those of the cost in seconds."""
    if not most:
        return ()
    ranked, chances, seconds = choice.ranked, choice.chances, policy.in_seconds
    places = list(range(min(most, len(ranked))))
    if choice.place >= len(places):
        places[-1] = choice.place
    found = []
    for place in places:
        cost, cell = ranked[place]
        terms = model.terms(ask, cell) if seconds else ((policy.name, cost),)
        chance = chances[place] if place < len(chances) else 0.0
        matched, slowness = ask.matched(cell), cell.work.slowness.factor
        found.append(Candidate(cell.cell_id, cell.address, cost, terms, matched, slowness, chance))
    return tuple(found)
