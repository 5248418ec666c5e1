"""Why one request of the demo went where it went, as the gateway that picked tells it."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from tradewind.config.schema import GatewayConfig
from tradewind.measure.record import Record
from tradewind.runtime.ask import AskFailed, ask_async

MAX_ASKED = 20  # of the newest requests, until one has a story to tell


class CandidateSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One cell that could have served it; `terms` in seconds sum up to `cost`."""

    cell_id: str
    cost: float
    terms: dict[str, float]
    probability: float


class DecisionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, as far as the demo shows it."""

    cell_id: str
    prompt_tokens: int
    candidates: list[CandidateSeen]
    excluded: list[tuple[str, str]]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's explanation of one request; what the demo does not show is skipped."""

    request_id: str
    how: str
    reason: str
    decision: DecisionSeen | None


async def why_one_cell_won(gateway: GatewayConfig, records: Sequence[Record]) -> Why | None:
    """The newest request with a clear winner among several cells, else the newest that was picked; None without."""
    newest = sorted((record for record in records if record.ok), key=lambda record: record.intended_s, reverse=True)
    found: Why | None = None
    for record in newest[:MAX_ASKED]:
        why = await _ask(gateway, record.request_id)
        if why is None or why.decision is None or why.how != "pick" or len(why.decision.candidates) < 2:
            continue
        found = found or why
        if all(one.probability == 1.0 for one in why.decision.candidates if one.cell_id == why.decision.cell_id):
            return why
    return found


async def _ask(gateway: GatewayConfig, request_id: str) -> Why | None:
    try:
        return msgspec.convert(await ask_async(gateway.admin, f"/v1/explain?id={quote(request_id, safe='')}"), Why)
    except (AskFailed, msgspec.ValidationError):
        return None


def why_lines(why: Why) -> list[str]:
    """What stands above the table."""
    decision = why.decision
    assert decision is not None, "only decisions are shown"
    left_out = ", ".join(f"{cell} ({reason})" for cell, reason in decision.excluded)
    lines = [f"{why.request_id}, about {decision.prompt_tokens} prompt tokens. {why.reason}"]
    return lines + ([f"Not eligible: {left_out}."] if left_out else [])


def why_rows(why: Why) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, cheapest cell first, in milliseconds; terms that are 0 for all are left out."""
    decision = why.decision
    assert decision is not None, "only decisions are shown"
    names = [name for name in decision.candidates[0].terms if any(one.terms.get(name) for one in decision.candidates)]
    rows = [
        [
            f"{one.cell_id} *" if one.cell_id == decision.cell_id else one.cell_id,
            f"{1e3 * one.cost:.0f}",
            *(f"{1e3 * one.terms.get(name, 0.0):.0f}" for name in names),
        ]
        for one in decision.candidates
    ]
    return ["cell", "cost, ms", *names], rows
