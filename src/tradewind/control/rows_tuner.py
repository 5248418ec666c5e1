"""The tuner as documents of the admin API."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Self

from tradewind.control import api
from tradewind.core.tuner.answer import Answer
from tradewind.core.tuner.power import spread_of
from tradewind.core.tuner.switchback import Check, Switchback
from tradewind.core.tuner.tuner import TunerEvent
from tradewind.model.tuning import Sample, Weights

if TYPE_CHECKING:
    from tradewind.control.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSeen:
    """A check as it stands."""

    check: Check
    requests: int
    heard: int
    running: bool
    answer: Answer | None

    @classmethod
    def of(cls, checker: Switchback) -> Self:
        """As it stands now."""
        return cls(
            check=checker.check,
            requests=checker.requests,
            heard=checker.heard,
            running=not checker.frozen,
            answer=checker.answer,
        )


def tuner_row(tuning: "Tuning", *, now_s: float) -> api.TunerRow:
    """The tuner and the order in force."""
    order, box, counters = tuning.order, tuning.plan.box, tuning.counters
    return api.TunerRow(
        kind=tuning.plan.kind,
        driver=order.driver if order is not None else "",
        generation=order.generation if order is not None else None,
        weights=weights_row(order.weights) if order is not None else None,
        child=weights_row(order.child) if order is not None and order.child is not None else None,
        child_share=order.child_share if order is not None else 0.0,
        frozen=tuning.frozen,
        checking=tuning.check is not None and tuning.check.running,
        problem=tuning.problem,
        start=weights_row(tuning.plan.start),
        box=api.TunerBoxRow(rtt=list(box.rtt), queue=list(box.queue), most_ratio=box.most_ratio),
        samples=counters.samples,
        samples_of_others=counters.of_others,
        samples_lost=counters.lost,
        sample_age_s=None if tuning.heard_s is None else now_s - tuning.heard_s,
        requests_per_s=_rate_per_s(tuning.recent),
        spread=_spread_row(tuning.recent),
        learn_worst_s=counters.learn_worst_s,
        events=dict(sorted(tuning.happened.items())),
    )


def check_row(seen: CheckSeen) -> api.CheckRow:
    """A check and what it has shown."""
    answer = seen.answer
    return api.CheckRow(
        present=weights_row(seen.check.present),
        other=weights_row(seen.check.other),
        requests=seen.requests,
        heard=seen.heard,
        running=seen.running,
        answer=None
        if answer is None
        else api.AnswerRow(
            told=answer.told,
            winner=answer.winner,
            failed_present=answer.failed_present,
            failed_other=answer.failed_other,
            estimates=[api.EstimateRow(**estimate._asdict()) for estimate in answer.estimates],
        ),
    )


def event_row(event: TunerEvent, *, sequence: int, at_unix_s: float) -> api.TunerEventRow:
    """A line of history."""
    return api.TunerEventRow(
        sequence=sequence,
        at_unix_s=at_unix_s,
        what=event.what.value,
        generation=event.generation,
        weights=weights_row(event.weights),
        child=weights_row(event.child) if event.child is not None else None,
        reason=event.reason,
        figures={name: value for name, value in event.figures if isfinite(value)},
    )


def weights_row(weights: Weights) -> api.WeightsRow:
    """As a document."""
    return api.WeightsRow(rtt=weights.rtt, queue=weights.queue)


def _rate_per_s(recent: Sequence[Sample]) -> float | None:
    """Of finished requests; None before there are two."""
    span_s = recent[-1].finished_s - recent[0].finished_s if len(recent) > 1 else 0.0
    return (len(recent) - 1) / span_s if span_s > 0.0 else None


def _spread_row(recent: Sequence[Sample]) -> api.SpreadRow | None:
    spread = spread_of(recent)
    return api.SpreadRow(**spread._asdict()) if spread is not None else None
