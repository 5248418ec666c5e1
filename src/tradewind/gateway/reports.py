"""What a gateway tells each control: news of the last half second, and the state of every path."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.learned import LearnedRate
from tradewind.gateway.outcomes import OutcomeBook
from tradewind.model.routing import WeightRow
from tradewind.model.tuning import Sample
from tradewind.model.view import GatewayReport, PathReading, Placed

MAX_NOTE_CHARS = 200
WINDOW_S = 0.45  # outcomes of so long are told, if not of longer: a hurried report must not cut evidence in pieces
NO_WORK = OthersLoad()
Totals = dict[str, tuple[int, int]]  # cell id -> (succeeded, failed) so far


class Reports:
    """Writes reports, and remembers what each control has been told."""

    def __init__(self, gateway_id: str, site: str, clock: Callable[[], float]) -> None:
        self._gateway_id = gateway_id
        self._site = site
        self._clock = clock
        self._sequence = 0
        self._told: dict[str, deque[_Told]] = {}  # by control, oldest first

    def lost(self, control_id: str) -> None:
        """The stream to this control ended: what happens before the next one begins is no fresh evidence."""
        self._told.pop(control_id, None)

    def make(
        self,
        control_id: str,
        *,
        cells: Iterable[str],
        paths: Mapping[str, PathReading],
        book: OutcomeBook,
        outstanding: Mapping[str, OthersLoad],
        weights: Mapping[str, int],
        rows: Sequence[WeightRow],
        rates: Mapping[str, LearnedRate],
        samples: tuple[Sample, ...],
        prefix_key: int | None = None,
        placed: tuple[Placed, ...] = (),
    ) -> GatewayReport:
        """The next report; `outstanding` and `rates` are empty where no picker counts and learns."""
        totals = {cell_id: (tally.succeeded, tally.failed) for cell_id, tally in book.cells.items()}
        told = self._before(control_id, totals)
        self._sequence += 1
        return GatewayReport(
            gateway_id=self._gateway_id,
            site=self._site,
            sequence=self._sequence,
            paths=tuple(
                _reading(paths.get(cell_id) or PathReading(cell_id=cell_id), totals, told, outstanding, rates)
                for cell_id in sorted(cells)
            ),
            weights=tuple(sorted(weights.items())),
            pressures=tuple((row.cell_id, row.pressure) for row in rows if row.pressure is not None),
            notes=tuple((row.cell_id, row.reason[:MAX_NOTE_CHARS]) for row in rows if row.reason),
            samples=samples,
            prefix_key=prefix_key,
            placed=placed,
        )

    def _before(self, control_id: str, totals: Totals) -> Totals:
        """What it was told WINDOW_S ago or longer, or first; `totals` is noted as told now."""
        now_s, told = self._clock(), self._told.setdefault(control_id, deque())
        told.append(_Told(now_s, totals))
        while len(told) > 2 and now_s - told[1].at_s >= WINDOW_S:
            told.popleft()
        return told[0].totals


class _Told(NamedTuple):
    at_s: float
    totals: Totals


def _reading(
    path: PathReading,
    totals: Totals,
    told: Totals,
    outstanding: Mapping[str, OthersLoad],
    rates: Mapping[str, LearnedRate],
) -> PathReading:
    """A path with its news, the work in flight and what the picker goes by."""
    succeeded, failed = totals.get(path.cell_id, (0, 0))
    before = told.get(path.cell_id, (0, 0))
    work, rate = outstanding.get(path.cell_id, NO_WORK), rates.get(path.cell_id)
    return replace(
        path,
        succeeded=max(0, succeeded - before[0]),
        failed=max(0, failed - before[1]),
        in_flight=int(work.requests),
        waiting_tokens=int(work.prefill_tokens),
        decoding=int(work.decoding),
        slowness_ratio=rate.slowness_ratio if rate is not None else None,
        prefill_tokens_per_s=rate.prefill_tokens_per_s if rate is not None else None,
        first_tokens=rate.first_tokens if rate is not None else None,
    )
