"""Policies by their written form: what a live gateway runs, with constants changed for an experiment.

`weights`, `published:8`, `published:10`: the live scorer and shares, as `routing: weights`. `envoy_round_robin`,
`envoy_least_request:2`, `envoy_random`: Envoy's own policies, as the gateway's baselines. See `steered`. The rest are
policies of the live picker; with our own, `cost` and `pressure`, the scorer runs beside it as in a gateway, so that
alerts and verdicts drain cells; `round_robin` and `least_request:N` are round robin and least request of a picker.

`cost`, `gorgo:.5/.1`, `least_request:N`, ...: as in configuration. After it, `;constant=value` changes a constant of
the recipe or of learning, e.g. `cost;tie_s=0;alpha=0.1`. `;index=unbounded` lets the prefix index grow without regard
to the engines' caches, as some published routers do; `bounded`, the default, is what every gateway of ours has. In a
grid with several gateways that exchange their work these tell each other what they have sent where, too; with
`;index=own` each has only its own requests, and its share of the caches.
`;rates=10`: the table of hardware classes begins with ten times its times, with `;rates=h100:10` those of one class.

`cost;tuner=calibrator`, `gorgo:.5/.1;tuner=es`: one tuner for the whole grid moves the two weights of these policies,
and of one from a file. It starts from the policy's own weights, inside the box, or from `;start=10/1` (RTT / queue);
`;box=` says where weights may be: `shipped`, `tested` (wide, for priors that are wrong) or `published`, that of `es`.

`file.py:Name[:option]`: a class of one's own, in the picker's place (`pick`) or in that of its policy (`choose`).
"""

from dataclasses import fields, replace
from math import inf
from typing import Any, TypeVar

from tradewind.core.pick.ask import Policy as PickPolicy
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.policies.own import policy_file
from tradewind.core.pick.settings import CostSettings, LearningSettings, PickSettings
from tradewind.core.prefix.index import MAX_PLACED_BLOCKS, PrefixIndex
from tradewind.core.scoring import make_scorer
from tradewind.lab.simulated.constants import UnknownPolicyError, parsed
from tradewind.lab.simulated.own import MakePickPolicy, is_whole, own_choice, own_whole
from tradewind.lab.simulated.steered import FORMS, SETTINGS, steered_maker
from tradewind.lab.simulated.tuners import tuner_maker, without_tuner
from tradewind.model.tuning import Weights
from tradewind.runtime.policyfile import file_hash
from tradewind.sim.policy import MakePolicy, Policy
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PicksPolicy, Steer
from tradewind.sim.tuning import WithTuner

__all__ = ["UnknownPolicyError", "fingerprint", "maker"]

Settings = TypeVar("Settings", CostSettings, LearningSettings)

BOUNDED, UNBOUNDED, OWN = "bounded", "unbounded", "own"
_UNBOUNDED_BLOCKS = 1 << 18  # per cell: more than any run here has
TUNED = ("cost", "gorgo")  # whose two weights a tuner can move
_STEERED = ("cost", "pressure")  # the picker's policies that are ours; one from a file has all that they have


def maker(written: str) -> MakePolicy:
    """Makes policies of this written form. Raises UnknownPolicyError at once for a form that is none."""
    name, *changes = written.split(";")
    steered = steered_maker(name, changes)
    if steered is not None:
        return steered
    try:
        file = policy_file(name)
        if file is not None and is_whole(file):
            return own_whole(file, changes)
        settings, kept = _changed_by(without_tuner(changes), written)
        policy: MakePickPolicy = (lambda: name) if file is None else own_choice(file)
        Picker(settings, policy=policy(), index=PrefixIndex())
        make_tuner = tuner_maker(changes, own=_own_weights(name, settings))
    except UnknownPolicyError:
        raise
    except ValueError as error:
        also = f"; without a picker: {', '.join(FORMS)}" if "; known: " in str(error) else ""
        raise UnknownPolicyError(f"{error}{also}") from error

    def make_policy(scenario: Scenario) -> Policy:
        return _picker(scenario, policy(), settings, kept)

    if make_tuner is None:
        return make_policy
    if file is None and name.partition(":")[0] not in TUNED:
        raise UnknownPolicyError(f"{written!r}: no tuner moves {name}; known: {', '.join(TUNED)}, or a file.py:Name")
    return WithTuner(make_policy=make_policy, make_tuner=make_tuner)


