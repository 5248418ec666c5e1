"""The READY cells of the newest view, and whether they are still the same."""

from dataclasses import dataclass, field

from tradewind.model.cell import CellState
from tradewind.model.view import CellView, GridView


@dataclass(slots=True)
class MembershipWatch:
    """READY cells sorted by id; remembers a change until it is taken."""

    ready: dict[str, CellView] = field(default_factory=dict)
    changed: bool = False

    def update(self, view: GridView | tuple[CellView, ...]) -> bool:
        """Takes a view; True when a pool, an address or the READY set differs from before."""
        cells = view.cells if isinstance(view, GridView) else view
        ready = {
            cell.cell.cell_id: cell
            for cell in sorted(cells, key=lambda cell: cell.cell.cell_id)
            if cell.state is CellState.READY
        }
        same = {cell_id: _identity(cell) for cell_id, cell in ready.items()} == {
            cell_id: _identity(cell) for cell_id, cell in self.ready.items()
        }
        self.ready = ready
        self.changed = self.changed or not same
        return not same

    def take_change(self) -> bool:
        """True once per change."""
        changed, self.changed = self.changed, False
        return changed


def _identity(view: CellView) -> tuple[str, tuple[str, ...]]:
    return (view.cell.address, view.cell.capabilities.models)
