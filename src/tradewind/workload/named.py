"""Synthetic workloads by name: the eight classes, and the ART-like conversations."""

from collections.abc import Iterator

from tradewind.workload.arrivals import POISSON, Arrivals
from tradewind.workload.art import art_trace, shape_for
from tradewind.workload.classes import CLASSES, class_named
from tradewind.workload.mooncake import Trace
from tradewind.workload.streams import stream

ART = "art"
ART_TITLE = "users' conversations as in the ART-Chat window of April 5: input mean 6.9k, P95 19.9k tokens, 128 out"
ART_SHARED = "a user's own conversation, and one system prompt: 79 % of the blocks in half an hour at 4/s"


class UnknownWorkloadError(ValueError):
    """The message names those that there are."""


def listing() -> Iterator[tuple[str, str, str]]:
    """Name, shape, and what prompts share."""
    for entry in CLASSES.values():
        yield entry.name, entry.title, entry.shared
    yield ART, ART_TITLE, ART_SHARED


def make_trace(name: str, *, seed: int, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON) -> Trace:
    """The workload called `name`; equal arguments give equal traces. Raises UnknownWorkloadError."""
    rng = stream(seed, name)
    if name == ART:
        if arrivals != POISSON:
            raise UnknownWorkloadError(f"{ART} comes by Poisson only; leave the arrivals out")
        return art_trace(rng, shape=shape_for(rate_per_s=rate_per_s, for_s=for_s))
    if name not in CLASSES:
        raise UnknownWorkloadError(f"unknown workload {name!r}; write one of: {', '.join((*CLASSES, ART))}")
    return class_named(name).make(rng, rate_per_s=rate_per_s, for_s=for_s, arrivals=arrivals)
