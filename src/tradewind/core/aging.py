"""Ages travel, times do not: whoever has held a reading adds for how long."""

from dataclasses import replace

from tradewind.model.telemetry import Telemetry


def aged(telemetry: Telemetry, *, held_s: float) -> Telemetry:
    """The same readings, `held_s` older; an unknown age stays unknown."""
    cache = telemetry.cache
    return replace(
        telemetry,
        engine_age_s=None if telemetry.engine_age_s is None else telemetry.engine_age_s + held_s,
        gpu_age_s=None if telemetry.gpu_age_s is None else telemetry.gpu_age_s + held_s,
        cache=cache
        if cache is None or cache.untouched_s is None
        else replace(cache, untouched_s=cache.untouched_s + held_s),
    )
