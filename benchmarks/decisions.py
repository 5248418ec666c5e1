"""View change -> weights -> snapshot: what one life-cycle change costs before Envoy hears of it."""

import time
from dataclasses import replace
from random import Random

from benchmarks.grids import cell_views
from tradewind.core.scoring import Router, make_scorer
from tradewind.core.settings import ScoringSettings
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.instant.usage import p50
from tradewind.model.cell import CellState
from tradewind.model.view import CellView
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import XdsSettings

BOUND_MS = {9: 0.2, 1_000: 10.0, 10_000: 100.0}


def bench(quick: bool) -> list[Check]:
    rows: list[Check] = []
    for cells, bound_ms in BOUND_MS.items():
        rounds = max(5, min(200, 20_000 // cells)) // (4 if quick else 1) + 3
        changes, seconds = measure(cells, rounds)
        rows.append(at_most(f"view change -> weights -> snapshot, {cells:,} cells, p50", changes, bound_ms, unit="ms"))
        rows.append(reported(f"a full second's tick, all telemetry new, {cells:,} cells, p50", seconds, unit="ms"))
    return rows


def measure(cells: int, rounds: int) -> tuple[float, float]:
    """(p50 of one cell's change, p50 of a whole new second of telemetry), both to a built snapshot, in ms."""
    scorer = make_scorer("recipe", "", ScoringSettings())
    router, builder = Router({}), SnapshotBuilder(XdsSettings(listen="127.0.0.1:8080"))
    rng = Random(1)
    views = cell_views(cells, 1)
    changes, seconds = [], []

    def step(changed: tuple[CellView, ...], now_s: float) -> float:
        started_s = time.perf_counter()
        scorer.observe_view(changed, now_s)
        builder.build(router.build(scorer.tick(now_s, rng), changed))
        return (time.perf_counter() - started_s) * 1e3

    for number in range(rounds):
        now_s = float(number + 1)
        views = cell_views(cells, number + 1)
        second_ms = step(views, now_s)
        state = CellState.DRAINING if number % 2 else CellState.READY
        views = (replace(views[0], state=state), *views[1:])
        change_ms = step(views, now_s + 0.3)
        if number >= 2:  # caches warm
            seconds.append(second_ms)
            changes.append(change_ms)
    return p50(changes), p50(seconds)
