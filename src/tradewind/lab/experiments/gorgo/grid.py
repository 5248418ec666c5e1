"""The declared grid and windows: three 2 x L40S cells far apart, and loads with the published statistics."""

import random
from dataclasses import dataclass, replace

from tradewind.sim.scenario import Delays, Scenario
from tradewind.sim.scenarios import SCENARIOS
from tradewind.workload.arrivals import poisson
from tradewind.workload.art import ArtShape, art_trace
from tradewind.workload.mooncake import Trace, TracedRequest

WINDOW_S = 1_800.0
OLD_S = 30.0  # age of the metrics that the published baselines read
STALE = f" (metrics {OLD_S:g} s old)"
REPEATED_TOKENS = 17  # of the prompt that makes up a third of the requests of April 5
REPEATED = "repeated"


_SHAPE = ArtShape(system_prompt_ratio=0.0)  # cross-user reuse is 0.3 %
# A third of the requests of April 5 are short, so the others are longer than those of the other days.
_LONGER = replace(_SHAPE, first_mu=8.42, first_sigma=0.95, multi_turn_ratio=0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Half an hour of the trace, by its published figures."""

    name: str
    requests: int
    users: int
    repeated_ratio: float = 0.0  # of the requests are one and the same short prompt
    shape: ArtShape = _SHAPE


APR_5 = Window(name="Apr 5", requests=7_195, users=590, repeated_ratio=0.32, shape=_LONGER)
APR_6 = Window(name="Apr 6", requests=7_630, users=590)
APR_7 = Window(name="Apr 7", requests=8_663, users=560)
WINDOWS = {window.name: window for window in (APR_5, APR_6, APR_7)}


def window_trace(rng: random.Random, window: Window, *, for_s: float, time_scale: float) -> Trace:
    """The first `for_s` seconds of the window; `time_scale` multiplies every gap.

    Sessions are named by the first text of a prompt, as the published session affinity hashes it.
    """
    rate = window.requests / WINDOW_S
    shape = replace(window.shape, users=window.users, rate_per_s=rate * (1.0 - window.repeated_ratio))
    others = art_trace(rng, shape=shape, for_s=for_s)
    named = [replace(request, session=_first_text(request, number)) for number, request in enumerate(others.requests)]
    if window.repeated_ratio:
        times = poisson(rng, rate_per_s=rate * window.repeated_ratio, for_s=for_s)
        named += [_repeated(at_s, shape.output_tokens) for at_s in times]
    named.sort(key=lambda request: request.at_s)
    return replace(others, requests=tuple(replace(request, at_s=request.at_s * time_scale) for request in named))


def _first_text(request: TracedRequest, number: int) -> str:
    return f"text-{request.block_ids[0]}" if request.block_ids else f"alone-{number}"


def _repeated(at_s: float, output_tokens: int) -> TracedRequest:
    return TracedRequest(
        at_s=at_s, prompt_tokens=REPEATED_TOKENS, output_tokens=output_tokens, session=REPEATED, kind=REPEATED
    )


def grid(window: Window, *, for_s: float, time_scale: float, old_metrics: bool) -> Scenario:
    """S1's cells and paths under this window."""
    far = SCENARIOS["S1-ts1"]
    cells = tuple(replace(spec, cell_id=f"replica-{number}") for number, spec in enumerate(far.cells, start=1))
    return replace(
        far,
        name=f"gorgo-{window.name}-{time_scale:g}",
        title=f"3 x (2 x L40S), window like {window.name}, time scale {time_scale:g}",
        cells=cells,
        load=lambda rng: window_trace(rng, window, for_s=for_s, time_scale=time_scale),
        for_s=for_s * time_scale,
        delays=replace(Delays(), scrape_s=OLD_S) if old_metrics else Delays(),
    )
