"""What a policy is asked, and what it answers."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol

from tradewind.core.pick.cell import PickCell
from tradewind.model.request import Request
from tradewind.model.tuning import Weights


class Tail(NamedTuple):
    """The part of a prefill that depends on class and match alone: chunks and seconds, as it is and at best."""

    chunks: int
    prompt_s: float
    best_chunks: int
    best_prompt_s: float


# Nominal queue and prefill, slowness, stall, own decode, requests that a prefill delays, growth of the others' steps.
Parts = tuple[float, float, float, float, float, float, float]


class Ask:
    """One request with the cells that may serve it, sorted by id, and everything known of them at this moment."""

    __slots__ = (
        "cells",
        "deepest",
        "discount",
        "load_output_tokens",
        "matches",
        "now_s",
        "others_weight",
        "output_tokens",
        "parts",
        "prompt_tokens",
        "request",
        "rng",
        "tails",
        "unknown_rtt_s",
        "weights",
    )

    def __init__(
        self,
        request: Request,
        cells: Sequence[PickCell],
        *,
        matches: Mapping[str, int],
        now_s: float,
        rng: Random,
        output_tokens: float,
        load_output_tokens: float,
        others_weight: float,
        unknown_rtt_s: float,
        weights: Weights | None = None,
    ) -> None:
        self.request = request
        self.cells = cells
        self.matches = matches  # cell id -> leading blocks held
        self.now_s = now_s
        self.rng = rng
        self.prompt_tokens = request.prompt_tokens
        self.output_tokens = output_tokens  # expected of this request
        self.load_output_tokens = load_output_tokens  # expected of the others
        self.others_weight = others_weight  # by age; 0 = nothing fresh is known
        self.unknown_rtt_s = unknown_rtt_s
        self.weights = weights  # of the RTT and queue terms, by order of a tuner; None = the policy's own
        self.tails: dict[int, Tail] = {}  # depth and class -> tail
        self.parts: dict[str, Parts] = {}  # cell id -> what its cost was made of
        self.deepest = 0  # leading blocks that the best of the cells holds
        self.discount = 0.0  # 1 - 1/A of recipe 1.5: the share of a cold prefill that later requests will pay back

    def rtt_s(self, cell: PickCell) -> float:
        """To the cell; a path that nobody has measured is as long as the others are on the whole."""
        rtt_s = cell.rtt_s
        return self.unknown_rtt_s if rtt_s is None else rtt_s

    def matched(self, cell: PickCell) -> int:
        """Tokens of the prompt that the cell is believed to hold. An engine computes at least the last one."""
        depth = self.matches.get(cell.cell_id, 0)
        return self.prompt_tokens - self.uncached(depth) if depth else 0

    def uncached(self, depth: int) -> int:
        """Tokens to compute where so many leading blocks are held."""
        prompt = self.prompt_tokens
        return max(1, min(prompt, prompt - int(depth * self.request.block_tokens))) if depth else prompt

    def load(self, cell: PickCell) -> float:
        """Requests in flight: our own, and other gateways' by age."""
        return cell.work.requests + self.others_weight * cell.others.requests


class Choice(NamedTuple):
    """All cells with their cost, cheapest first; which one was chosen; the chances of the leading ones."""

    ranked: Sequence[tuple[float, PickCell]]
    place: int
    chances: Sequence[float]  # of ranked[0], ranked[1], ...; what is missing had none


class Policy(Protocol):
    """How a cell is chosen among those that may serve a request."""

    @property
    def name(self) -> str:
        """As it is written in configuration."""
        ...

    @property
    def in_seconds(self) -> bool:
        """Whether costs are seconds; else they are the policy's own measure."""
        ...

    def choose(self, ask: Ask) -> Choice:
        """The cell for this request; the ask holds at least one."""
        ...
