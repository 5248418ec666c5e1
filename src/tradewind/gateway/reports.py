"""What a gateway tells each control: news since the stream's previous report, and the state of every path."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tradewind.core.pick.cell import OthersLoad
from tradewind.gateway.outcomes import OutcomeBook
from tradewind.model.routing import WeightRow
from tradewind.model.tuning import Sample
from tradewind.model.view import GatewayReport, PathReading

MAX_NOTE_CHARS = 200
NO_WORK = OthersLoad()
Totals = dict[str, tuple[int, int]]  # cell id -> (succeeded, failed) so far


class Reports:
    """Writes reports, and remembers what each control has been told."""

    def __init__(self, gateway_id: str, site: str) -> None:
        self._gateway_id = gateway_id
        self._site = site
        self._sequence = 0
        self._told: dict[str, Totals] = {}  # by control

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
        samples: tuple[Sample, ...],
    ) -> GatewayReport:
        """The next report; `outstanding` is empty where no picker counts the work in flight."""
        totals = {cell_id: (tally.succeeded, tally.failed) for cell_id, tally in book.cells.items()}
        told = self._told.get(control_id, totals)
        self._told[control_id] = totals
        self._sequence += 1
        return GatewayReport(
            gateway_id=self._gateway_id,
            site=self._site,
            sequence=self._sequence,
            paths=tuple(
                _reading(paths.get(cell_id) or PathReading(cell_id=cell_id), totals, told, outstanding)
                for cell_id in sorted(cells)
            ),
            weights=tuple(sorted(weights.items())),
            pressures=tuple((row.cell_id, row.pressure) for row in rows if row.pressure is not None),
            notes=tuple((row.cell_id, row.reason[:MAX_NOTE_CHARS]) for row in rows if row.reason),
            samples=samples,
        )


def _reading(path: PathReading, totals: Totals, told: Totals, outstanding: Mapping[str, OthersLoad]) -> PathReading:
    """A path with its news and the work in flight."""
    succeeded, failed = totals.get(path.cell_id, (0, 0))
    before = told.get(path.cell_id, (0, 0))
    work = outstanding.get(path.cell_id, NO_WORK)
    return replace(
        path,
        succeeded=max(0, succeeded - before[0]),
        failed=max(0, failed - before[1]),
        in_flight=int(work.requests),
        waiting_tokens=int(work.prefill_tokens),
        decoding=int(work.decoding),
    )
