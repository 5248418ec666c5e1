"""What a request would cost on each cell, in seconds: the published recipe, its terms, and the draw among near ties."""

from math import exp
from random import Random
from typing import NamedTuple

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.rates import Rates
from tradewind.core.pick.settings import CostSettings


class Tail(NamedTuple):
    """The part of a prefill that depends on class and match alone: chunks and seconds, cold and best possible."""

    chunks: int
    prompt_s: float
    best_chunks: int
    best_prompt_s: float


class CostModel:
    """Recipe F. Every formula in here is section 1 of the pick study; `price` is the hot path, `terms` explains it."""

    def __init__(self, settings: CostSettings) -> None:
        self._settings = settings

    def price(self, ask: Ask) -> list[tuple[float, PickCell]]:
        """Cost of each cell of the ask, in its order."""
        s, now_s, matches = self._settings, ask.now_s, ask.matches
        prompt, output, load, extra = ask.prompt_tokens, ask.output_tokens, ask.load_output_tokens, ask.others_weight
        prefill_weight, rtt_weight, queue_weight = s.prefill_weight, s.rtt_weight, s.queue_weight
        own, rest = s.own_weight * output, s.others_weight
        shared = 0.5 * load
        running_cap, kv_start = s.max_running, s.kv_start_ratio
        discount = ask.discount
        tails: dict[int, Tail] = {}
        priced: list[tuple[float, PickCell]] = []
        for cell in ask.cells:
            work, rates = cell.work, cell.rates
            depth = matches.get(cell.cell_id, 0) if matches else 0
            key = depth << 8 | rates.number
            tail = tails.get(key)
            if tail is None:
                tail = tails[key] = self._tail(ask, rates, depth)
            prefill_s = rates.prefill_factor * (tail.chunks * work.step_s + tail.prompt_s)
            if discount and depth < ask.deepest:
                best_s = rates.prefill_factor * (tail.best_chunks * work.step_s + tail.best_prompt_s)
                prefill_s -= (prefill_s - best_s) * discount
            slowness = work.slowness
            if now_s > slowness.stale_s:
                slowness.relax(now_s)
            factor = slowness.factor
            oldest = work.oldest
            queue_s = 0.0
            stall = factor
            if oldest is not None:
                queue_s = work.backlog_s(now_s)
                waited_s = now_s - oldest.starts_s
                if waited_s > oldest.patience_s:
                    stall = max(factor, min(s.overdue_max, waited_s / oldest.predicted_s))
            saturated, next_s = work.saturated, work.next_s
            if extra:
                queue_s += extra * cell.others_s
                others = extra * cell.others.decoding
                saturated = _saturated(work.decoding + others, s.others_saturation)
                next_s += rates.c_s * others
            decode_s = rates.decode_factor * rates.d_s * prompt
            cost_s = (
                rtt_weight * ask.rtt_s(cell)
                + rates.ingest_s
                + stall * (queue_weight * queue_s + prefill_weight * prefill_s)
                + factor
                * (
                    own * (next_s + decode_s)
                    + rest * (saturated * prefill_s + shared * work.requests * (work.more_s + decode_s))
                )
            )
            if work.need_tokens > kv_start * cell.kv_capacity_tokens or work.requests >= running_cap:
                cost_s += cell.kv_penalty_s(s)
            priced.append((cost_s, cell))
        return priced

    def terms(self, ask: Ask, cell: PickCell) -> tuple[tuple[str, float], ...]:
        """The same cost by its terms, which sum up to it."""
        s, work, rates = self._settings, cell.work, cell.rates
        prefill_s = self.prefill_s(ask, cell, amortised=True)
        factor = work.slowness.factor
        others = ask.others_weight * cell.others.decoding
        queue_s = self.queue_s(ask, cell)
        engine_s = s.queue_weight * queue_s + s.prefill_weight * prefill_s
        stall = self._stall(ask, cell)
        saturated = _saturated(work.decoding + others, s.others_saturation)
        decode_s = rates.decode_factor * rates.d_s * ask.prompt_tokens
        growth_s = 0.5 * ask.load_output_tokens * work.requests * (work.more_s + decode_s)
        own_s = ask.output_tokens * (work.next_s + rates.c_s * others + decode_s)
        return (
            ("network", s.rtt_weight * ask.rtt_s(cell)),
            ("ingest", rates.ingest_s),
            ("queue", factor * s.queue_weight * queue_s),
            ("prefill", factor * s.prefill_weight * prefill_s),
            ("stall", (stall - factor) * engine_s),
            ("decode", factor * s.own_weight * own_s),
            ("others", factor * s.others_weight * (saturated * prefill_s + growth_s)),
            ("kv", cell.kv_penalty_s(s)),
        )

    def prefill_s(self, ask: Ask, cell: PickCell, *, amortised: bool) -> float:
        """Nominal prefill of the request on this cell; `amortised`: as a hot prefix is priced."""
        depth = ask.matches.get(cell.cell_id, 0) if ask.matches else 0
        tail = self._tail(ask, cell.rates, depth)
        step_s = cell.work.step_s
        prefill_s = cell.rates.prefill_factor * (tail.chunks * step_s + tail.prompt_s)
        if amortised and ask.discount and depth < ask.deepest:
            best_s = cell.rates.prefill_factor * (tail.best_chunks * step_s + tail.best_prompt_s)
            prefill_s -= (prefill_s - best_s) * ask.discount
        return prefill_s

    def queue_s(self, ask: Ask, cell: PickCell) -> float:
        """Nominal prefill work ahead of the request: our own and, by age, other gateways'."""
        return cell.work.backlog_s(ask.now_s) + ask.others_weight * cell.others_s

    def _stall(self, ask: Ask, cell: PickCell) -> float:
        """The factor on queue and prefill: slowness, or more while a first token is overdue (recipe 1.4)."""
        oldest, factor = cell.work.oldest, cell.work.slowness.factor
        if oldest is None:
            return factor
        waited_s = ask.now_s - oldest.starts_s
        if waited_s <= oldest.patience_s:
            return factor
        return max(factor, min(self._settings.overdue_max, waited_s / oldest.predicted_s))

    @staticmethod
    def _tail(ask: Ask, rates: Rates, depth: int) -> Tail:
        uncached = ask.uncached(depth)
        chunks = rates.chunks(uncached)
        prompt_s = rates.prompt_s(uncached, ask.prompt_tokens, chunks)
        if not ask.discount or depth >= ask.deepest:
            return Tail(chunks, prompt_s, chunks, prompt_s)
        best = ask.uncached(ask.deepest)
        best_chunks = rates.chunks(best)
        return Tail(chunks, prompt_s, best_chunks, rates.prompt_s(best, ask.prompt_tokens, best_chunks))


