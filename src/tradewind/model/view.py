"""The grid as control sees it, streamed to gateways."""

from dataclasses import dataclass

from tradewind.model.cell import Cell, CellState
from tradewind.model.telemetry import UNKNOWN_TELEMETRY, Telemetry
from tradewind.model.tuning import Sample, TuningOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One cell in a grid view."""

    cell: Cell
    state: CellState
    incarnation: str
    sequence: int
    reason: str = ""  # why the cell is in this state, for people
    silent: bool = False  # no heartbeat within the TTL: telemetry is unknown, the engine may be fine
    draining: bool = False  # an operator's drain
    telemetry: Telemetry = UNKNOWN_TELEMETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewVersion:
    """Orders the views of one control process; views of two controls are merged cell by cell."""

    control_id: str
    incarnation: str
    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GridView:
    """A full view. `cells` is sorted by cell id and holds each id once."""

    version: ViewVersion
    cells: tuple[CellView, ...] = ()

    def __post_init__(self) -> None:
        ids = [view.cell.cell_id for view in self.cells]
        assert ids == sorted(set(ids)), "cells must be unique and sorted by id"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLoad:
    """What one gateway has in flight on one cell."""

    cell_id: str
    requests: int = 0
    waiting_tokens: int = 0  # uncached prompt tokens of requests without a first token
    decoding: int = 0  # requests with one


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A prompt that a gateway has sent to a cell: what other gateways must know to send its like there, too."""

    cell_id: str
    blocks: tuple[int, ...]  # its chained hashes, which mean nothing without the grid's prefix key


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLoad:
    """Outstanding work of one gateway, `age_s` ago; a cell that is left out has none."""

    gateway_id: str
    age_s: float
    cells: tuple[CellLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDelta:
    """A full view (`full`) or what changed since the last message of the same stream."""

    version: ViewVersion
    full: bool
    cells: tuple[CellView, ...] = ()
    removed: tuple[str, ...] = ()
    others: tuple[GatewayLoad, ...] = ()  # every gateway but the one that is told
    order: TuningOrder | None = None  # of this control's tuner, in every message; None = it has none
    prefix_key: int | None = None  # 64 bits by which all gateways hash prompts, in every message after a report
    placed: tuple[Placed, ...] = ()  # by other gateways since the last message of this stream


@dataclass(frozen=True, slots=True, kw_only=True)
class PathReading:
    """What one gateway knows of the path to one cell, and of the cell through its own traffic."""

    cell_id: str
    rtt_s: float | None = None
    jitter_s: float | None = None
    reachable: bool | None = None  # the gateway's own probe; None before the first answer
    succeeded: int = 0  # outcomes of the last half second, or since the previous report if that is longer ago
    failed: int = 0
    in_flight: int = 0
    waiting_tokens: int = 0  # of those in flight: uncached prompt tokens of requests without a first token
    decoding: int = 0  # of those in flight: requests with one
    # What its picker has learned and goes by; None where no picker knows the cell.
    slowness_ratio: float | None = None  # 1 = as its hardware class
    prefill_tokens_per_s: float | None = None
    first_tokens: int | None = None  # that have taught it


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """Gateway to control, twice a second, sooner with other work: evidence for the life cycle, and load for others."""

    gateway_id: str
    site: str
    sequence: int
    paths: tuple[PathReading, ...] = ()
    weights: tuple[tuple[str, int], ...] = ()  # cell id -> weight in force, for status and top
    pressures: tuple[tuple[str, float], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()  # cell id -> why its weight is what it is
    samples: tuple[Sample, ...] = ()  # of requests that followed a tuner's order; times from the moment of the report
    prefix_key: int | None = None  # that some control has told, and by which it hashes; None = its own
    placed: tuple[Placed, ...] = ()  # since the previous report, with that key
