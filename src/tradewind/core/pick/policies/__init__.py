"""Ways to choose a cell, by name: ours, and those it is compared with, on the same fresh data."""

from collections.abc import Callable, Mapping

from tradewind.core.pick.ask import Policy
from tradewind.core.pick.cost import CostModel, CostPolicy
from tradewind.core.pick.policies.affinity import CacheAware, PrefixCache, SessionAffinity
from tradewind.core.pick.policies.blind import LeastRequest, RandomCell, RoundRobin
from tradewind.core.pick.policies.load import LeastLoad, SmgLeastLoad
from tradewind.core.pick.policies.network import Gorgo, Skywalker
from tradewind.core.pick.policies.weights import Pressure
from tradewind.core.pick.settings import PickSettings

Make = Callable[[str, PickSettings, CostModel], Policy]

POLICIES: Mapping[str, Make] = {
    "cost": lambda _, settings, model: CostPolicy(model, settings.cost),
    "random": lambda *_: RandomCell(),
    "round_robin": lambda *_: RoundRobin(),
    "least_request": lambda option, *_: LeastRequest(option or "2"),
    "least_load": lambda *_: LeastLoad(),
    "session_affinity": lambda *_: SessionAffinity(),
    "prefix_cache": lambda *_: PrefixCache(),
    "cache_aware": lambda *_: CacheAware(),
    "smg_least_load": lambda option, *_: SmgLeastLoad(option),
    "gorgo": lambda option, *_: Gorgo(option or ".5/.1"),
    "skywalker": lambda option, settings, _: Skywalker(option, settings.site),
    "pressure": lambda *_: Pressure(),
}
_WITH_OPTION = {
    "least_request": "least_request:2 or least_request:N",
    "gorgo": "gorgo:.5/.1 (RTT / queue weight)",
    "skywalker": "skywalker or skywalker:blind",
    "smg_least_load": "smg_least_load or smg_least_load:polled",
}


def policy_named(name: str, settings: PickSettings, model: CostModel) -> Policy:
    """The policy written as `name`, `name:option`; ValueError with the known names for anything else."""
    base, colon, option = name.partition(":")
    if base not in POLICIES or (colon and base not in _WITH_OPTION):
        known = ", ".join(_WITH_OPTION.get(known, known) for known in sorted(POLICIES))
        raise ValueError(f"unknown pick policy {name!r}; known: {known}, or a file.py:Name of one's own")
    return POLICIES[base](option, settings, model)
