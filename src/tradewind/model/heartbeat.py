"""What an agent says of a cell, and how often it has said it."""

from dataclasses import dataclass

from tradewind.model.cell import Cell
from tradewind.model.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Life-cycle evidence from the engine's own loopback. None means not looked at yet."""

    reachable: bool | None = None  # connects and /health answers 200
    model_listed: bool | None = None
    warmed_up: bool | None = None  # a one-token request has finished since the engine came up
    draining: bool = False  # the operator asked the agent to drain
    reason: str = ""  # why not reachable / listed / warm, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One beat. (incarnation, sequence) orders beats of one agent; clocks never do."""

    cell: Cell
    incarnation: str  # random per agent start
    sequence: int
    evidence: Evidence
    telemetry: Telemetry
