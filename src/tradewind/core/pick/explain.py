"""Why this cell and not the next: the handful of candidates and one line for people."""

from tradewind.core.pick.ask import Ask, Choice, Policy
from tradewind.core.pick.cost import CostModel
from tradewind.model.decision import Candidate

SHOWN_TERMS = 3


def candidates(ask: Ask, choice: Choice, model: CostModel, policy: Policy, most: int) -> tuple[Candidate, ...]:
    """The cheapest, and the chosen one in any case. Terms are those of the cost in seconds."""
    places = list(range(min(most, len(choice.ranked))))
    if choice.place >= len(places):
        places[-1] = choice.place
    chances = choice.chances
    found = []
    for place in places:
        cost, cell = choice.ranked[place]
        found.append(
            Candidate(
                cell_id=cell.cell_id,
                address=cell.address,
                cost_s=cost,
                terms=model.terms(ask, cell) if policy.in_seconds else ((policy.name, cost),),
                matched_tokens=ask.matched(cell),
                slowness=cell.work.slowness.factor,
                probability=chances[place] if place < len(chances) else 0.0,
            )
        )
    return tuple(found)


def reason(choice: Choice, shown: tuple[Candidate, ...], policy: Policy) -> str:
    """One line."""
    _, cell = choice.ranked[choice.place]
    if len(choice.ranked) == 1:
        return f"{cell.cell_id}: the only cell that may serve it"
    chosen = next(candidate for candidate in shown if candidate.cell_id == cell.cell_id)
    if not policy.in_seconds:
        return f"{cell.cell_id}: by {policy.name} ({chosen.cost_s:g})"
    largest = sorted(chosen.terms, key=_by_size)[:SHOWN_TERMS]
    parts = ", ".join([f"{name} {seconds * 1e3:.0f}" for name, seconds in largest if seconds])
    other = next(candidate for candidate in shown if candidate is not chosen)
    drawn = f"; drawn among {len(choice.chances)}" if len(choice.chances) > 1 else ""
    gap_ms = (other.cost_s - chosen.cost_s) * 1e3
    return f"{cell.cell_id}: {chosen.cost_s * 1e3:.0f} ms ({parts}); {other.cell_id} {gap_ms:+.0f} ms{drawn}"


def _by_size(term: tuple[str, float]) -> float:
    return -abs(term[1])
