"""When the endpoint weights that Envoy falls back on must follow the shares.

Exact shares ride in the routes; the weights of the endpoint set serve what Lua does not pick: retries, and a share
table that names a host Envoy does not have yet. Sending both with every tick doubles the time to the ACK and makes
Envoy fill its MAGLEV table anew, for weights that hardly anything uses. So a set stands until its members change, or
a share is off by more than a factor: what falls back is spread at worst so far from the shares, and a cell that turns
bad is left by the fallback in the same push.
"""

from collections.abc import Sequence

from tradewind.model.routing import Endpoint

MAX_SHARE_RATIO = 2.0  # telemetry's noise stays within it, a ramp from 1 to 134 crosses it seven times


def still_serves(held: Sequence[Endpoint], wanted: Sequence[Endpoint]) -> bool:
    """True while an endpoint set made of `held` may stand where `wanted` is to be served."""
    if [(e.address, e.site) for e in held] != [(e.address, e.site) for e in wanted]:
        return False
    if not held:
        return True
    old, new = [e.weight for e in held], [e.weight for e in wanted]
    scale = sum(old) / sum(new)
    ratios = [after / before for before, after in zip(old, new, strict=True)]
    return max(ratios) * scale <= MAX_SHARE_RATIO and min(ratios) * scale >= 1 / MAX_SHARE_RATIO
