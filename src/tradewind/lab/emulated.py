"""Hands on emulated cells: faults begun and ended, engines killed and started, and what their own pages say."""

import asyncio
import http.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.config.schema import GridConfig
from tradewind.runtime.ask import AskFailed, ask_async
from tradewind.telemetry.engine_metrics import EngineReader

PAGE_TIMEOUT_S = 2.0
MAX_PAGE_BYTES = 2**20


class EmulatedCells:
    """The emulated cells of a settled grid. Every call raises AskFailed, with the emulator's advice."""

    def __init__(self, grid: GridConfig) -> None:
        self._grid = grid

    async def inject(
        self,
        fault: str,
        *,
        cell: str | None = None,
        site: str | None = None,
        path: tuple[str, str] | None = None,
        for_s: float | None = None,
        params: Mapping[str, object] | None = None,
    ) -> int:
        """Begin a fault; its id."""
        given = {"fault": fault, "cell": cell, "site": site, "path": path, "for_s": for_s, "params": params}
        body = {key: value for key, value in given.items() if value is not None}
        reply = await ask_async(self._api, "/faults", method="POST", body=body)
        assert isinstance(reply, dict)
        return int(reply["id"])

    async def clear(self, fault_id: int) -> None:
        """End one fault; a process that it ended starts again."""
        await ask_async(self._api, f"/faults/{fault_id}", method="DELETE")

    async def clear_all(self) -> None:
        """End every fault."""
        await ask_async(self._api, "/clear", method="POST", body={})

    async def pid(self, cell: str) -> int | None:
        """The pid of an engine, None while it is down."""
        state = await ask_async(self._api, "/state")
        assert isinstance(state, dict)
        return next((engine["pid"] for engine in state["engines"] if engine["cell"] == cell), None)

    async def counters(self) -> dict[str, "Counters"]:
        """What each engine has counted since its start; cells that do not answer are left out."""
        addresses = {cell.id: cell.url.partition("://")[2] for cell in self._grid.cells}
        read = await asyncio.gather(*(asyncio.to_thread(_counters, address) for address in addresses.values()))
        return {cell: found for cell, found in zip(addresses, read, strict=True) if found is not None}

    @property
    def _api(self) -> str:
        assert self._grid.emulation is not None, "a grid without emulation has no faults to inject"
        return self._grid.emulation.api


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Of one engine since its start; None where its page does not say."""

    finished: float | None
    prompt_tokens: float | None
    hit_tokens: float | None

    def since(self, before: "Counters") -> "Counters":
        """What was counted since then, by an engine that was not restarted in between."""
        return Counters(
            finished=_difference(self.finished, before.finished),
            prompt_tokens=_difference(self.prompt_tokens, before.prompt_tokens),
            hit_tokens=_difference(self.hit_tokens, before.hit_tokens),
        )


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def hit_ratio(counted: Sequence[Counters]) -> float | None:
    """Prompt tokens that the caches served over all; None where an engine did not say, or served nothing."""
    hits, prompts = [one.hit_tokens for one in counted], [one.prompt_tokens for one in counted]
    if None in hits or None in prompts:
        return None
    total = sum(value for value in prompts if value)
    return sum(value for value in hits if value) / total if total else None


def largest_share(counted: Sequence[Counters]) -> float | None:
    """The largest share of the requests that one cell finished; None where an engine did not say."""
    finished = [one.finished for one in counted if one.finished is not None]
    if len(finished) < len(counted) or not sum(finished):
        return None
    return max(finished) / sum(finished)


def _counters(address: str) -> Counters | None:
    try:
        reading = EngineReader().read(_page(address)).reading
    except AskFailed:
        return None
    return Counters(
        finished=reading.finished_total,
        prompt_tokens=reading.prefix_query_tokens_total,
        hit_tokens=reading.prefix_hit_tokens_total,
    )


def _page(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PAGE_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(MAX_PAGE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise AskFailed(f"http://{address}/metrics does not answer: {error}") from error
    finally:
        connection.close()
