"""Three regions by day and night: the load follows the sun, each client has its gateway, and savings are per day."""

import random

import msgspec
import pytest

from tests.sim.test_compare import row
from tradewind.lab.experiments import skywalker
from tradewind.lab.harness.experiment import Options, Trial
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.trials import shortened
from tradewind.sim.grid import SimGrid

DAY_S = skywalker.DAY_S


def test_each_region_has_its_peak_a_third_of_a_day_after_the_last() -> None:
    trace = skywalker.diurnal(random.Random(1), mean_per_s=3.0, for_s=DAY_S)
    for region in range(3):
        times = [request.at_s for request in trace.requests if request.kind == str(region)]
        peak_s = region * DAY_S / 3
        near = sum(1 for at_s in times if abs((at_s - peak_s + DAY_S / 2) % DAY_S - DAY_S / 2) < DAY_S / 6)
        assert near / len(times) > 0.5, "a third of the day has most of the load"
        assert len(times) == pytest.approx(3.0 * DAY_S, rel=0.15)


def test_regions_share_no_block_and_sessions_go_on() -> None:
    trace = skywalker.diurnal(random.Random(1), mean_per_s=1.0, for_s=60.0)
    owners: dict[int, set[str]] = {}
    for request in trace.requests:
        for block in request.block_ids:
            owners.setdefault(block, set()).add(request.session)
    assert owners
    assert all(len(sessions) == 1 for sessions in owners.values())


def test_clients_come_to_the_gateway_of_their_region() -> None:
    grid = SimGrid(shortened(skywalker.grid(2), 5.0), maker("skywalker:blind"), seed=1)
    run = grid.run()
    assert len(run.records) > 5
    for entry, record in zip(grid.journal.entries, run.records, strict=True):
        region = int(entry.traced.kind)
        assert entry.gateway == region
        assert record.cell is not None
        assert record.cell.startswith(skywalker.REGIONS[region]), "blind pushing never leaves the region"


def results(policy: str, ttfts_s: dict[int, float]) -> list[tuple[Trial, dict[str, object]]]:
    return [
        (
            Trial(experiment="skywalker", args={"cells": cells, "policy": policy, "seed": seed, "for_s": None}),
            msgspec.structs.asdict(row(policy, seed, ttft_s=ttft_s, e2e_s=ttft_s)),
        )
        for seed in (1, 2)
        for cells, ttft_s in ttfts_s.items()
    ]


def test_savings_are_the_smallest_fleets_that_keep_the_slo() -> None:
    found = list(
        skywalker.rows(
            [
                *results("cost", {2: 2.9, 3: 2.0, 4: 1.9}),
                *results("skywalker", {2: 9.0, 3: 2.9, 4: 2.0}),
                *results("skywalker:blind", {2: 9.0, 3: 3.1, 4: 2.0}),
                *results("random", {2: 9.0, 3: 9.0, 4: 9.0}),
            ]
        )
    )
    cells, saved = (
        {
            policy: measured(found, profile=skywalker.ALL_FLEETS, policy=policy, metric=metric)
            for policy in ("cost", "skywalker", "random")
        }
        for metric in (skywalker.NEEDED, skywalker.SAVED)
    )
    assert [None if one is None else one.value for one in cells.values()] == [6.0, 9.0, None], "unknown is not zero"
    assert [None if one is None else one.value for one in saved.values()] == [50.0, 25.0, None]
    checks = {check.name: check for check in skywalker.claims(found)}
    assert checks["2 cells a region: TTFT p95 of cost against selective pushing"].holds
    assert checks["cells saved against blind pushing, cost"].value == 50.0


def test_the_quick_form_runs() -> None:
    plan = skywalker.plan(Options(quick=True))
    short = [Trial(experiment=trial.experiment, args={**trial.args, "for_s": 10.0}) for trial in plan]
    found = skywalker.rows([(trial, skywalker.run(trial)) for trial in short])
    assert skywalker.figures(found)[0].series[0].x == [6.0]
