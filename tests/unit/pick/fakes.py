"""Small grids, a prefix view without bounds, and requests, for tests of the decision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.telemetry import EngineReading, Telemetry
from tradewind.model.view import CellView, GridView, PathReading, ViewVersion

MODEL = "m"
_numbers = count(1)


class FakeIndex:
    """Remembers everything; heat does not decay."""

    def __init__(self) -> None:
        self.held: dict[str, set[int]] = {}
        self.counts: dict[int, float] = {}
        self.touched: list[tuple[str, tuple[int, ...], float]] = []
        self.trimmed: list[tuple[str, float]] = []

    def matches(self, blocks: tuple[int, ...]) -> Mapping[str, int]:
        return {cell_id: depth for cell_id in sorted(self.held) if (depth := self._depth(cell_id, blocks))}

    def record(self, cell_id: str, blocks: tuple[int, ...], now_s: float) -> None:
        deepest = max((self._depth(cell, blocks) for cell in self.held), default=0)
        if deepest:
            self.counts[blocks[deepest - 1]] = self.counts.get(blocks[deepest - 1], 0.0) + 1.0
        self.held.setdefault(cell_id, set()).update(blocks)

    def forget(self, cell_id: str) -> None:
        self.held.pop(cell_id, None)

    def forget_all(self) -> None:
        self.held.clear()

    def heard(self, cell_id: str, blocks: tuple[int, ...], now_s: float) -> None:
        self.record(cell_id, blocks, now_s)

    def take_placed(self) -> Sequence[tuple[str, Sequence[int]]]:
        return ()

    def touch(self, cell_id: str, blocks: tuple[int, ...], now_s: float) -> None:
        self.touched.append((cell_id, blocks, now_s))

    def trim(self, cell_id: str, before_s: float) -> None:
        self.trimmed.append((cell_id, before_s))

    def heat(self, blocks: tuple[int, ...], depth: int, now_s: float) -> float:
        return self.counts.get(blocks[depth - 1], 0.0)

    def _depth(self, cell_id: str, blocks: tuple[int, ...]) -> int:
        held = self.held.get(cell_id, set())
        return next((place for place, block in enumerate(blocks) if block not in held), len(blocks))


def cell_view(
    cell_id: str,
    *,
    site: str = "east",
    state: CellState = CellState.READY,
    limit: int | None = None,
    hardware: str = "rtx-pro-6000",
    kv: int | None = 140_000,
    models: tuple[str, ...] = (MODEL,),
    incarnation: str = "i1",
    engine: EngineReading | None = None,
    labels: tuple[tuple[str, str], ...] = (),
    address: str = "",
    silent: bool = False,
) -> CellView:
    """One cell; its address is derived from its id unless given."""
    capabilities = Capabilities(models=models, max_model_len=limit, hardware=hardware, kv_capacity_tokens=kv)
    number = sum(cell_id.encode()) % 250 + 1
    cell = Cell(
        cell_id=cell_id,
        site=site,
        address=address or f"10.0.0.{number}:8000",
        capabilities=capabilities,
        labels=labels,
    )
    return CellView(
        cell=cell,
        state=state,
        incarnation=incarnation,
        sequence=1,
        silent=silent,
        telemetry=Telemetry(engine=engine, engine_age_s=0.0 if engine is not None else None),
    )


def grid(*views: CellView) -> GridView:
    """A view of these cells."""
    version = ViewVersion(control_id="c", incarnation="i", counter=next(_numbers))
    return GridView(version=version, cells=tuple(sorted(views, key=lambda view: view.cell.cell_id)))


def picker(
    *views: CellView,
    policy: str = "cost",
    rtts_s: Mapping[str, float] | None = None,
    settings: PickSettings | None = None,
    index: FakeIndex | None = None,
) -> Picker:
    """A picker that has seen these cells and measured every path, 10 ms unless said."""
    made = Picker(settings or PickSettings(), policy=policy, index=index or FakeIndex())
    made.observe_view(grid(*views), 0.0)
    for view in views:
        rtt_s = (rtts_s or {}).get(view.cell.cell_id, 0.010)
        made.observe_path(PathReading(cell_id=view.cell.cell_id, rtt_s=rtt_s, reachable=True), 0.0)
    return made


def request(tokens: int = 500, **changes: Any) -> Request:
    """A streamed request of exactly so many tokens, 128 allowed to come back."""
    base = Request(
        request_id=f"r{next(_numbers)}",
        model=MODEL,
        prompt_tokens=tokens,
        max_output_tokens=128,
        stream=True,
        exact_tokens=True,
    )
    return replace(base, **changes)


def blocks(*parts: int) -> tuple[int, ...]:
    """Chained hashes of a prompt whose blocks have these contents."""
    found, chain = [], 7
    for part in parts:
        chain = (chain * 1_000_003 + part + 1) & ((1 << 64) - 1)
        found.append(chain)
    return tuple(found)


def outcome(decision: Decision, *, status: int = 200, **changes: Any) -> Outcome:
    """How it ended on the cell that was picked, unless said otherwise."""
    base = Outcome(
        request_id=decision.request_id,
        cell_id=decision.cell_id,
        model=MODEL,
        status=status,
        response_bytes=100,
        duration_s=1.0,
    )
    return base._replace(**changes)


def picked(made: Picker, asked: Request, now_s: float = 1.0, rng: Random | None = None) -> Decision:
    """The decision; fails on a refusal."""
    found = made.pick(asked, now_s=now_s, rng=rng or Random(1))
    assert isinstance(found, Decision), found
    return found


def refused(made: Picker, asked: Request, now_s: float = 1.0) -> Refusal:
    """The refusal; fails on a decision."""
    found = made.pick(asked, now_s=now_s, rng=Random(1))
    assert isinstance(found, Refusal), found
    return found


def shares(cells: Sequence[str]) -> dict[str, float]:
    """How often each cell occurs."""
    return {cell: cells.count(cell) / len(cells) for cell in sorted(set(cells))}