def fingerprint(written: str) -> str:
    """Changes with the content of the file that a written form names; "" where it names none.

    Raises UnknownPolicyError.
    """
    try:
        file = policy_file(written.partition(";")[0])
        return "" if file is None else file_hash(file)
    except ValueError as error:
        raise UnknownPolicyError(str(error)) from error


def _changed_by(changes: list[str], written: str) -> tuple[PickSettings, str]:
    """Settings with these constants, and the kind of index."""
    cost, learning, kept = CostSettings(), LearningSettings(), BOUNDED
    rates: list[tuple[str, float]] = []
    for change in changes:
        key, _, value = change.partition("=")
        if key == "index" and value in (BOUNDED, UNBOUNDED, OWN):
            kept = value
        elif key == "rates":
            rates.append(_rate(change, value))
        elif key in _types(cost):
            cost = _changed(cost, key, value)
        elif key in _types(learning):
            learning = _changed(learning, key, value)
        else:
            known = ", ".join(sorted(_types(cost) | _types(learning) | {"index": str, "rates": float}))
            raise UnknownPolicyError(f"{written!r}: unknown constant {key!r}; known: {known}")
    return PickSettings(cost=cost, learning=learning, rates=tuple(rates)), kept


def _rate(written: str, value: str) -> tuple[str, float]:
    """`10` or `h100:10` -> class, "" for all, and factor."""
    hardware, _, text = value.rpartition(":")
    factor = float(parsed(written, text, float))
    if not 0.0 < factor < inf:
        raise UnknownPolicyError(f"{written!r}: write a factor above 0, e.g. rates=10, or rates=h100:10 for one class")
    return hardware, factor


def _own_weights(name: str, settings: PickSettings) -> Weights:
    base, _, option = name.partition(":")
    if base != "gorgo":
        return Weights(settings.cost.rtt_weight, settings.cost.queue_weight)
    rtt, _, queue = (option or ".5/.1").partition("/")
    return Weights(float(rtt), float(queue))


def _picker(scenario: Scenario, policy: str | PickPolicy, settings: PickSettings, kept: str) -> Policy:
    """The index holds each cell's KV blocks, over the number of gateways where neither they nor engines tell.

    The running cap is what engines are told.
    """
    index, gateways = PrefixIndex(), len(scenario.rtts_s)
    told = kept == BOUNDED and gateways > 1 and scenario.delays.sync_s is not None
    if told:
        index.share(MAX_PLACED_BLOCKS)
    sharers = 1 if told or scenario.kv_events else gateways
    for cell in scenario.cells:
        blocks = cell.kv_capacity_tokens // cell.limits.block_size_tokens // sharers
        index.set_capacity(cell.cell_id, _UNBOUNDED_BLOCKS if kept == UNBOUNDED else blocks)
    running = min(cell.limits.max_num_seqs for cell in scenario.cells)
    settings = replace(settings, cost=replace(settings.cost, max_running=min(settings.cost.max_running, running)))
    picker = Picker(settings, policy=policy, index=index)
    if isinstance(policy, str) and policy not in _STEERED:
        return picker
    return PicksPolicy(Steer(make_scorer("recipe", "", SETTINGS), picks=True), picker)


def _types(settings: CostSettings | LearningSettings) -> dict[str, type]:
    return {field.name: type(getattr(settings, field.name)) for field in fields(settings)}


def _changed(settings: Settings, key: str, value: str) -> Settings:
    changed: Any = {key: parsed(f"{key}={value}", value, _types(settings)[key])}
    return replace(settings, **changed)
