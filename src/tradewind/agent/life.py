"""What an agent believes of one engine, changed only through its methods; no clock, no I/O."""

from dataclasses import replace

from tradewind.agent.listing import Listing
from tradewind.model.cell import Capabilities
from tradewind.model.heartbeat import Evidence
from tradewind.telemetry.engine_metrics import EngineScrape
from tradewind.telemetry.health import HealthReading, Liveness

START_SLACK_S = 2.0  # some exporters work the start out anew for each page; no engine is up again so soon
MAX_START_S = 1e11  # beyond it are milliseconds, or nonsense


class EngineLife:
    """Evidence and capabilities of one engine. `generation` counts its starts as seen from here: what was asked of an
    older generation says nothing of this one."""

    def __init__(self, *, hardware: str, advertise_max_model_len: bool, warm_up: bool) -> None:
        self.generation = 0
        self.evidence = Evidence(reason="not looked at yet")
        self.capabilities = Capabilities(hardware=hardware or None)
        self._advertise_max_model_len = advertise_max_model_len
        self._warm_up = warm_up
        self._start_time_s: float | None = None

    @property
    def is_up(self) -> bool:
        return self.evidence.reachable is True

    @property
    def is_ready(self) -> bool:
        evidence = self.evidence
        return bool(evidence.reachable and evidence.model_listed and evidence.warmed_up)

    def health(self, reading: HealthReading) -> bool:
        """Take a verdict of the health watch; True if the engine came up or died."""
        was_up = self.is_up
        if reading.liveness is Liveness.OK:
            if not was_up:
                self._start("loading: not asked for its models yet")
            return not was_up
        if reading.liveness is Liveness.SLOW:
            # It takes connections: alive. Whether it makes progress is read elsewhere.
            if not was_up:
                self.evidence = replace(self.evidence, reachable=False, reason=reading.detail)
            return False
        self.evidence = Evidence(reachable=False, reason=reading.detail)
        if was_up:
            self.generation += 1
            self._start_time_s = None
        return was_up

    def restarted(self, start_time_s: float | None) -> bool:
        """Take the process start time of a page; True if this is another process than before. Several API processes
        behind one port take turns, so only a later start than any seen counts."""
        known = self._start_time_s
        if start_time_s is None or start_time_s > MAX_START_S:
            return False
        if known is not None and start_time_s <= known + START_SLACK_S:
            self._start_time_s = max(known, start_time_s)
            return False
        self._start_time_s = start_time_s
        if known is None or not self.is_up:
            return False
        self._start("the engine was restarted")
        return True

    def listed(self, listing: Listing, version: str | None) -> None:
        max_model_len = listing.max_model_len if self._advertise_max_model_len else None
        self.capabilities = replace(
            self.capabilities,
            models=listing.models,
            lora_models=listing.lora_models,
            max_model_len=max_model_len,
            engine_version=version or self.capabilities.engine_version,
        )
        waits = "" if self.evidence.warmed_up else "warming up"
        self.evidence = replace(self.evidence, model_listed=True, reason=waits)

    def not_listed(self, reason: str) -> None:
        self.evidence = replace(self.evidence, model_listed=False, reason=reason)

    def warmed_up(self) -> None:
        self.evidence = replace(self.evidence, warmed_up=True, reason="")

    def not_warm(self, reason: str) -> None:
        self.evidence = replace(self.evidence, warmed_up=False, reason=reason)

    def scraped(self, scrape: EngineScrape) -> None:
        """Take what a metrics page says of the engine's size and kind."""
        self.capabilities = replace(
            self.capabilities,
            engine=scrape.kind or self.capabilities.engine,
            kv_capacity_tokens=scrape.kv_capacity_tokens or self.capabilities.kv_capacity_tokens,
            block_size_tokens=scrape.block_size_tokens or self.capabilities.block_size_tokens,
        )

    def _start(self, reason: str) -> None:
        self.generation += 1
        self.evidence = Evidence(reachable=True, warmed_up=None if self._warm_up else True, reason=reason)
