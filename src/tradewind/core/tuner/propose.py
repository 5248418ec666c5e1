"""Which weights a fit asks for: the physical default unless first tokens show otherwise, in bounded steps."""

from typing import NamedTuple

from tradewind.core.numbers import clip
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.fit import Fit, Ratio
from tradewind.core.tuner.settings import ProposalSettings
from tradewind.model.tuning import Weights


class Proposal(NamedTuple):
    """Weights worth a comparison, and why."""

    weights: Weights
    reason: str
    figures: tuple[tuple[str, float], ...]


def propose(fitted: Fit, now: Weights, box: Box, settings: ProposalSettings, *, homewards: bool) -> Proposal | None:
    """None if the weights in force agree with the fit, or it is not sure enough. `homewards`: towards physics only."""
    child = box.clipped(
        Weights(_target(fitted.rtt, now.rtt, settings), _target(fitted.queue, now.queue, settings)),
    )
    if homewards:
        child = Weights(*map(_on_the_way, child, now))
    rtt = child.rtt if _worth(child.rtt, now.rtt, settings) else now.rtt
    queue = child.queue if _worth(child.queue, now.queue, settings) else now.queue
    child = box.clipped(Weights(rtt, queue))
    if child == now:
        return None
    said = [
        f"{name} {_in_words(ratio)}, {before:.3g} -> {after:.3g}"
        for name, ratio, before, after in (
            ("rtt", fitted.rtt, now.rtt, child.rtt),
            ("queue", fitted.queue, now.queue, child.queue),
        )
        if before != after
    ]
    reason = (
        "seconds of first tokens per second of prefill, "
        f"over {fitted.requests:,} requests (prefill t {fitted.prefill_t:.1f}): "
        f"{'; '.join(said)} (within x{settings.dead_band:g} of 1 counts as 1)"
    )
    return Proposal(child, reason, figures(fitted))


def leaves_physics(child: Weights, parent: Weights) -> bool:
    """Whether a weight goes elsewhere than towards the physical default, beyond it for instance."""
    return any(_on_the_way(one, other) != one for one, other in zip(child, parent, strict=True))


def _on_the_way(child: float, now: float) -> float:
    """The nearest between here and 1."""
    return clip(child, min(now, 1.0), max(now, 1.0))


def figures(fitted: Fit) -> tuple[tuple[str, float], ...]:
    """For machines."""
    named = [("requests", float(fitted.requests)), ("prefill_t", fitted.prefill_t), ("prefill_slope", fitted.prefill)]
    for name, ratio in (("rtt", fitted.rtt), ("queue", fitted.queue)):
        if ratio is not None:
            named += [(f"{name}_ratio", ratio.value), (f"{name}_error", ratio.error)]
    return tuple(named)


def _target(ratio: Ratio | None, now: float, settings: ProposalSettings) -> float:
    """Where this weight should go, a step at most; `now` where nothing is known against it."""
    band = settings.dead_band
    if ratio is None:
        wanted = now if 1.0 / band <= now <= band else 1.0
    else:
        reach = settings.told * ratio.error
        sure = abs(ratio.value - now) > settings.least_t * ratio.error or reach >= now
        wanted = _wanted(ratio, reach, settings) if sure else now
    return clip(wanted, now / settings.step, now * settings.step)


def _wanted(ratio: Ratio, reach: float, settings: ProposalSettings) -> float:
    band = settings.dead_band
    if ratio.value - reach <= band and ratio.value + reach >= 1.0 / band:
        return 1.0  # what is not shown to be outside of the dead band counts as 1
    return ratio.value if ratio.value > reach else max(settings.floor, ratio.value)


def _worth(child: float, now: float, settings: ProposalSettings) -> bool:
    return max(child / now, now / child) > 1.0 + settings.least_change


def _in_words(ratio: Ratio | None) -> str:
    return "cannot be told" if ratio is None else f"{ratio.value:.2f} +- {2.0 * ratio.error:.2f}"
