"""The engines as a router in front of them sees them."""

from dataclasses import dataclass

from tradewind.config.schema import GridConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One engine behind the path from the router's site."""

    cell: str
    site: str
    address: str  # "ip:port"

    @property
    def url(self) -> str:
        """As routers want it."""
        return f"http://{self.address}"


def workers_of(grid: GridConfig) -> tuple[Worker, ...]:
    """The cells of a settled grid by the doors of its first gateway: behind the same WAN delay as that gateway's."""
    reach = grid.gateways[0].reach
    return tuple(
        Worker(cell=cell.id, site=cell.site, address=reach.get(cell.id, cell.url.partition("://")[2]))
        for cell in grid.cells
    )
