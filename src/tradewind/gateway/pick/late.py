"""Until when the first token of a stream must have come, as orders to Envoy's router. Pure.

Envoy's time per attempt ends with the headers, and the gate holds a stream's headers until its first token. Of other
answers the headers come when all is generated, so they have no such limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.config.schema import FirstTokenConfig
from tradewind.xds.pick import FIRST_TOKEN_HEADER, GATE_LIMIT_HEADER, HEDGE_HEADER

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSettings:
    """What happens to late streams; all off by default. Times in seconds."""

    timeout_factor: float = 0.0
    timeout_min_s: float = 30.0
    hedge_header: str = ""  # lower case; "" = off
    hedge_value: str = ""
    hedge_after_s: float = 2.0


NO_LIMITS = LateSettings()


def late_settings(section: FirstTokenConfig) -> LateSettings:
    """As the grid file says."""
    return LateSettings(
        timeout_factor=section.timeout_factor,
        timeout_min_s=section.timeout_min_s,
        hedge_header=section.hedge.header.lower(),
        hedge_value=section.hedge.value,
        hedge_after_s=section.hedge.after_s,
    )


def orders(settings: LateSettings, *, stream: bool, expected_s: float | None, asked: Mapping[str, str]) -> Headers:
    """For one request. `expected_s`: the picker's estimate of the first token; unknown means no limit by it."""
    if not stream:
        return ()
    if settings.hedge_header and asked.get(settings.hedge_header) == settings.hedge_value:
        return (*_limit(settings.hedge_after_s), (HEDGE_HEADER, "true"))
    if settings.timeout_factor and expected_s is not None:
        return _limit(max(settings.timeout_min_s, settings.timeout_factor * expected_s))
    return ()


def _limit(seconds: float) -> Headers:
    milliseconds = str(max(1, round(seconds * 1e3)))
    return ((FIRST_TOKEN_HEADER, milliseconds), (GATE_LIMIT_HEADER, milliseconds))
