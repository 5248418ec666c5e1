"""Which cells belong together, and the pools of a gateway with the weights of a decision."""

from collections.abc import Iterable, Mapping

from tradewind.model.cell import CellState
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


def routing(
    decision: WeightDecision,
    view: GridView | tuple[CellView, ...],
    reach: Mapping[str, str],
    known_models: Iterable[str] = (),
) -> Routing:
    """The pools to push: READY cells by model, drained ones left out while the pool keeps another cell.

    `reach`: cell id -> address by which this gateway reaches it, where it differs from the agent's. `known_models`
    exist as pools even while nobody serves them. A READY cell without a row (it came after the decision) gets the
    lowest weight until the next one.
    """
    cells = view.cells if isinstance(view, GridView) else view
    weights = {row.cell_id: (row.weight, row.drained) for row in decision.rows}
    kept: dict[str, list[Endpoint]] = {model: [] for model in known_models}
    drained: dict[str, list[Endpoint]] = {}
    for cell_view in cells:
        for model in cell_view.cell.capabilities.models:
            kept.setdefault(model, [])
        if cell_view.state is not CellState.READY:
            continue
        cell = cell_view.cell
        weight, out = weights.get(cell.cell_id, (1, False))
        address = reach.get(cell.cell_id, cell.address)
        endpoint = Endpoint(cell_id=cell.cell_id, site=cell.site, address=address, weight=weight)
        for model in cell.capabilities.models:
            (drained.setdefault(model, []) if out else kept[model]).append(endpoint)
    pools = []
    for model in sorted(kept):
        endpoints = kept[model] or drained.get(model, [])
        pools.append(PoolRouting(model=model, endpoints=tuple(sorted(endpoints, key=lambda point: point.cell_id))))
    return Routing(pools=tuple(pools))
