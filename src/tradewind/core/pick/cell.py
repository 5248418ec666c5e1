"""One cell as the picker sees it: what the view says of it, the path to it, and what is booked on it."""

from collections.abc import Container
from hashlib import blake2b
from math import exp, inf
from typing import NamedTuple

from tradewind.core.numbers import known, ratio
from tradewind.core.pick.calibration import CellSamples
from tradewind.core.pick.limits import LearnedLimit
from tradewind.core.pick.rates import Rates
from tradewind.core.pick.settings import CostSettings
from tradewind.core.pick.work import Work
from tradewind.model.cell import CellState
from tradewind.model.telemetry import CacheReading, EngineReading
from tradewind.model.view import CellView

MODALITIES_LABEL = "modalities"  # an operator's list, e.g. "image,audio"; without it nothing is ruled out


class OthersLoad(NamedTuple):
    """What other gateways have in flight on a cell, summed over them."""

    requests: float = 0
    prefill_tokens: float = 0  # uncached, awaiting their first token
    decoding: float = 0
    age_s: float = 0.0  # when this was handed over


class PickCell:
    """Plain fields: read on every request, written by the picker alone."""

    __slots__ = (
        "address",
        "cell_id",
        "clearings",
        "cooling_s",
        "doubtful_s",
        "drained",
        "engine_start_s",
        "host",
        "incarnation",
        "key",
        "kv_capacity_tokens",
        "kv_fill",
        "learned",
        "limit",
        "modalities",
        "models",
        "others",
        "others_s",
        "predicted_hit_tokens",
        "queue_requests",
        "rates",
        "ready",
        "refuses",
        "rtt_s",
        "running_requests",
        "samples",
        "sent_before_reading",
        "served_hit_tokens",
        "site",
        "told",
        "unroutable",
        "untouched_s",
        "weight",
        "why",
        "work",
    )

    def __init__(self, cell_id: str, rates: Rates, work: Work, samples: CellSamples) -> None:
        self.cell_id = cell_id
        self.key = int.from_bytes(blake2b(cell_id.encode(), digest_size=8).digest(), "big")
        self.rates, self.work, self.samples = rates, work, samples
        self.learned = LearnedLimit()
        self.site = self.address = self.host = self.incarnation = self.why = ""
        self.models: tuple[str, ...] = ()
        self.modalities: frozenset[str] | None = None
        self.ready = self.drained = False
        self.refuses: tuple[tuple[str, int], ...] = ()  # (model, bytes): a verdict on requests from this size on
        self.unroutable = False  # the proxy would not take its address: a pick of it is served elsewhere
        self.limit = inf  # max_model_len as the engine states it
        self.kv_capacity_tokens = rates.kv_capacity_tokens
        self.rtt_s: float | None = None
        self.weight = 1
        self.cooling_s = -inf  # asked for less; until then it gets nothing
        self.doubtful_s = -inf  # could not be reached; until then others are preferred
        self.engine_start_s: float | None = None
        self.queue_requests: float | None = None
        self.running_requests: float | None = None
        self.kv_fill: float | None = None
        self.sent_before_reading = 0  # dispatches that the engine's last reading may have seen
        self.others = OthersLoad()
        self.others_s = 0.0  # their prefill work, already weighted by its age at the handing over
        self.predicted_hit_tokens = 0
        self.served_hit_tokens = 0
        self.told = False  # its engine's KV events are listened to
        self.clearings: int | None = None  # of its cache, as this agent process has counted
        self.untouched_s: float | None = None  # what no request has used for longer is not in its cache

    def observe(self, view: CellView, address: str) -> bool:
        """Takes the newest view. True when the engine's cache must be thought empty."""
        cell, capabilities = view.cell, view.cell.capabilities
        self.site, self.models = cell.site, capabilities.models
        self.set_address(address)
        self.ready = view.state is CellState.READY
        self.why = "" if self.ready else view.reason or view.state.value
        self.limit = inf if capabilities.max_model_len is None else capabilities.max_model_len
        self.kv_capacity_tokens = capabilities.kv_capacity_tokens or self.rates.kv_capacity_tokens
        listed = dict(cell.labels).get(MODALITIES_LABEL)
        self.modalities = None if listed is None else frozenset(filter(None, listed.replace(" ", "").split(",")))
        return self._observe_engine(view)

    def set_address(self, address: str) -> None:
        """How this gateway reaches it; a subset hint may name the host alone."""
        if address != self.address:
            self.address = address
            self.host = address.rpartition(":")[0].strip("[]")

    def within(self, addresses: Container[str]) -> bool:
        """Whether a hint allows it: its "ip:port" is named, or its host alone."""
        return self.address in addresses or self.host in addresses

    def refuses_like(self, model: str, request_bytes: int) -> bool:
        """Whether a verdict is about such requests. A limit in tokens that refusals have taught stands for it."""
        if not self.refuses or self.learned.explains:
            return False
        return any(request_bytes >= least and model in (name, "") for name, least in self.refuses)

    def _observe_engine(self, view: CellView) -> bool:
        engine = view.telemetry.engine
        started_s = known(engine.start_time_s) if engine is not None else None
        restarted = started_s is not None and self.engine_start_s is not None and started_s != self.engine_start_s
        replaced = bool(self.incarnation) and view.incarnation != self.incarnation
        if replaced and self.engine_start_s is None:
            restarted = True  # nothing will ever say that the engine lived through it
        if restarted or replaced:
            self.learned.clear()
        cleared = self._observe_cache(view.telemetry.cache, same_agent=not replaced)
        self.incarnation = view.incarnation
        if started_s is not None:
            self.engine_start_s = started_s
        self._observe_load(engine)
        return restarted or cleared or (engine is not None and engine.sleeping is True)

    def _observe_cache(self, cache: CacheReading | None, *, same_agent: bool) -> bool:
        """True when it was emptied since the last view."""
        self.told = cache is not None
        self.untouched_s = known(cache.untouched_s) if cache is not None else None
        before = self.clearings if same_agent else None
        # Untold of a while, the count goes on: an emptying meanwhile must show when the agent hears again.
        self.clearings = cache.clearings if cache is not None else before
        return before is not None and self.clearings is not None and self.clearings > before  # fewer: counted anew

    def _observe_load(self, engine: EngineReading | None) -> None:
        if engine is None:
            self.queue_requests = self.running_requests = self.kv_fill = None
            return
        self.queue_requests = known(engine.queue_requests)
        self.running_requests = known(engine.running_requests)
        self.kv_fill = ratio(known(engine.kv_fill_ratio))
        self.sent_before_reading = self.work.dispatches

    def observe_others(self, load: OthersLoad, decay_s: float) -> None:
        """Takes what other gateways have in flight; its age at this moment is in the value."""
        fresh = exp(-load.age_s / decay_s)
        tokens = load.prefill_tokens
        self.others = OthersLoad(fresh * load.requests, fresh * tokens, fresh * load.decoding)
        rates = self.rates
        work_s = tokens * rates.b_s + rates.chunks(tokens) * rates.a0_s if tokens > 0 else 0.0
        self.others_s = rates.prefill_factor * fresh * work_s

    def kv_penalty_s(self, settings: CostSettings) -> float:
        """kv_i of the recipe."""
        work = self.work
        fill = work.need_tokens / self.kv_capacity_tokens
        start = settings.kv_start_ratio
        penalty_s = settings.kv_penalty_s * min(1.0, (fill - start) / (1.0 - start)) if fill > start else 0.0
        return penalty_s + settings.running_penalty_s if work.requests >= settings.max_running else penalty_s
