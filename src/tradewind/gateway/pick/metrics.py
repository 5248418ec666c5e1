"""The picker's state as Prometheus series; labels are cells, kinds of refusal and hardware classes, all bounded."""

from collections.abc import Callable, Iterator

from tradewind.gateway.families import MAX_CELLS, Family, counter, counters, gauge, gauges
from tradewind.gateway.status import PickCellRow, PickStatus

MAX_CLASSES = 64


def pick_families(pick: PickStatus) -> Iterator[Family]:
    """All families of a gateway that picks."""
    yield from _decisions(pick)
    yield from _bookkeeping(pick)
    yield from _tuner(pick)
    yield from _cells(pick)
    classes = pick.classes[:MAX_CLASSES]
    name, what = "pick_class", "found over the table of hardware classes, from calm requests"
    yield gauges(
        f"{name}_prefill_ratio", f"Prefill time {what}", "hardware", ((c.hardware, c.prefill_ratio) for c in classes)
    )
    yield gauges(
        f"{name}_decode_ratio", f"Decode time {what}", "hardware", ((c.hardware, c.decode_ratio) for c in classes)
    )


def _decisions(pick: PickStatus) -> Iterator[Family]:
    yield counter("pick_questions", "Requests that Envoy showed to the picker", pick.questions)
    yield counter("pick_decision_seconds", "Time spent on them", pick.seconds)
    yield counter("picks", "Requests for which a cell was picked", pick.picks)
    yield counter("pick_ties", "Picks drawn among cells of nearly the same cost", pick.ties)
    yield counter("pick_moved", "Requests served by another cell than was picked", pick.moved)
    yield counter("pick_late", "Picks that Envoy did not wait for", pick.late)
    yield counter("pick_left", "Requests that the picker left to the weights", pick.left)
    yield counter("pick_refused", "Requests that the picker refused with 400, 413, 422 or 429", pick.refused)
    yield counter(
        "pick_quarantines", "Requests under which so many engines died that their like is refused", pick.quarantines
    )
    yield counter("pick_faults", "Faults of the picker; the request went by the weights", pick.faults)
    what = "Requests picked by the weights, since the policy of a file failed"
    yield counter("pick_policy_failures", what, pick.policy_failures)
    yield counters("pick_refusals", "Why no cell was picked, by kind", "kind", sorted(pick.refusals.items()))


def _bookkeeping(pick: PickStatus) -> Iterator[Family]:
    yield gauge("pick_in_flight_requests", "Requests booked and not over", pick.in_flight)
    yield counter("pick_first_tokens", "First tokens told while the request ran", pick.first_tokens)
    yield counter("pick_outcomes", "Outcomes joined with their decision", pick.outcomes)
    yield counter("pick_foreign_outcomes", "Outcomes of decisions of an earlier process", pick.foreign)
    yield counter("pick_released", "Bookings released by their outcome", pick.released)
    yield counter("pick_expired", "Bookings released since no outcome came", pick.expired)
    yield counter("pick_unknown", "First tokens and outcomes without a booking", pick.unknown)
    yield gauge("pick_connections", "Connections of Envoy to the picker", pick.connections)
    yield counter("pick_broken_connections", "Connections closed for breaking a bound", pick.broken_connections)
    yield gauge("pick_index_blocks", "Blocks in the prefix index", pick.index_blocks)
    yield counter("pick_evicted_blocks", "Blocks that gave way to newer ones", pick.evicted_blocks)
    yield counter("pick_prompts_told", "Prompts, as hashes, told to other gateways with their cell", pick.prompts_told)
    yield counter("pick_prompts_heard", "Prompts heard of from other gateways", pick.prompts_heard)
    what = "Prompts that other gateways were not told of, since there were too many at once"
    yield counter("pick_prompts_untold", what, pick.prompts_untold)
    what = "Prompts heard of from other gateways that hash by another key: left out"
    yield counter("pick_prompts_strange", what, pick.prompts_strange)


def _tuner(pick: PickStatus) -> Iterator[Family]:
    if pick.tuner is not None:
        row = pick.tuner
        yield gauges("tuner_weight", "Weight of the tuner's order that picks follow", "weight", row.weights.items())
        child = (row.child or {}).items()
        yield gauges("tuner_child_weight", "Weight that is compared with it", "weight", child)
        yield gauge("tuner_child_share_ratio", "Share of requests that go by the child's weights", row.child_share)
        yield gauge("tuner_generation", "Number of the order that picks follow, of one driver", row.generation)
    what = "Finished requests told to a control's tuner"
    yield counters("tuner_samples_sent", what, "control", pick.samples_sent.items())


def _cells(pick: PickStatus) -> Iterator[Family]:
    cells = pick.cells[:MAX_CELLS]

    def rows(value: Callable[[PickCellRow], float | None]) -> list[tuple[str, float | None]]:
        return [(cell.cell_id, value(cell)) for cell in cells]

    name, label = "pick_cell", "cell"
    what = "In flight from here"
    yield gauges(f"{name}_in_flight_requests", what, label, rows(lambda cell: cell.in_flight))
    what = "Prompt tokens sent from here that wait for a first token, without what is cached"
    yield gauges(f"{name}_waiting_tokens", what, label, rows(lambda cell: cell.waiting_tokens))
    what = "Time to first token over what its hardware class should take, learned"
    yield gauges(f"{name}_slowness_ratio", what, label, rows(lambda cell: cell.slowness_ratio))
    what = "Prefill of a cold prompt on the cell when it does nothing else, as learned"
    yield gauges(f"{name}_prefill_tokens_per_second", what, label, rows(lambda cell: cell.prefill_tokens_per_s))
    what = "First tokens that have taught how slow the cell is"
    yield counters(f"{name}_first_tokens", what, label, ((c.cell_id, c.first_tokens) for c in cells))
    what = "Until a cell that asked for less is asked again"
    yield gauges(f"{name}_cooling_seconds", what, label, rows(lambda cell: cell.cooling_s or 0.0))
    what = "Requests so long are not sent, learned from refusals"
    yield gauges(f"{name}_learned_limit_tokens", what, label, rows(lambda cell: cell.learned_limit_tokens))
    what = "Prompt tokens expected in the prefix cache, of requests whose engine told"
    yield counters(f"{name}_predicted_hit_tokens", what, label, ((c.cell_id, c.predicted_hit_tokens) for c in cells))
    what = "Prompt tokens that the engine found in its prefix cache"
    yield counters(f"{name}_served_hit_tokens", what, label, ((c.cell_id, c.served_hit_tokens) for c in cells))
