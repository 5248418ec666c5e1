"""Policies by their written form: the live picker with a policy's name, and constants changed for an experiment.

`cost`, `gorgo:.5/.1`, `least_request:N`, ...: as in configuration. After it, `;constant=value` changes a constant of
the recipe or of learning, e.g. `cost;tie_s=0;alpha=0.1`. `;index=unbounded` lets the prefix index grow without regard
to the engines' caches, as some published routers do; `bounded`, the default, is what every gateway of ours has.
"""

from dataclasses import fields, replace
from typing import Any, TypeVar

from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import CostSettings, LearningSettings, PickSettings
from tradewind.core.prefix.index import PrefixIndex
from tradewind.sim.policy import MakePolicy, Policy
from tradewind.sim.scenario import Scenario

Settings = TypeVar("Settings", CostSettings, LearningSettings)

_UNBOUNDED_BLOCKS = 1 << 18  # per cell: more than any run here has


class UnknownPolicyError(ValueError):
    """The written form names no policy, or no constant."""


def maker(written: str) -> MakePolicy:
    """Makes pickers of this written form. Raises UnknownPolicyError at once for a form that is none."""
    name, *changes = written.split(";")
    cost, learning, bounded = CostSettings(), LearningSettings(), True
    for change in changes:
        key, _, value = change.partition("=")
        if key == "index" and value in ("bounded", "unbounded"):
            bounded = value == "bounded"
        elif key in _types(cost):
            cost = _changed(cost, key, value)
        elif key in _types(learning):
            learning = _changed(learning, key, value)
        else:
            known = ", ".join(sorted(_types(cost) | _types(learning) | {"index": str}))
            raise UnknownPolicyError(f"{written!r}: unknown constant {key!r}; known: {known}")
    settings = PickSettings(cost=cost, learning=learning)
    try:
        Picker(settings, policy=name, index=PrefixIndex())
    except ValueError as error:
        raise UnknownPolicyError(str(error)) from error
    return lambda scenario: _picker(scenario, name, settings, bounded=bounded)


def _picker(scenario: Scenario, name: str, settings: PickSettings, *, bounded: bool) -> Policy:
    """The index holds each cell's KV blocks, over the number of gateways; the running cap is what engines are told."""
    index = PrefixIndex()
    for cell in scenario.cells:
        blocks = cell.kv_capacity_tokens // cell.limits.block_size_tokens // len(scenario.rtts_s)
        index.set_capacity(cell.cell_id, blocks if bounded else _UNBOUNDED_BLOCKS)
    running = min(cell.limits.max_num_seqs for cell in scenario.cells)
    settings = replace(settings, cost=replace(settings.cost, max_running=min(settings.cost.max_running, running)))
    return Picker(settings, policy=name, index=index)


def _types(settings: CostSettings | LearningSettings) -> dict[str, type]:
    return {field.name: type(getattr(settings, field.name)) for field in fields(settings)}


def _changed(settings: Settings, key: str, value: str) -> Settings:
    wanted = _types(settings)[key]
    try:
        new: float | bool = value in ("1", "true") if wanted is bool else wanted(value)
    except ValueError as error:
        raise UnknownPolicyError(f"{key}={value!r} is not a {wanted.__name__}") from error
    changed: Any = {key: new}
    return replace(settings, **changed)
