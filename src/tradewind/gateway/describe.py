"""Fills the status document from the worker; reads only."""

import asyncio
from collections.abc import Callable, Mapping

from tradewind.gateway.ads import AdsState
from tradewind.gateway.epp.metrics import epp_status
from tradewind.gateway.epp.server import EppServer
from tradewind.gateway.gate.choice import GateChoice
from tradewind.gateway.link import ControlLink
from tradewind.gateway.merge import ControlStatus
from tradewind.gateway.pick.describe import pick_status
from tradewind.gateway.pick.server import PickServer
from tradewind.gateway.reload import ConfigWatch
from tradewind.gateway.shapeprobe import ShapeProber
from tradewind.gateway.status import (
    CellStatus,
    ControlRow,
    EnvoyRow,
    GateRow,
    GatewayStatus,
    HealthRow,
    PickStatus,
    PoolStatus,
    PushRow,
)
from tradewind.gateway.worker import Worker
from tradewind.runtime.loop import LoopLag
from tradewind.xds import types


class Describer:
    """Builds GatewayStatus on demand."""

    def __init__(
        self,
        worker: Worker,
        *,
        ads: Callable[[], AdsState],
        links: Mapping[str, ControlLink],
        watch: ConfigWatch,
        prober: ShapeProber,
        picker: PickServer,
        epp: EppServer | None,
        lag: LoopLag,
        clock: Callable[[], float],
    ) -> None:
        self._worker = worker
        self._ads = ads
        self._links = links
        self._watch = watch
        self._prober = prober
        self._picker = picker
        self._epp = epp
        self._lag = lag
        self._clock = clock
        self._started_s = clock()

    def status(self) -> GatewayStatus:
        """The state of this moment."""
        worker, gateway, steering = self._worker, self._worker.gateway, self._worker.steering
        envoy = envoy_row(self._ads())
        return GatewayStatus(
            grid=worker.config.grid,
            gateway_id=gateway.id,
            site=gateway.site,
            listen=gateway.listen,
            routing=gateway.routing,
            scoring=gateway.scoring,
            baseline=gateway.baseline,
            ready=envoy.acked,
            publishing=steering.in_force is not None,
            control_live=steering.merger.live,
            from_disk=steering.in_force is not None and not steering.merger.ready,
            cells=self._cells(),
            pools=self._pools(),
            controls=self._controls(),
            envoy=envoy,
            gate=gate_row(worker.gate),
            push=self._push(),
            pick=self._pick(),
            epp=None if self._epp is None else epp_status(self._epp),
            process=self._process(),
        )

    def _pick(self) -> PickStatus | None:
        desk, following = self._worker.desk, self._worker.following
        return None if desk is None else pick_status(desk, self._picker, following, now_s=self._clock())

    def _cells(self) -> list[CellStatus]:
        worker = self._worker
        rows = {row.cell_id: row for row in worker.last.decision.rows} if worker.last else {}
        weights = worker.weights()
        found = []
        for item in worker.steering.merger.cells_now(now_s=self._clock()):
            cell_id = item.cell.cell_id
            path = worker.paths.get(cell_id)
            tally = worker.book.cells.get(cell_id)
            found.append(
                CellStatus(
                    cell_id=cell_id,
                    site=item.cell.site,
                    address=worker.address_of(cell_id) or item.cell.address,
                    state=item.state,
                    reason=item.reason,
                    silent=item.silent,
                    draining=item.draining,
                    incarnation=item.incarnation,
                    sequence=item.sequence,
                    engine_age_s=item.telemetry.engine_age_s,
                    gpu_age_s=item.telemetry.gpu_age_s,
                    rtt_s=path.rtt_s if path else None,
                    jitter_s=path.jitter_s if path else None,
                    reachable=path.reachable if path else None,
                    requests=tally.requests if tally else 0,
                    succeeded=tally.succeeded if tally else 0,
                    failed=tally.failed if tally else 0,
                    weight=weights.get(cell_id),
                    terms=rows.get(cell_id),
                )
            )
        return found

    def _pools(self) -> list[PoolStatus]:
        steering = self._worker.steering
        pools = steering.in_force.pools if steering.in_force else ()
        return [
            PoolStatus(
                model=pool.model,
                weights={endpoint.cell_id: endpoint.weight for endpoint in pool.endpoints},
                held=pool.model in steering.told.held,
            )
            for pool in pools
        ]

    def _controls(self) -> list[ControlRow]:
        known = {row.control_id: row for row in self._worker.steering.merger.controls(now_s=self._clock())}
        return [_control_row(link, known.get(control_id)) for control_id, link in sorted(self._links.items())]

    def _push(self) -> PushRow:
        push = self._worker.push
        return PushRow(
            snapshots=push.snapshots,
            refused=[f"{name}: {reason}" for name, reason in push.refused[:100]],
            last_age_s=None if push.last_s is None else self._clock() - push.last_s,
            held_back=push.held_back,
            update_us=push.update_us,
            version=push.version,
        )

    def _process(self) -> HealthRow:
        worker, watch = self._worker, self._watch
        return HealthRow(
            uptime_s=self._clock() - self._started_s,
            loop_lag_s=self._lag.lag_s,
            loop_lag_worst_s=self._lag.worst_s,
            tasks=len(asyncio.all_tasks()),
            config_error=watch.last_error,
            config_applied=watch.applied,
            config_failures=watch.failures,
            saved_view_error=worker.saved.last_error,
            saved_view_failures=worker.saved.failures,
            log_lines_dropped=worker.request_log.dropped,
            probes_sent=self._prober.sent,
            probes_skipped=self._prober.skipped,
            outcomes=worker.outcomes,
            outcomes_unattributed=worker.unattributed,
        )


def envoy_row(state: AdsState) -> EnvoyRow:
    """What Envoy made of its configuration. One that reconnects says what it holds and is sent, and acks, less."""
    routed = any(item.type == types.SHORT[types.ROUTE] and item.acks > 0 for item in state.types)
    return EnvoyRow(
        connected=state.streams > 0, acked=state.settled or routed, settled=state.settled, types=state.types
    )


def gate_row(gate: GateChoice) -> GateRow:
    """The gate in force."""
    return GateRow(mode=gate.mode, missing=gate.missing, wanted=gate.wanted, why=gate.why, envoy=gate.envoy)


def _control_row(link: ControlLink, known: ControlStatus | None) -> ControlRow:
    return ControlRow(
        control_id=link.control_id,
        address=link.address,
        connected=known.connected if known else False,
        age_s=known.age_s if known else None,
        cells=known.cells if known else 0,
        connects=link.counters.connects,
        failures=link.counters.failures,
        malformed=link.counters.malformed,
    )
