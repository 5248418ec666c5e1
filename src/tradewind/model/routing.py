"""What a gateway wants its Envoy to do: pools of weighted endpoints."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One cell in a pool. `weight` >= 1: a cell that must get nothing is left out."""

    cell_id: str
    site: str
    address: str  # "ip:port" as this gateway reaches it
    weight: int

    def __post_init__(self) -> None:
        assert self.weight >= 1, f"{self.cell_id}: a weight of 0 is refused by Envoy; leave the endpoint out"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRouting:
    """The endpoints that serve one model name, sorted by cell id. Empty: nobody serves a known model."""

    model: str
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """All pools of one gateway, sorted by model name."""

    pools: tuple[PoolRouting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRow:
    """One cell's weight and the terms that made it; ratios in 0..1 unless said."""

    cell_id: str
    weight: int  # 1..134
    pressure: float | None = None  # load pressure, 0 = idle
    speed: float = 1.0
    capacity: float = 1.0
    ramp: float = 1.0
    backpressure: float = 1.0
    blind: bool = False
    drained: bool = False  # left out of the pool: alert, verdict, stated limit or local ejection
    short: bool = False  # drained for nothing but its stated limit: it could serve short prompts
    # Drained for nothing but refusals of long requests: (model, bytes) from which on its peers serve what it refuses.
    refuses: tuple[tuple[str, int], ...] = ()
    reason: str = ""
    signals: tuple[tuple[str, float | None], ...] = ()  # the ten normalised signals, by name
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something an operator would want to read later: stable name, one cell or none, details."""

    at_s: float  # the decider's monotonic clock
    name: str  # e.g. "alert.thermal", "verdict.refusal", "verdict.cleared", "cell.ejected"
    cell_id: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOrder:
    """Core asks the shell to send one synthetic request of a refused shape; the answer returns as an event."""

    cell_id: str
    model: str
    prompt_bytes: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightDecision:
    """The result of one scoring tick."""

    rows: tuple[WeightRow, ...]  # sorted by cell id; READY cells only
    push: bool  # False: within the dead band, keep what Envoy has
    events: tuple[Event, ...] = ()
    probes: tuple[ProbeOrder, ...] = ()
