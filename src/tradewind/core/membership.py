"""The READY cells of the newest view, and whether they are still the same."""

from dataclasses import dataclass, field

from tradewind.model.cell import CellState
from tradewind.model.view import CellView, GridView


@dataclass(slots=True)
class MembershipWatch:
    """READY cells sorted by id; remembers a change until it is taken."""

    ready: dict[str, CellView] = field(default_factory=dict)
    changed: bool = False
    _identities: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # of those that are READY

    def update(self, view: GridView | tuple[CellView, ...]) -> bool:
        """Takes a view; True when a pool, an address or the READY set differs from before."""
        cells = view.cells if isinstance(view, GridView) else view
        ready = {
            cell.cell.cell_id: cell
            for cell in sorted(cells, key=lambda cell: cell.cell.cell_id)
            if cell.state is CellState.READY
        }
        identities = {cell_id: _identity(cell) for cell_id, cell in ready.items()}
        same = identities == self._identities
        self.ready, self._identities = ready, identities
        self.changed = self.changed or not same
        return not same

    def take_change(self) -> bool:
        """True once per change."""
        changed, self.changed = self.changed, False
        return changed


def _identity(view: CellView) -> tuple[str, tuple[str, ...]]:
    return (view.cell.address, view.cell.capabilities.models)