class CostPolicy:
    """The cheapest cell, near ties drawn with known chances."""

    name = "cost"
    in_seconds = True

    def __init__(self, model: CostModel, settings: CostSettings) -> None:
        self._model = model
        self._settings = settings

    def choose(self, ask: Ask) -> Choice:
        """Draws among the cells within the window of the cheapest, by exp(-excess / temperature)."""
        ranked = sorted(self._model.price(ask), key=_by_cost)
        least_s = ranked[0][0]
        chances: list[float] = []
        for cost_s, _ in ranked:
            excess_s = cost_s - least_s
            if chances and excess_s >= self._settings.tie_window_s:
                break
            chances.append(exp(-excess_s / self._settings.tie_s) if self._settings.tie_s > 0 else float(not chances))
        place = _draw(chances, ask.rng) if len(chances) > 1 else 0
        total = sum(chances)
        return Choice(ranked, place, tuple(chance / total for chance in chances))


def _by_cost(priced: tuple[float, PickCell]) -> tuple[float, str]:
    return priced[0], priced[1].cell_id


def _draw(chances: list[float], rng: Random) -> int:
    """An index with these relative chances."""
    left = rng.random() * sum(chances)
    for place, chance in enumerate(chances):
        left -= chance
        if left < 0.0:
            return place
    return len(chances) - 1


def _saturated(decoding: float, saturation: float) -> float:
    return decoding / (1.0 + decoding / saturation)
