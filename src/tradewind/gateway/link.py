"""One gateway's stream with one control: reports out, views in, reconnected for ever with jittered backoff."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError

from tradewind.model.view import GatewayReport, ViewDelta
from tradewind.runtime.log import log_event
from tradewind.wire.convert import delta_from_pb, report_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import VIEWS

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 2.0
REPORT_S = 0.5
LOOK_S = 0.05  # how often it is looked whether a report should come sooner
MAX_SHARE = 0.02  # of a core, for reports that come sooner: of a thousand cells a report takes long
SILENCE_S = 5.0  # a control that says nothing for this long is asked anew: the path may be half open
MAX_VIEW_BYTES = 64 * 2**20


@dataclass(slots=True)
class LinkCounters:
    """What became of one link's messages and connections."""

    connects: int = 0
    failures: int = 0
    messages: int = 0
    malformed: int = 0


class ControlLink:
    """Keeps one bidirectional Views stream alive until cancelled."""

    def __init__(
        self,
        *,
        control_id: str,
        address: str,
        make_report: Callable[[], GatewayReport],
        on_delta: Callable[[ViewDelta], None],
        on_lost: Callable[[], None],
        hurry: Callable[[], float | None],
        rng: random.Random,
    ) -> None:
        self.control_id = control_id
        self.address = address
        self.counters = LinkCounters()
        self._make_report = make_report
        self._on_delta = on_delta
        self._on_lost = on_lost
        self._hurry = hurry
        self._rng = rng
        self._report_now = asyncio.Event()
        self._full_expected = True
        self._bug: Exception | None = None

    def report_soon(self) -> None:
        """Send a report at once instead of at the next half second."""
        self._report_now.set()

    async def run(self) -> None:
        """Connect, exchange, and start again when anything ends; returns only by cancellation."""
        delay_s = BACKOFF_FIRST_S
        while True:
            heard = self.counters.messages
            reason = await self._exchange()
            self._on_lost()
            self.counters.failures += 1
            delay_s = BACKOFF_FIRST_S if self.counters.messages > heard else min(BACKOFF_MAX_S, delay_s * 2)
            level = logging.INFO if delay_s < BACKOFF_MAX_S else logging.DEBUG
            log_event(log, "control.lost", level=level, control=self.control_id, address=self.address, reason=reason)
            await asyncio.sleep(delay_s * self._rng.uniform(0.5, 1.0))

    async def _exchange(self) -> str:
        """One stream from connect to end; says why it ended."""
        options = [
            ("grpc.max_receive_message_length", MAX_VIEW_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.use_local_subchannel_pool", 1),  # a fresh connection per attempt, without gRPC's own backoff
        ]
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            method = channel.stream_stream(
                VIEWS, request_serializer=pb.GatewayReport.SerializeToString, response_deserializer=bytes
            )
            call = method(self._reports())
            self._full_expected = True
            try:
                await self._read(aiter(call))
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {(error.details() or '')[:200]}"
            except TimeoutError:
                return f"silent for {SILENCE_S} s"
            except _MalformedView as error:
                self.counters.malformed += 1
                return str(error)
            except asyncio.CancelledError:
                if self._bug is not None:
                    raise self._bug from None
                raise
            finally:
                call.cancel()
        return "closed by control"

    async def _reports(self) -> AsyncIterator[pb.GatewayReport]:
        """A report now, then every half second, sooner with news that is in a hurry, or at once when asked; ends with
        the call."""
        while True:
            self._report_now.clear()
            started_s = time.perf_counter()
            with self._noted():
                report = report_to_pb(self._make_report())
            cost_s = time.perf_counter() - started_s
            yield report
            await self._due(cost_s / MAX_SHARE)

    async def _due(self, least_s: float) -> None:
        """Wait until the next report is due; one in a hurry comes `least_s` after the previous one at the soonest."""
        sent_s = time.monotonic()
        while (age_s := time.monotonic() - sent_s) < REPORT_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, REPORT_S - age_s)):
                    await self._report_now.wait()
                    return
            with self._noted():
                within_s = self._hurry()
            if within_s is not None and time.monotonic() - sent_s >= max(within_s, least_s):
                return

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Keep the bug: gRPC swallows what is raised here, and ends this task as if it were cancelled."""
        try:
            yield
        except Exception as bug:
            self._bug = bug
            raise

    async def _read(self, replies: AsyncIterator[bytes]) -> None:
        """Take views until the peer closes. A path may be half open, so silence has a bound."""
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    data = await anext(replies)
            except StopAsyncIteration:
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            delta = delta_from_pb(pb.ViewDelta.FromString(data))
        except (DecodeError, ValueError) as error:
            # What cannot be read may have held a change: only a new full view tells what this control knows.
            raise _MalformedView(f"malformed view: {error}") from error
        if self._full_expected and not delta.full:
            raise _MalformedView("the first view of a stream must be full")
        if self._full_expected:
            self.counters.connects += 1
            log_event(log, "control.connected", control=self.control_id, cells=len(delta.cells))
        self._full_expected = False
        self.counters.messages += 1
        self._on_delta(delta)


class _MalformedView(Exception):
    """The control sent something that is no view."""
