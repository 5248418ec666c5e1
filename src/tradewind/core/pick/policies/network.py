"""Policies that know distance: GORGO's linear cost, SkyWalker's local-first balancing."""

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.policies.affinity import best_match
from tradewind.core.pick.policies.ranking import among, least_by
from tradewind.model.tuning import Weights


class Gorgo:
    """W_rtt * RTT + W_queue * b * (full prompt tokens in flight) + b * (uncached tokens), b per token of the class.

    The option is "W_rtt/W_queue": .5/.1 is where its tuner starts, .276/.5 what it learned. Work is released at the
    end of the request. An order of a tuner replaces both weights. Equals are drawn, the original takes the first.
    """

    in_seconds = False

    def __init__(self, option: str) -> None:
        rtt, _, queue = option.partition("/")
        try:
            self._weights = Weights(float(rtt), float(queue))
        except ValueError:
            raise ValueError(f"gorgo takes RTT weight/queue weight, e.g. gorgo:.5/.1, not {option!r}") from None
        self.name = f"gorgo:{option}"

    def choose(self, ask: Ask) -> Choice:
        return least_by(ask, ask.cells, lambda cell: self._cost_s(ask, cell))

    def _cost_s(self, ask: Ask, cell: PickCell) -> float:
        weights = self._weights if ask.weights is None else ask.weights
        uncached = ask.prompt_tokens - ask.matched(cell)
        return weights.rtt * ask.rtt_s(cell) + cell.rates.b_s * (weights.queue * cell.work.prompt_tokens + uncached)


class Skywalker:
    """Local cells first; one with nothing pending takes the request; else one hop to a site that is no busier.

    A site's queue is the sum of its cells' pending requests. A peer site is available if its queue is at most ours and
    at most 10 and it has an available cell. Within a site: the best match if it covers half of the prompt, else the
    fewest in flight. When no site is available, the local cell with the fewest pending takes it.

    That is selective pushing. The option "blind" is its counterpart: the local cells take everything, whatever is
    pending there.
    """

    in_seconds = False
    match_ratio = 0.5
    most_queued = 10

    def __init__(self, option: str, site: str) -> None:
        if option not in ("", "blind"):
            raise ValueError(f"skywalker takes blind or nothing, not {option!r}")
        self.name = "skywalker:blind" if option else "skywalker"
        self._blind = bool(option)
        self._site = site

    def choose(self, ask: Ask) -> Choice:
        sites: dict[str, list[PickCell]] = {}
        for cell in ask.cells:
            sites.setdefault(cell.site, []).append(cell)
        nearest = min(ask.cells, key=lambda cell: (ask.rtt_s(cell), cell.cell_id))
        home = self._site if self._site in sites else nearest.site
        local = sites[home]
        if self._blind:
            return among(local, self._within(ask, local), ask)
        cells = [cell for cell in local if not _pending(ask, cell)]
        if not cells:
            cells = self._peer(ask, sites, home)
        if cells:
            return among(cells, self._within(ask, cells), ask)
        return among(local, least_by(ask, local, lambda cell: _pending(ask, cell)), ask)

    def _peer(self, ask: Ask, sites: dict[str, list[PickCell]], home: str) -> list[PickCell]:
        queues = {site: sum(_pending(ask, cell) for cell in cells) for site, cells in sites.items()}
        open_sites = [
            [cell for cell in sites[site] if not _pending(ask, cell)]
            for site in sorted(sites)
            if site != home and queues[site] <= min(queues[home], self.most_queued)
        ]
        open_sites = [cells for cells in open_sites if cells]
        if not open_sites:
            return []
        match = max(best_match(ask, cells) for cells in open_sites)
        if match >= self.match_ratio * ask.prompt_tokens:
            return next(cells for cells in open_sites if best_match(ask, cells) == match)
        return min(open_sites, key=lambda cells: min(ask.load(cell) for cell in cells))

    def _within(self, ask: Ask, cells: list[PickCell]) -> Choice:
        match = best_match(ask, cells)
        if match >= self.match_ratio * ask.prompt_tokens:
            return least_by(ask, cells, lambda cell: ask.prompt_tokens - ask.matched(cell))
        return least_by(ask, cells, ask.load)


def _pending(ask: Ask, cell: PickCell) -> float:
    """Requests not yet in the batch: what waits here for a first token, or what the engine says, whichever is more."""
    return max(float(cell.work.waiting), cell.queue_requests or 0.0)
