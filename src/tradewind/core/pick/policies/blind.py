"""Policies that know at most how many requests are in flight: random, round robin, least request."""

from math import comb

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.policies.ranking import measured

MAX_MODELS = 1_024  # with a turn of their own


class RandomCell:
    """Any cell, all with the same chance."""

    name = "random"
    in_seconds = False

    def choose(self, ask: Ask) -> Choice:
        count = len(ask.cells)
        return Choice([(0.0, cell) for cell in ask.cells], ask.rng.randrange(count), (1.0 / count,) * count)


class RoundRobin:
    """The next cell by id after the one that had the last request for the model."""

    name = "round_robin"
    in_seconds = False

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def choose(self, ask: Ask) -> Choice:
        model = ask.request.model
        last = self._last.get(model, "")
        cell = next((cell for cell in ask.cells if cell.cell_id > last), ask.cells[0])
        if model in self._last or len(self._last) < MAX_MODELS:
            self._last[model] = cell.cell_id
        after = [other for other in ask.cells if other.cell_id > cell.cell_id]
        before = [other for other in ask.cells if other.cell_id < cell.cell_id]
        return Choice([(float(turn), c) for turn, c in enumerate([cell, *after, *before])], 0, (1.0,))


class LeastRequest:
    """The fewest in flight among so many cells drawn without replacement ("2", as Envoy does), or among all ("N")."""

    in_seconds = False

    def __init__(self, option: str) -> None:
        self._count = 0 if option.upper() == "N" else int(option) if option.isdigit() else -1
        if self._count < 0 or option == "0":
            raise ValueError(f"least_request takes a number of choices or N, not {option!r}")
        self.name = f"least_request:{option.upper()}"

    def choose(self, ask: Ask) -> Choice:
        ranked = measured(ask.cells, ask.load)
        total = len(ranked)
        count = min(self._count or total, total)
        drawn = sorted(ask.rng.sample(range(total), count))
        fewest = ranked[drawn[0]][0]
        equals = [place for place in drawn if ranked[place][0] == fewest]
        place = equals[ask.rng.randrange(len(equals))] if len(equals) > 1 else equals[0]
        chances = _chances([load for load, _ in ranked], count)
        return Choice(ranked, place, tuple(chance for chance in chances if chance))


def _chances(loads: list[float], drawn: int) -> list[float]:
    """Of each cell, given how many have more and as much to do: sum over how many equals are drawn with it."""
    total = comb(len(loads), drawn)
    found: dict[float, float] = {}
    for load in loads:
        if load not in found:
            more = sum(1 for other in loads if other > load)
            equal = sum(1 for other in loads if other == load) - 1
            ways = sum(comb(equal, others) * comb(more, drawn - 1 - others) / (others + 1) for others in range(drawn))
            found[load] = ways / total
    return [found[load] for load in loads]
