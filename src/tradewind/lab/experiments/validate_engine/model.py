"""A measured run given to the simulator's engine: the same arrivals and lengths, in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tradewind.engine.profiles import Profile
from tradewind.engine.sequence import Sequence as EngineSequence
from tradewind.engine.sequence import SequenceRequest
from tradewind.lab.experiments.validate_engine.cases import Case
from tradewind.sim.cell import CellEvents, SimCell
from tradewind.sim.loop import EventLoop
from tradewind.sim.scenario import CellSpec
from tradewind.workload.measured import MeasuredRequest

_END_S = 1e5
_WAITING_WEIGHT = 4  # vLLM's balancer of ranks: a waiting request counts as four running ones


def simulated(
    case: Case, requests: Sequence[MeasuredRequest], *, profile: Profile, ahead: bool = True
) -> list[MeasuredRequest]:
    """The requests with the times that the model gives them."""
    loop = EventLoop()
    first_s: dict[int, float] = {}
    last_s: dict[int, float] = {}

    def on_first(sequence: EngineSequence) -> None:
        first_s[sequence.request.seq_id] = loop.now_s

    def on_last(sequence: EngineSequence) -> None:
        last_s[sequence.request.seq_id] = loop.now_s

    limits = replace(case.limits, schedules_ahead=ahead)
    tell = CellEvents(first=on_first, last=on_last)
    ranks = [
        SimCell(spec=CellSpec(cell_id=f"r{rank}", site="", profile=profile, limits=limits), loop=loop, tell=tell)
        for rank in range(case.ranks)
    ]
    for number, asked in enumerate(requests):
        loop.at(asked.arrival_s, partial(_arrive, ranks, number, asked))
    while loop.step(until_s=_END_S):
        pass
    return [
        replace(asked, first_token_s=first_s[number], last_token_s=last_s[number])
        for number, asked in enumerate(requests)
    ]


def _arrive(ranks: Sequence[SimCell], number: int, asked: MeasuredRequest) -> None:
    chosen = min(ranks, key=_load)
    chosen.submit(SequenceRequest(seq_id=number, prompt_tokens=asked.prompt_tokens, output_tokens=asked.output_tokens))


def _load(rank: SimCell) -> int:
    waiting = rank.engine.waiting
    return _WAITING_WEIGHT * waiting + rank.engine.unfinished - waiting
