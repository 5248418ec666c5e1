"""Which cells belong together, and the pools of a gateway with the weights of a decision."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from tradewind.model.cell import Cell, CellState
from tradewind.model.routing import Endpoint, PoolRouting, Routing, WeightDecision
from tradewind.model.view import CellView, GridView


def pool_keys(model_sets: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Key of the pool for each distinct set of models: sets that share a model, directly or not, share a key."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    distinct = sorted(set(model_sets))
    for models in distinct:
        for name in models:
            parent.setdefault(name, name)
        for name in models[1:]:
            low, high = sorted((root(models[0]), root(name)))
            parent[high] = low
    return {models: root(models[0]) if models else "" for models in distinct}


def aliases(served: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, str]:
    """Name -> the one name of its model, for names that have another; `served`: (models, LoRA adapters) per cell.

    An engine holds one base model, whatever it is called: what it lists beside adapters are names of the same weights,
    and one prefix cache serves them all. A name that is an adapter anywhere stands for itself.
    """
    sets = sorted(set(served))
    adapters = {name for _, lora in sets for name in lora}
    bases = [tuple(name for name in models if name not in adapters) for models, _ in sets]
    keys = pool_keys(bases)
    return {name: keys[names] for names in bases for name in names if name != keys[names]}


class Router:
    """Builds the pools of one gateway; keeps endpoints that have not changed, so that repeating is cheap."""

    def __init__(self, reach: Mapping[str, str], known_models: Iterable[str] = (), *, picks: bool = False) -> None:
        """`picks`: each request's length is looked at, so a cell that is out for long ones alone stays.

        It stays with the lowest weight: what is sent by weights is then refused there as rarely as a verdict allows.
        """
        self._picks = picks
        self._reach = reach  # cell id -> address by which this gateway reaches it, where it differs from the agent's
        self._known_models = tuple(known_models)  # exist as pools even while nobody serves them
        self._endpoints: dict[str, Endpoint] = {}

    def build(self, decision: WeightDecision, view: GridView | tuple[CellView, ...]) -> Routing:
        """READY cells by model; drained ones are left out while the pool keeps another cell.

        A READY cell without a row (it came after the decision) gets the lowest weight until the next one.
        """
        cells = view.cells if isinstance(view, GridView) else view
        rows = {row.cell_id: row for row in decision.rows}
        kept: dict[str, list[Endpoint]] = {model: [] for model in self._known_models}
        drained: dict[str, list[Endpoint]] = {}
        endpoints: dict[str, Endpoint] = {}
        for cell_view in cells:
            cell = cell_view.cell
            models = cell.capabilities.models
            for model in models:
                if model not in kept:
                    kept[model] = []
            if cell_view.state is CellState.READY:
                row = rows.get(cell.cell_id)
                out = row is not None and row.drained
                if row is not None and (row.short or row.refuses) and self._picks:
                    row, out = None, False
                endpoint = self._endpoint(cell, 1 if row is None else row.weight)
                endpoints[cell.cell_id] = endpoint
                for model in models:
                    (drained.setdefault(model, []) if out else kept[model]).append(endpoint)
        self._endpoints = endpoints
        return Routing(pools=tuple(_pool(model, kept[model] or drained.get(model, [])) for model in sorted(kept)))

    def _endpoint(self, cell: Cell, weight: int) -> Endpoint:
        address = self._reach.get(cell.cell_id, cell.address)
        old = self._endpoints.get(cell.cell_id)
        if old is not None and old.weight == weight and old.address == address and old.site == cell.site:
            return old
        return Endpoint(cell_id=cell.cell_id, site=cell.site, address=address, weight=weight)


def _pool(model: str, endpoints: list[Endpoint]) -> PoolRouting:
    return PoolRouting(model=model, endpoints=tuple(sorted(endpoints, key=attrgetter("cell_id"))))


def routing(
    decision: WeightDecision,
    view: GridView | tuple[CellView, ...],
    reach: Mapping[str, str],
    known_models: Iterable[str] = (),
) -> Routing:
    """One-off form of `Router`."""
    return Router(reach, known_models).build(decision, view)
