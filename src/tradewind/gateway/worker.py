"""The gateway at work: evidence in, routing out. Synchronous; the event loop around it is in main."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tradewind.config.schema import CellConfig, GatewayConfig, GridConfig
from tradewind.core.memory import MAX_ROWS
from tradewind.core.pick.learned import learned_rates
from tradewind.core.scoring import make_scorer
from tradewind.gateway.events import EventRing
from tradewind.gateway.files import find_gateway, gateway_dir
from tradewind.gateway.gate.choice import NO_FINDINGS, Findings, blames_gate, choose, rechosen, withdrawn
from tradewind.gateway.merge import ViewMerger
from tradewind.gateway.outcomes import OutcomeBook
from tradewind.gateway.pick.build import desk_settings, make_desk
from tradewind.gateway.pick.desk import PickDesk
from tradewind.gateway.pick.following import Following, described
from tradewind.gateway.pick.server import LEFT_TO_SHARES, Question, Reply
from tradewind.gateway.reports import Reports
from tradewind.gateway.requestlog import RequestLog, line_of
from tradewind.gateway.saved import SavedState, SavedView
from tradewind.gateway.sections import model_infos, scoring_settings
from tradewind.gateway.steering import Steering, Step
from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder, Routing
from tradewind.model.view import GatewayReport, GridView, PathReading, ViewDelta
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import ModelInfo, settings_of
from tradewind.xds.snapshot import Snapshot

MAX_REASON_CHARS = 200


class Effects(Protocol):
    """What the worker causes outside of itself."""

    def publish(self, snapshot: Snapshot) -> None: ...

    def probe(self, order: ProbeOrder) -> None: ...

    def sync_cells(self, addresses: dict[str, str]) -> None:
        """Probe the paths to exactly these cells."""

    def unreachable(self) -> frozenset[str]: ...

    def tick_soon(self) -> None: ...

    def report_soon(self) -> None: ...

    def save_soon(self) -> None: ...


@dataclass(slots=True)
class PushState:
    """How often Envoy was told something, and what is held back."""

    snapshots: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    last_s: float | None = None
    held_back: int = 0
    update_us: float | None = None
    version: str = ""


class Worker:
    """One gateway without its event loop. Every method is quick; `effects` reach the outside."""

    def __init__(
        self,
        config: GridConfig,
        gateway: GatewayConfig,
        *,
        effects: Effects,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        rng: random.Random,
        findings: Findings = NO_FINDINGS,
    ) -> None:
        """`findings`: which gates the Envoy of this gateway takes."""
        state_dir = gateway_dir(config, gateway.id)
        self.config = config
        self.gateway = gateway
        self.ring = EventRing(unix_clock)
        self.book = OutcomeBook()
        self.request_log = RequestLog(state_dir / "requests.ndjson")
        self.saved = SavedView(state_dir / "view.json", gateway.id)
        self.push = PushState()
        self.last: Step | None = None
        self.paths: dict[str, PathReading] = {}
        self.outcomes = 0
        self.unattributed = 0
        self.steering = Steering(
            merger=ViewMerger(gateway.id),
            scorer=make_scorer(gateway.scoring, gateway.baseline, scoring_settings(config, gateway)),
            rng=rng,
            reach=gateway.reach,
            models=frozenset(config.models),
        )
        self.desk: PickDesk | None = make_desk(config, gateway, clock=clock, rng=rng)
        self.steering.told.picks = self.desk is not None
        self._rng = rng
        self._effects = effects
        self._clock = clock
        self._unix_clock = unix_clock
        self._findings = findings
        self.gate = choose(gateway, findings)
        self._builder = SnapshotBuilder(settings_of(gateway, gate=self.gate.module))
        self._models: tuple[ModelInfo, ...] = ()
        self._known: frozenset[str] = frozenset()
        self._reports = Reports(gateway.id, gateway.site, clock)
        self.following = Following()
        self._cells: dict[str, str] = {}  # cell id -> address as this gateway reaches it
        self._cell_at: dict[str, str] = {}
        self._saved_key: object = None
        self._refusals: tuple[tuple[str, int], ...] = ()  # that taught limits, as of the last tick
        self._refused: frozenset[str] = frozenset()  # addresses of endpoints that Envoy would not take

    # --- start ------------------------------------------------------------------------------------------------

    def restore(self) -> bool:
        """Publish what the disk remembers; False when it remembers nothing."""
        state = self.saved.load()
        if state is None:
            return False
        now_s = self._clock()
        restored = self.steering.restore(state, now_s=now_s)
        view = self.steering.merger.view(now_s=now_s)
        self._take_cells(view)
        self._take_models(view, self.steering.told.known_models(view))
        if self.desk is not None:
            self.desk.observe_view(view, now_s)
            self.desk.picker.recall(state.memory.limits, now_s)
        self._follow()
        self.ring.add("view.restored", None, f"{len(state.cells)} cells from disk")
        self._publish(restored, started_s=time.perf_counter())
        return True

    # --- evidence ---------------------------------------------------------------------------------------------

    def on_delta(self, control_id: str, delta: ViewDelta) -> None:
        """A message of one control's view stream."""
        if self.desk is not None:
            self.desk.hear(control_id, delta, self._controls, self._clock())
        if self.steering.observe(control_id, delta, now_s=self._clock()):
            self._effects.tick_soon()
        self._follow()

    def on_control_lost(self, control_id: str) -> None:
        """The stream to one control ended; its knowledge ages from now on."""
        self.steering.merger.disconnected(control_id)
        self._reports.lost(control_id)
        if self.desk is not None:
            self.desk.sharing.lost(control_id, self._controls, self._clock())
        self._follow()

    @property
    def _controls(self) -> list[str]:
        return [control.id for control in self.config.controls]

    def _follow(self) -> None:
        """Pick by the order of a tuner that is to be followed now; a gateway of weights has nothing to tune."""
        order = self.steering.merger.order(self._controls)
        if self.desk is not None and self.following.follow(order, self.desk.picker):
            self.ring.add("tuner.followed", None, described(order))
            self._effects.save_soon()

    def on_path(self, reading: PathReading, changed: bool) -> None:
        """A verdict of one path prober."""
        known = reading.cell_id in self.paths
        self.paths[reading.cell_id] = reading
        urgent = self.steering.scorer.observe_path(reading, self._clock())
        if self.desk is not None:
            self.desk.picker.observe_path(reading, self._clock())
        if changed:
            if known or reading.reachable is False:
                state = "reachable" if reading.reachable else "unreachable"
                self.ring.add(f"path.{state}", reading.cell_id, self._cells.get(reading.cell_id, ""))
            self._effects.report_soon()
        if changed or urgent:
            self._effects.tick_soon()

    def on_outcome(self, outcome: Outcome) -> None:
        """A finished client request."""
        now_s = self._clock()
        self.outcomes += 1
        self.unattributed += outcome.cell_id is None
        if self.steering.scorer.observe_outcome(outcome, now_s):
            self._effects.tick_soon()
        sent = self.desk.on_outcome(outcome, now_s) if self.desk is not None else None
        self.book.add(outcome, known_models=self._known, now_s=now_s)
        self.request_log.add(line_of(outcome, at_unix_s=self._unix_clock(), sent=sent))

    def on_probe(self, order: ProbeOrder, outcome: Outcome) -> None:
        """The answer to a synthetic request; never counted as a user's."""
        now_s = self._clock()
        self.ring.add("probe.answered", order.cell_id, f"{order.prompt_bytes} bytes: status {outcome.status}")
        if self.desk is not None and 200 <= outcome.status < 300:
            self.desk.picker.probe_served(order.cell_id, order.prompt_bytes, outcome.prompt_tokens, now_s)
        if self.steering.scorer.observe_probe(order.cell_id, order, outcome.status, now_s):
            self._effects.tick_soon()

    def on_question(self, question: Question) -> Reply:
        """Envoy asks where a request should go."""
        return LEFT_TO_SHARES if self.desk is None else self.desk.answer(question)

    def on_unheard(self, reply: Reply) -> None:
        """Envoy did not wait for this answer."""
        if self.desk is not None:
            self.desk.unheard(reply, self._clock())

    def on_refused(self, addresses: frozenset[str]) -> None:
        """Endpoints that Envoy has refused, as of now."""
        self._refused = addresses
        self._tell_unroutable()

    def _tell_unroutable(self) -> None:
        """What Envoy was not told, or would not take, is not picked."""
        if self.desk is not None:
            left_out = {name for name, _ in self.push.refused}
            nacked = {cell_id for cell_id, address in self._cells.items() if address in self._refused}
            self.desk.picker.set_unroutable(frozenset(left_out | nacked))

    def cell_at(self, address: str) -> str | None:
        """Which cell answers at "ip:port" as this gateway reaches it."""
        return self._cell_at.get(address)

    # --- decision ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Decide, and tell Envoy if it should know."""
        started_s = time.perf_counter()
        now_s = self._clock()
        for cell_id in self.steering.merger.forget(self._effects.unreachable(), now_s=now_s):
            self.ring.add("cell.forgotten", cell_id, "unreachable, and no control has listed it for ten minutes")
        step = self.last = self.steering.tick(now_s=now_s)
        self._take_cells(step.view)
        failed = self.desk.tick(step.view, step.decision.rows, now_s) if self.desk is not None else ()
        self.ring.take((*step.events, *failed), now_s=now_s)
        models_changed = self._take_models(step.view, step.known)
        target = self.steering.in_force if step.publish is None and models_changed else step.publish
        if target is not None and (not self.gateway.baseline or step.membership_changed or models_changed):
            self._publish(target, started_s=started_s)
        else:
            self.push.held_back += 1
        for order in step.decision.probes:
            self._effects.probe(order)
        if step.membership_changed:
            self._effects.report_soon()
        refusals = self.desk.picker.fleet.refusals() if self.desk is not None else ()
        if refusals != self._refusals:
            self._refusals = refusals
            self._effects.save_soon()

    def apply(self, config: GridConfig) -> str:
        """Take a changed grid file; says why not, or "" when applied. Requests in flight are untouched."""
        gateway = find_gateway(config, self.gateway.id)
        if gateway is None:
            return f"gateway {self.gateway.id!r} is no longer in the file; stop this process to remove it"
        old_scoring = (self.gateway.scoring, self.gateway.baseline, scoring_settings(self.config, self.gateway))
        scoring = (gateway.scoring, gateway.baseline, scoring_settings(config, gateway))
        if scoring != old_scoring:
            self.steering.scorer = make_scorer(*scoring)
        self.steering.told.reach, self.steering.told.models = gateway.reach, frozenset(config.models)
        self._apply_pick(config, gateway)
        gate = rechosen(self.gate, self.gateway, gateway, self._findings)
        new, old = settings_of(gateway, gate=gate.module), settings_of(self.gateway, gate=self.gate.module)
        rebuild = new != old
        self.config, self.gateway, self.gate = config, gateway, gate
        if rebuild:
            self._rebuild()
        self.ring.add("config.applied", None, "scoring and limits" if rebuild else "no limit changed")
        self._effects.tick_soon()
        return ""

    def on_gate_refused(self, reason: str) -> None:
        """Envoy refused clusters; if that was for the gate in them, it goes, so that the next ones are taken."""
        if self.gate.module is None or not blames_gate(reason):
            return
        self.gate = withdrawn(self.gate, reason[:MAX_REASON_CHARS])
        self.ring.add("gate.withdrawn", None, self.gate.why)
        self._rebuild()

    def _rebuild(self) -> None:
        """Everything that Envoy is told, anew."""
        self._builder = SnapshotBuilder(settings_of(self.gateway, gate=self.gate.module))
        if self.steering.in_force is not None:
            self._publish(self.steering.in_force, started_s=time.perf_counter())

    def _apply_pick(self, config: GridConfig, gateway: GatewayConfig) -> None:
        """A picker keeps what it has learned unless how it decides has changed."""
        decides = _decides(config, gateway) != _decides(self.config, self.gateway)
        if decides or self.desk is None:
            self.desk = make_desk(config, gateway, clock=self._clock, rng=self._rng)
            self.steering.told.picks = self.desk is not None
            self._tell_unroutable()
            if self.desk is not None:
                self.desk.picker.set_order(self.following.order)
            return
        self.desk.configure(desk_settings(config, gateway))
        self.desk.picker.set_reach(gateway.reach)

    def _publish(self, target: Routing, *, started_s: float) -> None:
        snapshot = self._builder.build(target, self._models)
        self.push.update_us = (time.perf_counter() - started_s) * 1e6
        if snapshot.refused != self.push.refused:
            for name, reason in snapshot.refused[:20]:
                self.ring.add("snapshot.refused", name, reason)
        self.push.refused = snapshot.refused
        self._tell_unroutable()
        self.push.held_back = 0
        self.push.last_s = self._clock()
        if snapshot.version == self.push.version:
            return
        self.push.version = snapshot.version
        self.push.snapshots += 1
        self._effects.publish(snapshot)

    def _take_models(self, view: GridView, known: frozenset[str]) -> bool:
        """Follow what `GET /v1/models` should say; True when it changed."""
        models = model_infos(view, known)
        changed = models != self._models
        self._models, self._known = models, known
        return changed

    def _take_cells(self, view: GridView) -> None:
        """Follow the membership of the view: probers, counters and the way back from an address to its cell."""
        reach = self.steering.told.reach
        cells = {item.cell.cell_id: reach.get(item.cell.cell_id) or item.cell.address for item in view.cells}
        if cells == self._cells:
            return
        self._cells = cells
        self._cell_at = {address: cell_id for cell_id, address in sorted(cells.items(), reverse=True)}
        self.paths = {cell_id: path for cell_id, path in self.paths.items() if cell_id in cells}
        self.book.keep_only(frozenset(cells))
        self._effects.sync_cells(cells)

    # --- what others want to know -----------------------------------------------------------------------------

    def address_of(self, cell_id: str) -> str | None:
        """Where this gateway reaches a cell; None when it left."""
        return self._cells.get(cell_id)

    def api_key_env_of(self, cell_id: str) -> str:
        """The name of the environment variable with the key of a cell's engine; "" for none."""
        cell: CellConfig | None = next((item for item in self.config.cells if item.id == cell_id), None)
        return cell.api_key_env if cell else ""

    def report(self, control_id: str) -> GatewayReport:
        """What happened lately that this stream should know, and the state of every path."""
        now_s, picker = self._clock(), self.desk.picker if self.desk is not None else None
        key, placed = self.desk.sharing.report(control_id, now_s) if self.desk is not None else (None, ())
        return self._reports.make(
            control_id,
            cells=self._cells,
            paths=self.paths,
            book=self.book,
            outstanding=picker.outstanding() if picker is not None else {},
            weights=self.weights(),
            rows=self.last.decision.rows if self.last else (),
            rates=learned_rates(picker.fleet.cells()) if picker is not None else {},
            samples=self.following.samples(control_id, picker, now_s),
            prefix_key=key,
            placed=placed,
        )

    def weights(self) -> dict[str, int]:
        """Weights that Envoy was told, by cell; in several pools the largest."""
        weights: dict[str, int] = {}
        for pool in self.steering.in_force.pools if self.steering.in_force else ():
            for endpoint in pool.endpoints:
                weights[endpoint.cell_id] = max(endpoint.weight, weights.get(endpoint.cell_id, 0))
        return weights

    def state_to_save(self) -> SavedState | None:
        """What the disk should hold now, or None when it holds it already."""
        now_s = self._clock()
        limits = self.desk.picker.fleet.remembered(now_s)[:MAX_ROWS] if self.desk is not None else ()
        order = self.following.order
        state = self.steering.saved_state(self.gateway.id, limits=limits, order=order, now_s=now_s)
        if state is None:
            return None
        cells = tuple((item.cell, item.state, item.incarnation, item.draining) for item in state.cells)
        key = (state.routing, cells, state.memory.verdicts, state.memory.refusals, order)
        if key == self._saved_key:
            return None
        self._saved_key = key
        return state

    def not_saved(self) -> None:
        """The disk refused: offer the same state again."""
        self._saved_key = None


def _decides(config: GridConfig, gateway: GatewayConfig) -> tuple[object, ...]:
    """What a picker is built from, and cannot change while it runs."""
    own = (gateway.pick.policy, gateway.pick.session_header, gateway.pick.capture, gateway.pick.capture_max_bytes)
    return (gateway.routing, gateway.site, own, config.models)
