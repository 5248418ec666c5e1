"""The live page's model: whoever does not answer is shown as not answering, and everything is bounded."""

import asyncio

from starlette.testclient import TestClient

from tradewind.config.schema import ControlConfig, GatewayConfig, GridConfig
from tradewind.dashboard.app import dashboard_app
from tradewind.dashboard.feed import EVENTS, HISTORY, Feed
from tradewind.runtime.ask import AskFailed

GRID = GridConfig(
    grid="g", gateways=[GatewayConfig(id="gw", admin="gw:1")], controls=[ControlConfig(id="c", admin="c:1")]
)


class Admin:
    """Answers as gateway and control would; `down` addresses do not answer."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.requests = 0
        self.events = [{"sequence": 1, "name": "cell.blind", "cell_id": "a", "at_unix_s": 1.0, "detail": ""}]

    async def __call__(self, address: str, path: str) -> object:
        if address in self.down:
            raise AskFailed(f"{address} does not answer")
        if path.startswith("/v1/events"):
            after = int(path.split("after=")[1].split("&", maxsplit=1)[0])
            newer = [event for event in self.events if int(str(event["sequence"])) > after]
            return {"events": newer, "last": newer[-1]["sequence"] if newer else after}
        return {"cells": [{"cell_id": "a", "weight": 100, "requests": self.requests}]}


def polled(feed: Feed, times: int = 1) -> None:
    for _ in range(times):
        asyncio.run(feed.poll())


def test_rates_come_from_counters_and_survive_a_restart_of_the_gateway() -> None:
    admin = Admin()
    feed = Feed(GRID, clock=lambda: 0.0, ask=admin)
    rates = []
    for requests in (5, 8, 2, 6):
        admin.requests = requests
        polled(feed)
        sample = feed.page_state(after=0)["history"]
        assert isinstance(sample, list)
        rates.append(sample[-1]["requests_per_s"]["a"])
    assert rates == [0, 3, 0, 4]


def test_parts_that_do_not_answer_are_shown() -> None:
    admin = Admin()
    admin.down = {"gw:1"}
    feed = Feed(GRID, clock=lambda: 0.0, ask=admin)
    polled(feed)
    state = feed.page_state(after=0)
    gateways, controls = state["gateways"], state["controls"]
    assert isinstance(gateways, list)
    assert isinstance(controls, list)
    assert gateways[0]["problem"] == "gw:1 does not answer"
    assert "problem" not in controls[0]


def test_events_are_taken_once_and_history_is_bounded() -> None:
    admin = Admin()
    feed = Feed(GRID, clock=lambda: 0.0, ask=admin)
    polled(feed, 3)
    state = feed.page_state(after=0)
    assert len(state["events"]) == 2  # type: ignore[arg-type] # one of the gateway, one of the control
    assert len(feed.page_state(after=2)["history"]) == 1  # type: ignore[arg-type]
    admin.events += [{**admin.events[0], "sequence": number} for number in range(2, 2 * EVENTS)]
    polled(feed, 2)
    assert len(feed.page_state(after=0)["events"]) == EVENTS  # type: ignore[arg-type]
    assert HISTORY < 10_000


def test_page_is_read_only_and_brings_its_own_script() -> None:
    admin = Admin()
    feed = Feed(GRID, clock=lambda: 0.0, ask=admin)
    polled(feed)
    with TestClient(dashboard_app(feed)) as client:
        assert "text/html" in client.get("/").headers["content-type"]
        assert "default-src 'self'" in client.get("/").headers["content-security-policy"]
        assert client.get("/page.js").status_code == client.get("/page.css").status_code == 200
        assert len(client.get("/plotly.min.js").content) > 1_000_000
        assert client.get("/api/state?after=nonsense").json()["grid"] == "g"
        assert client.post("/api/state").status_code == 405
        assert client.get("/healthz").text == "ok\n"
