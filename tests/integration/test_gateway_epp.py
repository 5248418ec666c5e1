"""A gateway with `epp:` is an Endpoint Picker for any proxy: it passes the conformance kit and forgets nothing."""

import asyncio
import contextlib
from pathlib import Path

from tests.fakes.engine import FakeEngine
from tests.fakes.views import ViewControl, ready_cell
from tests.support.envoy import free_port
from tests.support.gateway import Rig, gateway_rig
from tradewind.config.schema import EppConfig
from tradewind.lab.epp.pool import Pool
from tradewind.lab.epp.run import run_plain
from tradewind.lab.epp.talk import Target
from tradewind.lab.epp.verdicts import Result

CELLS = ("a", "b", "c")


def series(rig: Rig) -> dict[str, float]:
    """The endpoint picker's metrics."""
    lines = [
        line.split() for line in rig.page("/metrics").decode().splitlines() if line.startswith("tradewind_gateway_epp_")
    ]
    return {name.removeprefix("tradewind_gateway_"): float(value) for name, value in lines}


def test_the_gateway_passes_the_conformance_kit(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        engines = {cell: stack.enter_context(FakeEngine()) for cell in CELLS}
        lora = ready_cell("a", engines["a"].address, models=("m", "m-lora"))
        others = [ready_cell(cell, engines[cell].address) for cell in CELLS[1:]]
        control = stack.enter_context(ViewControl())
        rig = stack.enter_context(
            gateway_rig(tmp_path, [control.address], models=("empty",), routing="pick", epp=EppConfig(listen=listen))
        )
        control.show(lora, *others)
        rig.serving(*CELLS)
        pool = Pool(
            model="m",
            endpoints=tuple(engine.address for engine in engines.values()),
            expect=(("m-lora", (engines["a"].address,)),),
            empty_model="empty",
            deadline_s=0.2,
        )
        verdicts = asyncio.run(run_plain(Target(address=listen), pool, timeout_s=20.0))
        counts = series(rig)
        assert rig.status()["epp"]
    assert all(counts[f"epp_{kind}_requests_total"] > 0 for kind in ("picked", "refused"))
    shown = counts["epp_requests_total"]
    assert shown >= counts["epp_picked_requests_total"] + counts["epp_refused_requests_total"]
    failed = [(verdict.case, verdict.detail) for verdict in verdicts if verdict.result is Result.FAILED]
    assert failed == []
    assert {verdict.case for verdict in verdicts if verdict.result is Result.SKIPPED} <= {"busy"}
