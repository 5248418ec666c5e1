"""Reads the admin APIs once a second and keeps the newest state and a short history for the page."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from tradewind.config.schema import GridConfig
from tradewind.runtime.ask import AskFailed, ask_async

Json = dict[str, object]
Ask = Callable[[str, str], Awaitable[object]]

EVERY_S = 1.0
HISTORY = 600  # samples; ten minutes
EVENTS = 200


class Feed:
    """The page's model. `poll` never raises: whoever does not answer is shown as not answering."""

    def __init__(self, grid: GridConfig, *, clock: Callable[[], float], ask: Ask = ask_async) -> None:
        self.state: Json = {"grid": grid.grid, "at_s": 0.0, "gateways": [], "controls": []}
        self._grid = grid
        self._clock = clock
        self._ask = ask
        self._started_s = clock()
        self._sequence = 0
        self._history: deque[Json] = deque(maxlen=HISTORY)
        self._events: deque[Json] = deque(maxlen=EVENTS)
        self._seen: dict[str, int] = {}  # source -> newest event sequence taken
        self._requests: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Poll for ever."""
        while True:
            await self.poll()
            await asyncio.sleep(EVERY_S)

    async def poll(self) -> None:
        """Take one look at everything."""
        gateways, controls = await asyncio.gather(
            asyncio.gather(*(self._gateway(item.id, item.site, item.admin) for item in self._grid.gateways)),
            asyncio.gather(*(self._control(item.id, item.admin) for item in self._grid.controls)),
        )
        at_s = round(self._clock() - self._started_s, 2)
        self.state = {"grid": self._grid.grid, "at_s": at_s, "gateways": gateways, "controls": controls}
        self._sequence += 1
        self._history.append(self._sample(at_s, gateways))

    def page_state(self, *, after: int) -> Json:
        """The newest state, the history samples newer than `after`, and the newest events, newest first."""
        history = [item for item in self._history if _integer(item["sequence"]) > after]
        return {**self.state, "history": history, "events": list(reversed(self._events))}

    async def _gateway(self, gateway_id: str, site: str, admin: str) -> Json:
        row: Json = {"id": gateway_id, "site": site, "admin": admin}
        try:
            status = await self._ask(admin, "/v1/status")
            await self._take_events(f"gateway {gateway_id}", admin)
        except AskFailed as error:
            return {**row, "problem": str(error)}
        return {**row, "status": status}

    async def _control(self, control_id: str, admin: str) -> Json:
        row: Json = {"id": control_id, "admin": admin}
        try:
            grid = await self._ask(admin, "/v1/grid")
            await self._take_events(f"control {control_id}", admin)
        except AskFailed as error:
            return {**row, "problem": str(error)}
        return {**row, "grid": grid}

    async def _take_events(self, source: str, admin: str) -> None:
        after = self._seen.get(source, 0)
        reply = await self._ask(admin, f"/v1/events?after={after}&limit={EVENTS}")
        rows = reply.get("events") if isinstance(reply, dict) else None
        for row in rows if isinstance(rows, list) else []:
            self._seen[source] = max(self._seen.get(source, 0), _integer(row.get("sequence")))
            self._events.append({**row, "source": source})
        if isinstance(rows, list) and not rows and isinstance(reply, dict) and _integer(reply.get("last")) < after:
            self._seen[source] = 0  # it was restarted and counts from the beginning

    def _sample(self, at_s: float, gateways: Sequence[Json]) -> Json:
        """What the figures need: weight and requests a second of each cell, over all gateways."""
        weights: dict[str, int] = {}
        rates: dict[str, float] = {}
        for gateway in gateways:
            status = gateway.get("status")
            rows = status.get("cells") if isinstance(status, dict) else None
            for row in rows if isinstance(rows, list) else []:
                cell = str(row.get("cell_id"))
                weights[cell] = weights.get(cell, 0) + _integer(row.get("weight"))
                rates[cell] = rates.get(cell, 0.0) + self._rate(str(gateway["id"]), cell, _integer(row.get("requests")))
        return {"sequence": self._sequence, "at_s": at_s, "weights": weights, "requests_per_s": rates}

    def _rate(self, gateway: str, cell: str, total: int) -> float:
        """Requests since the previous sample; a gateway that was restarted counts from 0 again."""
        before = self._requests.get((gateway, cell), total)
        self._requests[gateway, cell] = total
        return max(0, total - before) / EVERY_S


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
