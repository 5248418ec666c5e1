"""The written policies that a gateway steers without a picker: our weights, the published ones, Envoy's own.

`weights;constant=value` changes a constant of the recipe: `weights;gamma=2`, or `weights;speed.window_s=3` where
several groups have one of this name.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tradewind.core.scoring import ScoringSettings, make_scorer
from tradewind.core.settings import EjectionSettings
from tradewind.lab.simulated.constants import UnknownPolicyError, parsed
from tradewind.sim.envoy import LeastRequest, MakeBalancer, RandomHost, RoundRobin, Shares
from tradewind.sim.policy import MakePolicy
from tradewind.sim.steered import Steer, WeightsPolicy

# As the live gateway sets it: its path prober has asked twice before it calls a cell unreachable.
SETTINGS = ScoringSettings(ejection=EjectionSettings(unreachable_readings=1))
FORMS = (
    "weights",
    "published:8 or published:10",
    "envoy_round_robin",
    "envoy_least_request:2 or envoy_least_request:N",
    "envoy_random",
)
_SCORING = {"weights": "recipe", "published:8": "published-v2", "published:10": "published"}
_BASELINES: dict[str, Callable[[str], MakeBalancer]] = {
    "envoy_round_robin": lambda _: RoundRobin,
    "envoy_least_request": lambda option: lambda: LeastRequest(_choices(option)),
    "envoy_random": lambda _: RandomHost,
}


def steered_maker(name: str, changes: Sequence[str]) -> MakePolicy | None:
    """Makes policies of this form; None if it is not one of these. Raises UnknownPolicyError for a wrong constant."""
    base, _, option = name.partition(":")
    if base in _BASELINES:
        if changes:
            raise UnknownPolicyError(f"{name} has no constants to change, so {';'.join(changes)!r} must go")
        if option and base != "envoy_least_request":
            raise UnknownPolicyError(f"{base} has no option, so {':' + option!r} must go")
        make_balancer = _BASELINES[base](option)
        make_balancer()  # refuses a wrong option now
        return lambda _: WeightsPolicy(
            Steer(make_scorer("", base, SETTINGS), membership_only=True), make_balancer, name=name
        )
    if name not in _SCORING:
        return None
    settings = changed_settings(SETTINGS, changes)
    return lambda _: WeightsPolicy(Steer(make_scorer(_SCORING[name], "", settings)), Shares, name=name)


def changed_settings(settings: ScoringSettings, changes: Sequence[str]) -> ScoringSettings:
    """With each `name=value` or `group.name=value` put in. Raises UnknownPolicyError with what there is."""
    for change in changes:
        key, _, value = change.partition("=")
        group, name = _place(settings, key)
        if group:
            inner: Any = getattr(settings, group)
            settings = replace(settings, **{group: replace(inner, **{name: _value(inner, name, value)})})
        else:
            found: Any = {name: _value(settings, name, value)}
            settings = replace(settings, **found)
    return settings


def _place(settings: ScoringSettings, key: str) -> tuple[str, str]:
    """(group, name) of a constant; the group is "" for one of no group."""
    places: list[tuple[str, str]] = []
    for outer in fields(settings):
        inner = getattr(settings, outer.name)
        if is_dataclass(inner):
            places += [(outer.name, field.name) for field in fields(inner)]
        elif isinstance(inner, bool | int | float):
            places.append(("", outer.name))
    found = [(group, name) for group, name in places if key in (name, f"{group}.{name}")]
    if len(found) == 1:
        return found[0]
    names = found or places
    known = ", ".join(f"{group}.{name}" if group else name for group, name in names)
    raise UnknownPolicyError(f"{key!r} is {'several constants' if found else 'no constant'} of the weights: {known}")


def _value(of: object, name: str, value: str) -> bool | int | float:
    return parsed(f"{name}={value}", value, type(getattr(of, name)))


def _choices(option: str) -> int:
    """Envoy's choice_count; 0 = all hosts."""
    if option.upper() == "N":
        return 0
    if not option:
        return 2
    if option.isascii() and option.isdigit() and int(option) >= 2:
        return int(option)
    raise UnknownPolicyError(f"envoy_least_request takes a number of choices from 2, or N for all, not {option!r}")
