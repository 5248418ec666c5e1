"""The picker's part of the status document; reads only."""

from math import inf

from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.learned import learned_rate
from tradewind.gateway.pick.desk import PickDesk
from tradewind.gateway.pick.following import Following
from tradewind.gateway.pick.server import PickServer
from tradewind.gateway.status import PickCellRow, PickClassRow, PickStatus, TunerRow
from tradewind.model.tuning import TuningOrder


def pick_status(desk: PickDesk, server: PickServer, following: Following, *, now_s: float) -> PickStatus:
    """The state of this moment."""
    picker, counters, ledger = desk.picker, desk.counters, desk.picker.ledger
    return PickStatus(
        policy=picker.policy,
        questions=counters.questions,
        picks=picker.counters.picks,
        ties=picker.counters.ties,
        moved=picker.counters.moved,
        refused=counters.refused,
        left=counters.left,
        late=counters.late,
        faults=counters.faults,
        policy_failures=picker.counters.policy_failures,
        refusals={kind.value: count for kind, count in sorted(picker.counters.refusals.items())},
        first_tokens=counters.first_tokens,
        outcomes=counters.joined,
        foreign=counters.foreign,
        in_flight=len(ledger),
        released=ledger.released,
        expired=ledger.expired,
        unknown=ledger.unknown,
        seconds=desk.seconds,
        decision_us=desk.seconds / counters.questions * 1e6 if counters.questions else None,
        connections=len(server.connections),
        broken_connections=server.broken,
        index_blocks=len(desk.index),
        evicted_blocks=desk.index.evicted,
        prompts_told=desk.sharing.counters.told,
        prompts_heard=desk.sharing.counters.heard,
        prompts_untold=desk.index.untold,
        prompts_strange=desk.sharing.counters.strange,
        quarantines=desk.quarantine.incidents,
        quarantined=len(desk.quarantine),
        remembered=len(desk.memory),
        reach_s=desk.memory.reach_s(now_s),
        tuner=_order(following.order),
        samples_sent=dict(sorted(following.sent.items())),
        cells=[_cell(desk, cell, now_s) for cell in picker.fleet.cells()],
        classes=[
            PickClassRow(
                hardware=found.hardware,
                prefill_ratio=found.prefill,
                decode_ratio=found.decode,
                samples=found.samples,
                alert=found.alert,
            )
            for found in picker.teacher.calibration()
        ],
    )


def _order(order: TuningOrder | None) -> TunerRow | None:
    if order is None:
        return None
    return TunerRow(
        driver=order.driver,
        generation=order.generation,
        weights=order.weights._asdict(),
        child=order.child._asdict() if order.child is not None else None,
        child_share=order.child_share,
    )


def _cell(desk: PickDesk, cell: PickCell, now_s: float) -> PickCellRow:
    work, bound, rate = cell.work, cell.learned.bound, learned_rate(cell)
    return PickCellRow(
        cell_id=cell.cell_id,
        in_flight=work.requests,
        decoding=work.decoding,
        waiting_tokens=work.waiting_tokens,
        slowness_ratio=rate.slowness_ratio,
        prefill_tokens_per_s=rate.prefill_tokens_per_s,
        first_tokens=rate.first_tokens,
        cooling_s=cell.cooling_s - now_s if cell.cooling_s > now_s else None,
        learned_limit_tokens=None if bound == inf else int(bound),
        predicted_hit_tokens=cell.predicted_hit_tokens,
        served_hit_tokens=cell.served_hit_tokens,
        index_blocks=desk.index.blocks_of(cell.cell_id),
    )
