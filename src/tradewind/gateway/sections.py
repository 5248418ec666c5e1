"""What the core and Envoy are told of a gateway's section and of its view, as values."""

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.core.settings import EjectionSettings, ProjectionSettings, ScoringSettings, SignalSettings
from tradewind.model.view import GridView
from tradewind.xds.settings import ModelInfo


def scoring_settings(config: GridConfig, gateway: GatewayConfig) -> ScoringSettings:
    """The scorer's constants as the grid file sets them."""
    return ScoringSettings(
        capacity_prior=tuple((cell.id, cell.capacity) for cell in config.cells if cell.capacity > 0),
        signals=SignalSettings(slo_ttft_s=gateway.slo_ttft_s),
        projection=ProjectionSettings(gamma=gateway.gamma),
        ejection=EjectionSettings(unreachable_readings=1),  # the path prober has asked twice before it says so
    )


def model_infos(view: GridView, known: frozenset[str]) -> tuple[ModelInfo, ...]:
    """`GET /v1/models`: every known model with the largest max_model_len that any cell offers for it."""
    limits: dict[str, int] = {}
    for item in view.cells:
        limit = item.cell.capabilities.max_model_len
        if limit is not None:
            for model in item.cell.capabilities.models:
                limits[model] = max(limit, limits.get(model, 0))
    return tuple(ModelInfo(model=model, max_model_len=limits.get(model)) for model in sorted(known))
