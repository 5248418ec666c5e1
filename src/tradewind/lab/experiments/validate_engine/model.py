"""A measured run given to the simulator's engine: the same arrivals and lengths, in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tradewind.engine.profiles import Profile
from tradewind.engine.scheduler import EngineLimits
from tradewind.engine.sequence import Sequence as EngineSequence
from tradewind.engine.sequence import SequenceRequest
from tradewind.lab.experiments.validate_engine.cases import Case
from tradewind.lab.experiments.validate_engine.ranks import Times, run_together
from tradewind.sim.cell import CellEvents, SimCell
from tradewind.sim.loop import EventLoop
from tradewind.sim.scenario import CellSpec
from tradewind.workload.measured import MeasuredRequest

_END_S = 1e5


def simulated(
    case: Case, requests: Sequence[MeasuredRequest], *, profile: Profile, ahead: bool = True
) -> list[MeasuredRequest]:
    """The requests with the times that the model gives them."""
    limits = replace(case.limits, schedules_ahead=ahead)
    if case.ranks > 1:
        times = run_together(requests, ranks=case.ranks, profile=profile, limits=limits, experts=case.experts)
    else:
        times = _run_alone(requests, profile=profile, limits=limits)
    return [
        replace(asked, first_token_s=times.first_s[number], last_token_s=times.last_s[number])
        for number, asked in enumerate(requests)
    ]


def _run_alone(requests: Sequence[MeasuredRequest], *, profile: Profile, limits: EngineLimits) -> Times:
    loop, times = EventLoop(), Times({}, {})

    def on_first(sequence: EngineSequence) -> None:
        times.first_s[sequence.request.seq_id] = loop.now_s

    def on_last(sequence: EngineSequence) -> None:
        times.last_s[sequence.request.seq_id] = loop.now_s

    spec = CellSpec(cell_id="engine", site="", profile=profile, limits=limits)
    cell = SimCell(spec=spec, loop=loop, tell=CellEvents(first=on_first, last=on_last))
    for number, asked in enumerate(requests):
        request = SequenceRequest(seq_id=number, prompt_tokens=asked.prompt_tokens, output_tokens=asked.output_tokens)
        loop.at(asked.arrival_s, partial(cell.submit, request))
    while loop.step(until_s=_END_S):
        pass
    return times
