"""What policies for comparison share: the least of a measure, equals drawn at random."""

from collections.abc import Callable, Sequence

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell

Measured = Sequence[tuple[float, PickCell]]


def measured(cells: Sequence[PickCell], measure: Callable[[PickCell], float]) -> list[tuple[float, PickCell]]:
    """Cells with their measure, least first, then by id."""
    return sorted(((measure(cell), cell) for cell in cells), key=by_measure)


def by_measure(item: tuple[float, PickCell]) -> tuple[float, str]:
    """Order of a ranking."""
    return item[0], item[1].cell_id


def least(ask: Ask, ranked: Measured) -> Choice:
    """One of those that share the least measure, each with the same chance."""
    first = ranked[0][0]
    equals = sum(1 for value, _ in ranked if value == first)
    place = ask.rng.randrange(equals) if equals > 1 else 0
    return Choice(ranked, place, (1.0 / equals,) * equals)


def least_by(ask: Ask, cells: Sequence[PickCell], measure: Callable[[PickCell], float]) -> Choice:
    """The same, from a measure."""
    return least(ask, measured(cells, measure))


def among(cells: Sequence[PickCell], choice: Choice, ask: Ask) -> Choice:
    """A choice among some of the cells, followed by the rest with an infinite measure."""
    if len(choice.ranked) == len(ask.cells):
        return choice
    chosen = {cell.cell_id for cell in cells}
    rest = [(float("inf"), cell) for cell in ask.cells if cell.cell_id not in chosen]
    return Choice([*choice.ranked, *rest], choice.place, choice.chances)
