"""Access-log entry -> outcome -> counters, scorer, request log: what a finished request costs the gateway's CPU."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from benchmarks.grids import cell_views
from tests.support import loglines
from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.gateway.accesslog import AccessLogServer
from tradewind.gateway.pick.server import Question
from tradewind.gateway.worker import Worker
from tradewind.lab.checks import Check, reported
from tradewind.lab.instant.usage import p50
from tradewind.model.routing import ProbeOrder
from tradewind.model.view import CellView, ViewDelta, ViewVersion
from tradewind.wire.pb import accesslog_pb2 as pb
from tradewind.xds.pick import CELL_HEADER, DECISION_HEADER
from tradewind.xds.snapshot import Snapshot

CELLS = 9
ENTRIES_PER_MESSAGE = 25  # 500 requests per second at a flush of 50 ms
FLUSH_EVERY = 250  # entries between two writes of the request log
WARM_UP = 12  # rounds until the window of a minute is full
Decide = Callable[[str, str], tuple[str, str] | None]


def bench(quick: bool) -> list[Check]:
    rounds = 20 if quick else 100
    what = "gateway, CPU per access-log entry, p50"
    return [
        reported(what, measure(rounds), unit="us"),
        reported(f"{what}, of picked requests", measure(rounds, routing="pick"), unit="us"),
    ]


def measure(rounds: int, *, messages: int = 100, routing: Literal["weights", "pick"] = "weights") -> float:
    """Microseconds of CPU per entry, from Envoy's bytes to a line on disk; median over rounds."""
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), routing=routing)
        for number in range(rounds + WARM_UP):
            spent_s = 0.0
            for seed in range(messages):
                payload = message(rig.views, seed, decide=rig.decide)
                started_s = time.process_time()
                rig.take(payload)
                spent_s += time.process_time() - started_s
            if number >= WARM_UP:
                costs.append(spent_s / (messages * ENTRIES_PER_MESSAGE) * 1e6)
    return p50(costs)


class Rig:
    """A worker over healthy cells and its access-log server, with a clock that runs at 500 requests per second."""

    def __init__(self, folder: Path, *, routing: Literal["weights", "pick"] = "weights") -> None:
        gateway = GatewayConfig(id="gw", listen="127.0.0.1:1", routing=routing)
        self.now_s = 100.0
        self.views = cell_views(CELLS, 1)
        self.worker = Worker(
            GridConfig(state_dir=str(folder), gateways=[gateway]),
            gateway,
            effects=NoEffects(),
            clock=lambda: self.now_s,
            unix_clock=time.time,
            rng=random.Random(1),
        )
        version = ViewVersion(control_id="a", incarnation="c1", counter=1)
        self.worker.on_delta("a", ViewDelta(version=version, full=True, cells=self.views))
        self.worker.tick()
        self.server = AccessLogServer(self.worker.cell_at, self.worker.on_outcome)
        self._waiting = 0

    def decide(self, request_id: str, model: str) -> tuple[str, str] | None:
        """Ask the picker as Envoy would; the decision's name and its cell's address, None where it picks none."""
        if self.worker.desk is None:
            return None
        body = b'{"model":"%s","messages":[{"role":"user","content":"hello"}],"stream":true}' % model.encode()
        reply = self.worker.on_question(Question("/v1/chat/completions", {"x-request-id": request_id}, body))
        told = dict(reply.headers)
        return (told[DECISION_HEADER], told[CELL_HEADER]) if reply.status == 200 else None

    def take(self, payload: bytes) -> None:
        """One message of Envoy's, and the request log's flush when it is due."""
        self.now_s += ENTRIES_PER_MESSAGE / 500
        self.server.take_message(pb.Message.FromString(payload))
        self._waiting += ENTRIES_PER_MESSAGE
        if self._waiting >= FLUSH_EVERY:
            self._waiting = 0
            self.worker.request_log.write(self.worker.request_log.take())


class NoEffects:
    """The outside, absent."""

    def publish(self, snapshot: Snapshot) -> None: ...

    def probe(self, order: ProbeOrder) -> None: ...

    def sync_cells(self, addresses: dict[str, str]) -> None: ...

    def unreachable(self) -> frozenset[str]:
        return frozenset()

    def tick_soon(self) -> None: ...

    def report_soon(self) -> None: ...

    def save_soon(self) -> None: ...


def message(views: tuple[CellView, ...], seed: int, *, decide: Decide) -> bytes:
    """One message as Envoy sends it: whole answers, streams, now and then a retried attempt or a refusal."""
    rng = random.Random(seed)
    return loglines.message(line for _ in range(ENTRIES_PER_MESSAGE) for line in lines(views, rng, decide))


def lines(views: tuple[CellView, ...], rng: random.Random, decide: Decide) -> Iterator[bytes]:
    """The lines of one request."""
    request_id = f"{rng.getrandbits(128):032x}"
    first, second = rng.sample(views, 2)
    model = second.cell.capabilities.models[0]
    decision, address = decide(request_id, model) or ("", second.cell.address)
    retried, refused = rng.random() < 0.01, rng.random() < 0.005
    if retried:
        yield loglines.failed_attempt(request_id, first.cell.address, status=503)
    ttft_us = rng.randrange(20_000, 400_000)
    yield loglines.line(
        request_id,
        host=address,
        status=429 if refused else 200,
        attempts=2 if retried else 1,
        route=f"pool/0123abcd/{model}",
        request_bytes=rng.randrange(200, 20_000),
        response_bytes=rng.randrange(300, 60_000),
        attempt_us=rng.randrange(100, 2_000),
        ttft_us=ttft_us,
        end_us=ttft_us + rng.randrange(100_000, 2_000_000),
        decision=decision,
        **usage(rng),
    )


def usage(rng: random.Random) -> dict[str, str]:
    """Half of the answers tell of cached tokens."""
    prompt, completion = rng.randrange(100, 4000), rng.randrange(1, 500)
    cached = f"{prompt // 2}" if rng.random() < 0.5 else ""
    return {"answer": f"{prompt},{completion},{cached},"}
