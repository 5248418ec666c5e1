"""The gateways' reports as control keeps them: the newest of each, for the life cycle and for people."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tradewind.config.check import ID
from tradewind.control.beats import PeerError
from tradewind.control.feed import Feed
from tradewind.model.view import GatewayReport
from tradewind.wire.convert import report_from_pb
from tradewind.wire.pb import tradewind_pb2 as pb

MAX_REPORTS = 64  # beyond it the gateway that has been silent longest leaves the status
LOAD_KEPT_S = 5.0  # work that was reported longer ago says nothing
FORGOTTEN_S = 60.0  # a gateway that is not connected and has said nothing for so long leaves the status


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """One gateway for people."""

    report: GatewayReport
    report_age_s: float
    connected: bool
    views_sent: int
    waiting_cells: int
    waiting_blocks: int  # of other gateways' prompts
    prefixes_shared: bool  # it hashes by the key of the grid


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reported:
    report: GatewayReport
    at_s: float

    def load_pb(self, now_s: float) -> pb.GatewayLoad:
        load = pb.GatewayLoad(gateway_id=self.report.gateway_id, age_s=now_s - self.at_s)
        for path in self.report.paths:
            if path.in_flight > 0:
                load.cells.add(
                    cell_id=path.cell_id,
                    requests=path.in_flight,
                    waiting_tokens=path.waiting_tokens,
                    decoding=path.decoding,
                )
        return load


class Taken(NamedTuple):
    """A report that was read."""

    report: GatewayReport
    placed: Sequence[pb.Placed]  # for others: as it came
    other_work: bool  # in flight than in this gateway's report before


class GatewayReports:
    """The newest report per gateway id."""

    def __init__(self) -> None:
        self._reports: dict[str, _Reported] = {}  # the longest silent first

    def take(self, raw: bytes, now_s: float, *, of: str = "") -> Taken:
        """Read one report, and keep it without its samples. `of`: whose stream it came by, "" when it is the first.

        Raises PeerError when it cannot be read, or is another gateway's.
        """
        try:
            message = pb.GatewayReport.FromString(raw)
            placed = list(message.placed)
            message.ClearField("placed")  # the report does without: to decode it takes longer than to pass it on
            report = report_from_pb(message)
        except (DecodeError, ValueError) as error:
            raise PeerError("", "a report cannot be read") from error
        if not ID.fullmatch(report.gateway_id):
            raise PeerError("", "a report needs a gateway id of letters, digits, '.', '_' and '-'")
        if of not in ("", report.gateway_id):
            raise PeerError("", f"a report of another gateway on the stream of {of}")
        before = self._reports.pop(report.gateway_id, None)
        if len(self._reports) >= MAX_REPORTS:
            del self._reports[next(iter(self._reports))]
        self._reports[report.gateway_id] = _Reported(report=replace(report, samples=()), at_s=now_s)
        other_work = _work(report) != (() if before is None else _work(before.report))
        return Taken(report, placed, other_work)

    def prefix_keys(self, *, connected: Container[str], now_s: float) -> list[int]:
        """By which each gateway hashes that has been told a key, is connected, or has reported lately."""
        return [
            reported.report.prefix_key
            for gateway_id, reported in self._reports.items()
            if reported.report.prefix_key is not None
            and (gateway_id in connected or now_s - reported.at_s < LOAD_KEPT_S)
        ]

    def loads(self, *, but: str, now_s: float) -> list[pb.GatewayLoad]:
        """What every other gateway has in flight, as far as it said so lately."""
        return [
            reported.load_pb(now_s)
            for gateway_id, reported in sorted(self._reports.items())
            if gateway_id != but and now_s - reported.at_s < LOAD_KEPT_S
        ]

    def statuses(self, feeds: Iterable[Feed], now_s: float, *, prefix_key: int | None) -> list[GatewayStatus]:
        """Gateways that are connected or reported within the last minute, sorted by id."""
        connected = {feed.gateway_id: feed for feed in feeds if feed.gateway_id}
        found = []
        for gateway_id, reported in sorted(self._reports.items()):
            feed = connected.get(gateway_id)
            age_s = now_s - reported.at_s
            if feed is not None or age_s < FORGOTTEN_S:
                found.append(
                    GatewayStatus(
                        report=reported.report,
                        report_age_s=age_s,
                        connected=feed is not None,
                        views_sent=feed.sent if feed else 0,
                        waiting_cells=feed.waiting if feed else 0,
                        waiting_blocks=feed.waiting_blocks if feed else 0,
                        prefixes_shared=prefix_key is not None and reported.report.prefix_key == prefix_key,
                    )
                )
        return found


def _work(report: GatewayReport) -> tuple[tuple[str, int, int, int], ...]:
    """What is in flight, by cell."""
    return tuple((p.cell_id, p.in_flight, p.waiting_tokens, p.decoding) for p in report.paths if p.in_flight > 0)
