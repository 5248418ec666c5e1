"""What a request would cost on each cell, in seconds: the published recipe, its terms, and the draw among near ties."""

from math import exp
from operator import itemgetter
from random import Random

from tradewind.core.pick.ask import Ask, Choice, Tail
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.rates import Rates
from tradewind.core.pick.settings import CostSettings
from tradewind.model.tuning import Weights

_COST = itemgetter(0)
CERTAIN = (1.0,)


class CostModel:
    """Recipe F. Formulas are section 1 of the pick study; `price` is the hot path, `terms` explains it.

    One is not the study's: a prefill delays also those who wait for their own first token. An engine puts prompts that
    wait into the same steps, up to its token budget, and their first tokens come together when the last one is through.
    """

    def __init__(self, settings: CostSettings) -> None:
        self._settings = settings
        self._own = Weights(settings.rtt_weight, settings.queue_weight)

    def price(self, ask: Ask) -> list[tuple[float, PickCell]]:
        """Cost of each cell of the ask, in its order. Keeps the parts of each in the ask, for `terms`."""
        s, now_s, matches = self._settings, ask.now_s, ask.matches
        output, extra, discount = ask.output_tokens, ask.others_weight, ask.discount
        prefill_weight, (rtt_weight, queue_weight) = s.prefill_weight, self._weights(ask)
        own, rest, shared = s.own_weight * output, s.others_weight, 0.5 * ask.load_output_tokens
        unknown_rtt_s, deepest, prompt = ask.unknown_rtt_s, ask.deepest, ask.prompt_tokens
        others_waiting = s.others_waiting
        tails, parts = ask.tails, ask.parts
        priced: list[tuple[float, PickCell]] = []
        for cell in ask.cells:
            work, rates = cell.work, cell.rates
            cell_id, prefill_factor = cell.cell_id, rates.prefill_factor
            depth = matches.get(cell_id, 0) if matches else 0
            tail = tails.get(depth << 8 | rates.number) or self._tail(ask, rates, depth)
            prefill_s = prefill_factor * (tail[0] * work.step_s + tail[1])
            if discount and depth < deepest:
                prefill_s -= (prefill_s - prefill_factor * (tail[2] * work.step_s + tail[3])) * discount
            slowness = work.slowness
            if now_s > slowness.stale_s:
                slowness.relax(now_s)
            factor = slowness.factor
            if rates.trials and not work.requests:
                factor = min(factor, s.trial_ratio)
            stall = factor
            queue_s = waiting = 0.0
            oldest = work.oldest
            if oldest is not None:
                queue_s = work.queued_s - (now_s - work.queued_at_s) * slowness.inverse
                if queue_s < work.floor_s:
                    queue_s = work.floor_s
                waiting = work.requests - work.decoding
                waited_s = now_s - oldest.starts_s
                if waited_s > oldest.patience_s:
                    stall = max(factor, min(s.overdue_max, waited_s / oldest.predicted_s))
            delayed, next_s = work.saturated, work.next_s
            if extra:
                queue_s += extra * cell.others_s
                others = extra * cell.others.decoding
                waiting += max(0.0, extra * cell.others.requests - others)  # a peer may say what cannot be
                delayed = _saturated(work.decoding + others, s.others_saturation)
                next_s += rates.decode_factor * rates.c_s * others
            delayed += others_waiting * waiting
            attend_s = rates.attend_s * prompt
            growth_s = shared * (work.growth_s + work.requests * attend_s)
            rtt_s = cell.rtt_s
            cost_s = (
                rtt_weight * (unknown_rtt_s if rtt_s is None else rtt_s)
                + rates.ingest_s
                + stall * (queue_weight * queue_s + prefill_weight * prefill_s)
                + factor * (own * (next_s + attend_s) + rest * (delayed * prefill_s + growth_s))
            )
            if work.tight:
                cost_s += cell.kv_penalty_s(s)
            parts[cell_id] = (queue_s, prefill_s, factor, stall, own * (next_s + attend_s), delayed, growth_s)
            priced.append((cost_s, cell))
        return priced

    def terms(self, ask: Ask, cell: PickCell) -> tuple[tuple[str, float], ...]:
        """The cost of a priced cell by its terms, which sum up to it."""
        s = self._settings
        queue_s, prefill_s, factor, stall, own_s, delayed, growth_s = ask.parts[cell.cell_id]
        rtt_weight, queue_weight = self._weights(ask)
        queue_s *= queue_weight
        shown_s = s.prefill_weight * prefill_s
        return (
            ("network", rtt_weight * ask.rtt_s(cell)),
            ("ingest", cell.rates.ingest_s),
            ("queue", factor * queue_s),
            ("prefill", factor * shown_s),
            ("stall", (stall - factor) * (queue_s + shown_s)),
            ("decode", factor * own_s),
            ("others", factor * s.others_weight * (delayed * prefill_s + growth_s)),
            ("kv", cell.kv_penalty_s(s)),
        )

    def prefill_s(self, ask: Ask, cell: PickCell) -> float:
        """Nominal prefill of the request on this cell, as the engine will have it: nothing amortised."""
        rates = cell.rates
        depth = ask.matches.get(cell.cell_id, 0) if ask.matches else 0
        tail = ask.tails.get(depth << 8 | rates.number) or self._tail(ask, rates, depth)
        return rates.prefill_factor * (tail.chunks * cell.work.step_s + tail.prompt_s)

    def queue_s(self, ask: Ask, cell: PickCell) -> float:
        """Nominal prefill work ahead of the request: our own and, by age, other gateways'."""
        return cell.work.backlog_s(ask.now_s) + ask.others_weight * cell.others_s

    def _weights(self, ask: Ask) -> Weights:
        return self._own if ask.weights is None else ask.weights

    @staticmethod
    def _tail(ask: Ask, rates: Rates, depth: int) -> Tail:
        uncached = ask.uncached(depth)
        chunks = rates.chunks(uncached)
        prompt_s = rates.prompt_s(uncached, ask.prompt_tokens, chunks)
        if not ask.discount or depth >= ask.deepest:
            tail = Tail(chunks, prompt_s, chunks, prompt_s)
        else:
            best = ask.uncached(ask.deepest)
            best_chunks = rates.chunks(best)
            tail = Tail(chunks, prompt_s, best_chunks, rates.prompt_s(best, ask.prompt_tokens, best_chunks))
        ask.tails[depth << 8 | rates.number] = tail
        return tail


class CostPolicy:
    """The cheapest cell, near ties drawn with known chances."""

    name = "cost"
    in_seconds = True

    def __init__(self, model: CostModel, settings: CostSettings) -> None:
        self._model = model
        self._settings = settings

    def choose(self, ask: Ask) -> Choice:
        """Draws among the cells within the window of the cheapest, by exp(-excess / temperature)."""
        ranked = sorted(self._model.price(ask), key=_COST)  # stable: equals stay in the order of their ids
        least_s = ranked[0][0]
        tie_s, window_s = self._settings.tie_s, self._settings.tie_window_s
        if len(ranked) == 1 or tie_s <= 0 or ranked[1][0] - least_s >= window_s:
            return Choice(ranked, 0, CERTAIN)
        chances: list[float] = []
        for cost_s, _ in ranked:
            excess_s = cost_s - least_s
            if excess_s >= window_s:
                break
            chances.append(exp(-excess_s / tie_s))
        place = _draw(chances, ask.rng)
        total = sum(chances)
        return Choice(ranked, place, tuple(chance / total for chance in chances))


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
