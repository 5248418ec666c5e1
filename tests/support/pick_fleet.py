"""Three fake engines behind a gateway that picks and its real Envoy, and a client that may ask why."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine, SeenRequest
from tests.fakes.views import ViewControl, ready_cell
from tests.support.gateway import Answer, Rig, gateway_rig
from tradewind.config.schema import FirstTokenConfig, PickConfig, ResidencyConfig

CELLS = ("a", "b", "c")
CHAT_PATH = "/v1/chat/completions"
HARDWARE, KV_TOKENS = "rtx-pro-6000", 140_000  # what the picker is told; the fakes answer at once
CAPTURE = "picks.ndjson"
EXPLAIN_ENV, EXPLAIN_KEY = "TRADEWIND_TEST_EXPLAIN_KEY", "may-ask"


class PickFleet:
    """What a test holds."""

    def __init__(self, rig: Rig, control: ViewControl, engines: dict[str, FakeEngine], *, state_dir: Path) -> None:
        self.rig = rig
        self._state_dir = state_dir
        self.control = control
        self.engines = engines
        self.sent = 0

    def ask(self, prompt: str = "hi", *, stream: bool = False, headers: Mapping[str, str] | None = None) -> Answer:
        """One chat request whose answer says which cell was picked."""
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 4, "stream": stream}
        return self.send(json.dumps(body).encode(), headers=headers)

    def send(self, body: bytes, *, path: str = CHAT_PATH, headers: Mapping[str, str] | None = None) -> Answer:
        """These bytes, on a connection of their own; status 0 = no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rig.port, timeout=30)
        sent = {"content-type": "application/json", "tradewind-explain": EXPLAIN_KEY, **(headers or {})}
        self.sent += 1
        try:
            connection.request("POST", path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, response.read(), headers=dict(response.getheaders()))
        except (OSError, http.client.HTTPException):
            return Answer(0, b"", whole=False)
        finally:
            connection.close()

    def ask_many(self, prompts: Sequence[str], *, at_once: int = 8) -> list[Answer]:
        """Many requests, `at_once` in flight."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self.ask, prompts))

    def served(self, cell: str) -> list[SeenRequest]:
        """Clients' requests that an engine saw; probes left out."""
        return [seen for seen in self.engines[cell].requests(CHAT_PATH) if "x-tw-probe" not in seen.headers]

    def counts(self) -> dict[str, int]:
        """Clients' requests by engine."""
        return {cell: len(self.served(cell)) for cell in self.engines}

    def everywhere(self, route: object) -> None:
        """Every engine answers chats so."""
        for engine in self.engines.values():
            engine.on(CHAT_PATH, route)  # type: ignore[arg-type]

    def in_flight(self) -> int | None:
        """Requests in flight by the picker's books, as last reported to control; None before any report."""
        reports = self.control.reports
        return sum(path.in_flight for path in reports[-1].paths) if reports else None

    def outcomes(self) -> int:
        """How many requests have ended by the gateway's count."""
        process = self.rig.status()["process"]
        assert isinstance(process, dict)
        return int(process["outcomes"])

    def settled(self) -> None:
        """Wait until the gateway has heard how everything sent so far ended, and nothing is in flight."""
        self.rig.until(lambda: self.outcomes() >= self.sent)
        told = len(self.control.reports)
        self.rig.until(lambda: len(self.control.reports) > told + 1 and self.in_flight() == 0)

    def heard(self) -> None:
        """Wait until the gateway has heard how everything sent so far ended."""
        self.rig.until(lambda: self.outcomes() >= self.sent)

    def capture(self) -> Path:
        """The file of what the picker has heard and decided."""
        return next(self._state_dir.glob(f"gateway-*/{CAPTURE}"))

    def picking(self) -> None:
        """Wait until requests are picked."""
        self.rig.until(lambda: picked(self.ask()))


def picked(answer: Answer) -> str:
    """The cell that was picked for it; "" when it went by the weights."""
    return answer.headers.get("tradewind-cell", "")


@contextlib.contextmanager
def pick_fleet(
    directory: Path,
    *,
    sites: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    routing: str = "pick",
    residency: Sequence[ResidencyConfig] = (),
    timeout_s: float = 0.05,
    first_token: FirstTokenConfig | None = None,
    policy: str = "cost",
) -> Iterator[PickFleet]:
    """Cells a, b and c, picked from once this returns; `limits`: what a cell says of its max_model_len.

    Files of policies are allowed.
    """
    sites, limits = sites or {}, limits or {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv(EXPLAIN_ENV, EXPLAIN_KEY)
        engines = {cell: stack.enter_context(FakeEngine()) for cell in CELLS}
        control = stack.enter_context(ViewControl())
        settings: dict[str, object] = {
            "routing": routing,
            "pick": PickConfig(explain_key_env=EXPLAIN_ENV, timeout_s=timeout_s, policy=policy, capture=CAPTURE),
            "allow_policy_files": True,
        }
        settings |= {"residency": list(residency), "first_token": first_token or FirstTokenConfig()}
        rig = stack.enter_context(gateway_rig(directory, [control.address], **settings))  # type: ignore[arg-type]
        for cell, engine in engines.items():
            view = ready_cell(cell, engine.address, site=sites.get(cell, "east"), max_model_len=limits.get(cell))
            known = replace(view.cell.capabilities, hardware=HARDWARE, kv_capacity_tokens=KV_TOKENS)
            control.show(replace(view, cell=replace(view.cell, capabilities=known)))
        rig.serving(*CELLS)
        fleet = PickFleet(rig, control, engines, state_dir=directory / "state")
        if routing == "pick":
            fleet.picking()
        yield fleet
